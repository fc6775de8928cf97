//! What can be chosen for a queue, a job and a schedule, and what holds if nothing is.

use std::time::Duration;

use crate::engine::Stamps;
use crate::{Error, Result};

/// How the jobs of a queue live. A queue is a name; these are stamped on each job when it
/// is enqueued, and every later step reads the job's own stamps.
///
/// ```
/// use std::time::Duration;
/// use alkstore::QueueOpts;
///
/// let opts = QueueOpts::default().visibility_timeout(Duration::from_secs(30)).max_attempts(10);
/// assert_eq!(opts.visibility_timeout_s, 30);
/// assert_eq!(opts.backoff_base_s, 5);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueOpts {
    /// How long a claim holds, in seconds; at least 1. Default 300.
    pub visibility_timeout_s: i64,
    /// How often a job may be claimed before it is dead; at least 1. Default 3.
    pub max_attempts: i64,
    /// The base of the retry delay, in seconds; 0 retries at once. Default 5.
    pub backoff_base_s: i64,
    /// How long a dead job is kept, in seconds; `None`, the default, is for ever.
    pub dead_letter_retention_s: Option<i64>,
}

impl Default for QueueOpts {
    fn default() -> Self {
        Self {
            visibility_timeout_s: 300,
            max_attempts: 3,
            backoff_base_s: 5,
            dead_letter_retention_s: None,
        }
    }
}

impl QueueOpts {
    /// What an outbox stamps: 60 s, 5 attempts, 5 s, kept for ever.
    #[must_use]
    pub fn outbox() -> Self {
        Self {
            visibility_timeout_s: 60,
            max_attempts: 5,
            ..Self::default()
        }
    }

    /// Sets how long a claim holds, rounded up to whole seconds.
    #[must_use]
    pub fn visibility_timeout(mut self, timeout: Duration) -> Self {
        self.visibility_timeout_s = whole_seconds(timeout);
        self
    }

    /// Sets how often a job may be claimed.
    #[must_use]
    pub fn max_attempts(mut self, attempts: i64) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Sets the base of the retry delay, rounded up to whole seconds.
    #[must_use]
    pub fn backoff_base(mut self, base: Duration) -> Self {
        self.backoff_base_s = whole_seconds(base);
        self
    }

    /// Sets how long a dead job is kept, rounded up to whole seconds.
    #[must_use]
    pub fn dead_letter_retention(mut self, retention: Duration) -> Self {
        self.dead_letter_retention_s = Some(whole_seconds(retention));
        self
    }

    /// The stamps of a job, or [`Error::InvalidArgument`] for options that make no sense.
    pub(crate) fn stamps(&self) -> Result<Stamps> {
        at_least("visibility_timeout_s", self.visibility_timeout_s, 1)?;
        at_least("max_attempts", self.max_attempts, 1)?;
        at_least("backoff_base_s", self.backoff_base_s, 0)?;
        if let Some(retention) = self.dead_letter_retention_s {
            at_least("dead_letter_retention_s", retention, 0)?;
        }
        Ok(Stamps {
            visibility_timeout_s: self.visibility_timeout_s,
            max_attempts: self.max_attempts,
            backoff_base_s: self.backoff_base_s,
            dead_letter_retention_s: self.dead_letter_retention_s,
        })
    }
}

/// What can be said of one job when it is enqueued.
///
/// ```
/// use std::time::Duration;
/// use alkstore::EnqueueOpts;
///
/// let opts = EnqueueOpts::default().delay(Duration::from_millis(1500)).priority(10);
/// assert_eq!(opts.delay, Some(2), "durations round up to whole seconds");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnqueueOpts {
    /// Seconds from now until the job is ready; beats `run_at`.
    pub delay: Option<i64>,
    /// The unix second at which the job is ready.
    pub run_at: Option<i64>,
    /// Jobs of a higher priority are claimed first. Default 0.
    pub priority: i64,
    /// How often this job may be claimed, instead of what its queue says; at least 1.
    pub max_attempts: Option<i64>,
    /// Seconds from now after which the job is dead unless it was acked; `None` is never.
    pub expires: Option<i64>,
}

