//! Jobs that nobody wants any more, and dead ones that were kept long enough.

use alkstore::engine::{EXPIRED, MOST_PER_STEP, SweepStep};
use alkstore::{Job, JobState, Swept};

use super::{Fault, Work, most};

impl Work<'_> {
    pub(super) fn cancel_job(&mut self, queue: &str, id: i64) -> bool {
        let rules = self.rules;
        let found = self.state.jobs.get(&id).is_some_and(|job| {
            let state_fits = match rules.fault {
                Some(Fault::CancelMissesHeld) => job.state == JobState::Pending,
                Some(Fault::CancelTakesDead) => true,
                _ => job.state != JobState::Dead,
            };
            state_fits && (job.queue == queue || rules.breaks(Fault::CancelCrossesQueues))
        });
        found && self.state.jobs.remove(&id).is_some()
    }

    pub(super) fn sweep_jobs(&mut self, queue: &str) -> SweepStep {
        let rules = self.rules;
        let limit = match rules.fault {
            Some(Fault::SweepInOneStep) => i64::MAX,
            _ => MOST_PER_STEP,
        };
        let expired = self.bury_expired(queue, limit);
        let purged = self.purge_dead(queue, most(limit) - most_done(expired));
        let more = expired + purged >= most(limit) as u64 && !rules.breaks(Fault::SweepStopsEarly);
        let mut swept = Swept::new(expired, purged);
        if rules.breaks(Fault::SweepCountsNothing) {
            swept = Swept::default();
        }
        SweepStep { swept, more }
    }

    /// Makes live jobs past their expiry dead, most overdue first and at most so many.
    pub(super) fn bury_expired(&mut self, queue: &str, limit: i64) -> u64 {
        let rules = self.rules;
        let past = |job: &&mut Job| {
            let state_fits = match rules.fault {
                Some(Fault::SweepMissesHeld) => job.state == JobState::Pending,
                _ => job.state != JobState::Dead,
            };
            state_fits
                && rules.has_expired(job)
                && (job.queue == queue || rules.breaks(Fault::SweepCrossesQueues))
        };
        let mut expired: Vec<_> = self.state.jobs.values_mut().filter(past).collect();
        expired.sort_by_key(|job| (job.expires_at, job.id));
        expired.truncate(most(limit));
        let count = expired.len() as u64;
        for job in expired {
            rules.bury(
                job,
                match rules.fault {
                    Some(Fault::ExpiredDiesUnsaid) => "failed",
                    _ => EXPIRED,
                },
            );
        }
        if rules.breaks(Fault::SweepDeletesExpired) {
            self.state
                .jobs
                .retain(|_, job| job.last_error.as_deref() != Some(EXPIRED));
        }
        count
    }

    /// The number of live jobs past their expiry.
    pub(super) fn expired(&self, queue: &str) -> usize {
        let past = |job: &&Job| {
            job.queue == queue && job.state != JobState::Dead && self.rules.has_expired(job)
        };
        self.state.jobs.values().filter(past).count()
    }

    /// Deletes dead jobs past their retention, at most so many.
    fn purge_dead(&mut self, queue: &str, limit: usize) -> u64 {
        let rules = self.rules;
        let past_retention = |job: &Job| {
            let kept_s = match rules.fault {
                Some(Fault::SweepNeverPurges) => None,
                Some(Fault::SweepPurgesEarly) => job.dead_letter_retention_s.map(|_| 0),
                Some(Fault::SweepPurgesUnstamped) => Some(job.dead_letter_retention_s.unwrap_or(0)),
                _ => job.dead_letter_retention_s,
            };
            let died_at = job.died_at.unwrap_or(i64::MAX);
            kept_s.is_some_and(|kept_s| died_at.saturating_add(kept_s) <= rules.now)
        };
        let mut purged = 0;
        self.state.jobs.retain(|_, job| {
            let stays = purged >= limit
                || job.queue != queue
                || job.state != JobState::Dead
                || !past_retention(job);
            purged += usize::from(!stays);
            stays
        });
        purged as u64
    }
}

fn most_done(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
