//! Claims: jobs go out, each to one worker and for a bounded time.

use std::cmp::Reverse;

use alkstore::engine::{
    ClaimRequest, EXPIRED, FEW_EXPIRED, MAX_ATTEMPTS_EXCEEDED, MOST_EXPIRED_PER_CLAIM,
    MOST_LAPSED_PER_CLAIM,
};
use alkstore::{Job, JobState};

use super::{Fault, Rules, Work, most};

impl Work<'_> {
    pub(in crate::reference) fn claim(&mut self, wish: &ClaimRequest<'_>) -> Vec<Job> {
        self.end_lapsed(wish.queue);
        let mut claimed = self.pick(wish);
        self.end_expired(wish, claimed.len());
        for id in &claimed {
            if let Some(job) = self.state.jobs.get_mut(id) {
                self.rules.hand_out(job, wish.worker);
            }
        }
        if self.rules.breaks(Fault::ClaimBatchReversed) {
            claimed.reverse();
        }
        claimed
            .iter()
            .filter_map(|id| self.state.jobs.get(id).cloned())
            .collect()
    }

    /// Makes expired jobs dead, as far as a claim does that by the way.
    fn end_expired(&mut self, wish: &ClaimRequest<'_>, handed_out: usize) {
        let passes_by = [Fault::ClaimTakesExpired, Fault::ClaimLeavesExpired];
        if passes_by.iter().any(|fault| self.rules.breaks(*fault)) {
            return;
        }
        let few = self.expired(wish.queue) <= most(FEW_EXPIRED);
        if few || handed_out < most(wish.limit) || self.rules.breaks(Fault::ClaimAlwaysBuries) {
            self.bury_expired(
                wish.queue,
                match self.rules.fault {
                    Some(Fault::ClaimBuriesOneExpired) => 1,
                    _ => MOST_EXPIRED_PER_CLAIM,
                },
            );
        }
    }

    /// Ends claims that have lapsed, most overdue first and a bounded number of them.
    fn end_lapsed(&mut self, queue: &str) {
        let rules = self.rules;
        let lapsed = |job: &&mut Job| {
            job.queue == queue
                && job.state == JobState::Processing
                && rules.claim_lapsed(job)
                && !rules.breaks(Fault::ReclaimNever)
        };
        let mut lapsed: Vec<_> = self.state.jobs.values_mut().filter(lapsed).collect();
        lapsed.sort_by_key(|job| (job.claim_expires_at, job.id));
        lapsed.truncate(match rules.fault {
            Some(Fault::ClaimEndsOneLapsed) => 1,
            _ => most(MOST_LAPSED_PER_CLAIM),
        });
        for job in lapsed {
            let exhausted = job.attempts >= job.max_attempts;
            match rules.fault {
                // The deadline of a claim and the expiry are both past: it died of the latter.
                _ if rules.has_expired(job) => rules.bury(job, EXPIRED),
                Some(Fault::ExhaustedStaysAlive) if exhausted => continue,
                Some(Fault::ExhaustedDiesUnsaid) if exhausted => rules.bury(job, "failed"),
                Some(Fault::ExhaustedIsHandedOut) => job.state = JobState::Pending,
                _ if exhausted => rules.bury(job, MAX_ATTEMPTS_EXCEEDED),
                _ => job.state = JobState::Pending,
            }
            if job.state == JobState::Pending {
                job.attempts -= i64::from(rules.breaks(Fault::ReclaimForgetsAttempt));
                job.worker_id = None;
                job.claim_expires_at = None;
            }
        }
    }

    /// The ids of the jobs to hand out, in the order in which they are claimed.
    fn pick(&self, wish: &ClaimRequest<'_>) -> Vec<i64> {
        let rules = self.rules;
        let claimable = |job: &&Job| {
            let state_fits = match rules.fault {
                Some(Fault::ClaimTakesHeld) => job.state != JobState::Dead,
                Some(Fault::ClaimTakesDead) => job.state != JobState::Processing,
                _ => job.state == JobState::Pending,
            };
            (job.queue == wish.queue || rules.breaks(Fault::ClaimCrossesQueues))
                && state_fits
                && rules.is_ready(job)
                && (!rules.has_expired(job) || rules.breaks(Fault::ClaimTakesExpired))
        };
        let mut jobs: Vec<_> = self.state.jobs.values().filter(claimable).collect();
        jobs.sort_by_key(|job| {
            let (high_first, ready, oldest) = (Reverse(job.priority), job.run_at, job.id);
            match rules.fault {
                Some(Fault::ClaimIgnoresPriority) => (Reverse(0), ready, oldest),
                Some(Fault::ClaimTakesLowFirst) => (Reverse(!job.priority), ready, oldest),
                Some(Fault::ClaimIgnoresRunAt) => (high_first, 0, oldest),
                Some(Fault::ClaimTakesNewest) => (high_first, ready, -oldest),
                _ => (high_first, ready, oldest),
            }
        });
        let one_more = usize::from(rules.breaks(Fault::ClaimTakesOneMore));
        jobs.into_iter()
            .take(most(wish.limit) + one_more)
            .map(|job| job.id)
            .collect()
    }
}

impl Rules {
    /// Gives a job to a worker until its claim's deadline.
    fn hand_out(self, job: &mut Job, worker: &str) {
        let holds_s = match self.fault {
            Some(Fault::ClaimIgnoresVisibility) => 300,
            _ => job.visibility_timeout_s,
        };
        job.state = JobState::Processing;
        job.attempts += i64::from(!self.breaks(Fault::ClaimForgetsAttempt));
        job.worker_id = (!self.breaks(Fault::WorkerForgotten)).then(|| worker.into());
        job.claimed_at = (!self.breaks(Fault::ClaimedAtForgotten)).then_some(self.now);
        job.claim_expires_at = Some(self.after(holds_s));
        if self.breaks(Fault::ClaimForgetsError) {
            job.last_error = None;
        }
    }
}