impl EnqueueOpts {
    /// Makes the job ready after `delay`, rounded up to whole seconds.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(whole_seconds(delay));
        self
    }

    /// Makes the job ready at a unix second.
    #[must_use]
    pub fn run_at(mut self, unix_s: i64) -> Self {
        self.run_at = Some(unix_s);
        self
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = priority;
        self
    }

    /// Sets how often this job may be claimed.
    #[must_use]
    pub fn max_attempts(mut self, attempts: i64) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Lets the job die after `expires`, rounded up to whole seconds.
    #[must_use]
    pub fn expires(mut self, expires: Duration) -> Self {
        self.expires = Some(whole_seconds(expires));
        self
    }

    /// Whether there can be such a job.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        check_attempts(self.max_attempts)
    }

    /// The queue's stamps with this job's own over them.
    #[inline]
    pub(crate) fn over(&self, queue: Stamps) -> Stamps {
        override_attempts(queue, self.max_attempts)
    }
}

/// What can be said of the jobs that a schedule fires.
///
/// ```
/// use alkstore::ScheduleOpts;
///
/// assert_eq!(ScheduleOpts::default().priority(5).priority, 5);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleOpts {
    /// The jobs' priority. Default 0.
    pub priority: i64,
    /// How often a fired job may be claimed; at least 1. Default: a plain queue's.
    pub max_attempts: Option<i64>,
    /// Seconds from the fire after which the job is dead unless it was acked.
    pub expires: Option<i64>,
}

impl ScheduleOpts {
    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: i64) -> Self {
        self.priority = priority;
        self
    }

    /// Sets how often a fired job may be claimed.
    #[must_use]
    pub fn max_attempts(mut self, attempts: i64) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Lets a fired job die after `expires`, rounded up to whole seconds.
    #[must_use]
    pub fn expires(mut self, expires: Duration) -> Self {
        self.expires = Some(whole_seconds(expires));
        self
    }

    /// A plain queue's stamps with these over them.
    pub(crate) fn stamps(&self) -> Result<Stamps> {
        check_attempts(self.max_attempts)?;
        let stamps = QueueOpts::default().stamps()?;
        Ok(override_attempts(stamps, self.max_attempts))
    }
}

#[inline]
fn check_attempts(attempts: Option<i64>) -> Result<()> {
    match attempts {
        Some(attempts) => at_least("max_attempts", attempts, 1),
        None => Ok(()),
    }
}

#[inline]
fn override_attempts(stamps: Stamps, attempts: Option<i64>) -> Stamps {
    Stamps {
        max_attempts: attempts.unwrap_or(stamps.max_attempts),
        ..stamps
    }
}

/// [`Error::InvalidArgument`] unless `value` is at least `least`, which is 0 or 1.
#[inline]
pub(crate) fn at_least(argument: &'static str, value: i64, least: i64) -> Result<()> {
    if value >= least {
        return Ok(());
    }
    let reason = if least == 0 {
        "it must not be negative"
    } else {
        "it must be at least 1"
    };
    Err(Error::InvalidArgument {
        argument,
        value: value.to_string(),
        reason: reason.into(),
    })
}

/// A duration in whole seconds, rounded up, at most `i64::MAX`.
fn whole_seconds(duration: Duration) -> i64 {
    let up = u64::from(duration.subsec_nanos() > 0);
    i64::try_from(duration.as_secs().saturating_add(up)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(Duration::ZERO, 0)]
    #[case(Duration::from_nanos(1), 1)]
    #[case(Duration::from_secs(1), 1)]
    #[case(Duration::from_millis(1001), 2)]
    #[case(Duration::MAX, i64::MAX)]
    fn durations_round_up(#[case] duration: Duration, #[case] seconds: i64) {
        assert_eq!(whole_seconds(duration), seconds);
    }

    #[rstest]
    #[case(QueueOpts { visibility_timeout_s: 0, ..QueueOpts::default() })]
    #[case(QueueOpts { max_attempts: 0, ..QueueOpts::default() })]
    #[case(QueueOpts { backoff_base_s: -1, ..QueueOpts::default() })]
    #[case(QueueOpts { dead_letter_retention_s: Some(-1), ..QueueOpts::default() })]
    fn senseless_queue_options_are_refused(#[case] opts: QueueOpts) {
        assert!(matches!(opts.stamps(), Err(Error::InvalidArgument { .. })));
    }
}
