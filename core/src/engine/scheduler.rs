//! Schedules: what an engine keeps of them, and how they move on.

use std::time::Duration;

use alkstore_macros::facade;

use crate::Result;
use crate::engine::{At, Backend, Results, Stamps};

/// A schedule to insert or replace.
#[derive(Debug, Clone, Copy)]
pub struct NewSchedule<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its spec as it was given.
    pub spec: &'a str,
    /// The spec's interval in seconds; at least 1.
    pub interval_s: i64,
    /// The queue that its jobs go to.
    pub queue: &'a str,
    /// The jobs' encoded payload.
    pub payload: &'a [u8],
    /// The jobs' priority.
    pub priority: i64,
    /// Seconds from a fire to its job's expiry.
    pub expires: Option<i64>,
    /// What the jobs carry.
    pub stamps: Stamps,
}

/// A schedule whose boundary has passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSchedule {
    /// Its name.
    pub name: String,
    /// Its interval in seconds.
    pub interval_s: i64,
    /// Its earliest boundary that has not fired, a unix second.
    pub next_at: i64,
    /// The queue that its jobs go to.
    pub queue: String,
    /// The jobs' encoded payload.
    pub payload: Vec<u8>,
    /// The jobs' priority.
    pub priority: i64,
    /// Seconds from a fire to its job's expiry.
    pub expires: Option<i64>,
    /// What the jobs carry.
    pub stamps: Stamps,
}

/// What the schedules look like at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Agenda {
    /// The engine's now, a unix second.
    pub now: i64,
    /// The time since that second began, below a second.
    pub subsec: Duration,
    /// The earliest boundary of all schedules that has not fired.
    pub next_at: Option<i64>,
    /// The schedules with `next_at <= now`, most overdue first, as many as were asked for.
    pub due: Vec<DueSchedule>,
}

impl Agenda {
    /// The time until the earliest boundary: zero if it has passed, `None` without any.
    ///
    /// ```
    /// use std::time::Duration;
    /// use alkstore::engine::Agenda;
    ///
    /// let subsec = Duration::from_millis(300);
    /// let agenda = Agenda { now: 50, subsec, next_at: Some(52), due: Vec::new() };
    /// assert_eq!(agenda.until_next(), Some(Duration::from_millis(1700)));
    /// ```
    #[must_use]
    pub fn until_next(&self) -> Option<Duration> {
        let seconds = self.next_at?.saturating_sub(self.now);
        let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        Some(seconds.saturating_sub(self.subsec))
    }
}

/// A schedule's step to a later boundary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advance<'a> {
    /// The schedule.
    pub name: &'a str,
    /// The boundary it was seen at.
    pub from: i64,
    /// The boundary it goes to.
    pub to: i64,
}

/// Schedules.
#[facade]
pub trait Schedules: Backend {
    /// Inserts or replaces a schedule and returns its next boundary: now plus the interval,
    /// saturating, or the old one if a schedule of this name had the same spec and that is
    /// earlier. Wakes [`Topic::SCHEDULES`](crate::engine::Topic::SCHEDULES).
    fn upsert_schedule(
        &self,
        schedule: &NewSchedule<'_>,
    ) -> impl Future<Output = Result<i64>> + Send;

    /// Deletes a schedule.
    fn delete_schedule(&self, name: &str) -> impl Future<Output = Result<bool>> + Send;

    /// The schedules, with at most `limit` due ones, which may be 0. In a transaction those stay as they are
    /// until it ends.
    fn read_agenda(
        &self,
        at: At<'_, Self::Conn>,
        limit: i64,
    ) -> impl Future<Output = Result<Agenda>> + Send;

    /// Sets each boundary that is later than now plus the interval to that, as it is after
    /// the clock had been ahead.
    fn reset_boundaries(&self) -> impl Future<Output = Result<()>> + Send;

    /// Moves schedules on; `false` where one is gone or no longer at `from`.
    fn advance_schedules(
        &self,
        at: At<'_, Self::Conn>,
        steps: &[Advance<'_>],
    ) -> impl Future<Output = Result<Results<bool>>> + Send;
}
