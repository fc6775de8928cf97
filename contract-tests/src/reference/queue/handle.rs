//! What the holder of a claim can do, while it holds it.

use alkstore::engine::{ClaimEnd, ClaimId, Outcome, Topic};
use alkstore::{Job, JobState};

use super::{Fault, Rules, Work};

impl Work<'_> {
    pub(in crate::reference) fn finish_claims(&mut self, ends: &[ClaimEnd<'_>]) -> Vec<bool> {
        let refused = |end: &ClaimEnd<'_>| {
            let job = self.state.jobs.get(&end.claim.id);
            !job.is_some_and(|job| self.rules.holds(job, &end.claim))
        };
        if self.rules.breaks(Fault::AckBatchAllOrNothing) && ends.iter().any(refused) {
            return vec![false; ends.len()];
        }
        ends.iter().map(|end| self.finish_claim(end)).collect()
    }

    fn finish_claim(&mut self, end: &ClaimEnd<'_>) -> bool {
        let rules = self.rules;
        let Some(job) = self.state.jobs.get_mut(&end.claim.id) else {
            return false;
        };
        if !rules.holds(job, &end.claim) {
            return false;
        }
        match end.outcome {
            Outcome::Done => match rules.fault {
                Some(Fault::AckKeepsJob) => {}
                Some(Fault::AckBuries) => rules.bury(job, "done"),
                _ => drop(self.state.jobs.remove(&end.claim.id)),
            },
            Outcome::Again { delay, error } => {
                rules.hand_back(job, delay, error);
                if !rules.breaks(Fault::RetryWakesNobody) {
                    self.wakes.add(Topic::queue(end.claim.queue));
                }
            }
            Outcome::Dead { error } => {
                rules.bury(job, error);
                if rules.breaks(Fault::FailDropsError) {
                    job.last_error = None;
                }
            }
        }
        true
    }

    pub(super) fn extend_claim(&mut self, claim: &ClaimId<'_>, extend: i64) -> bool {
        let mut rules = self.rules;
        rules.fault = match rules.fault {
            Some(Fault::HeartbeatRevives) => Some(Fault::LapsedHandleActs),
            Some(Fault::HeartbeatOfStaleHandle) => Some(Fault::StaleHandleActs),
            fault => fault,
        };
        let Some(job) = self.state.jobs.get_mut(&claim.id) else {
            return false;
        };
        if !rules.holds(job, claim) {
            return false;
        }
        let added = job
            .claim_expires_at
            .map(|deadline| deadline.saturating_add(extend));
        match rules.fault {
            Some(Fault::HeartbeatIgnored) => {}
            Some(Fault::HeartbeatAdds) => job.claim_expires_at = added,
            _ => job.claim_expires_at = Some(rules.after(extend)),
        }
        true
    }
}

impl Rules {
    /// Makes a claimed job pending again.
    fn hand_back(self, job: &mut Job, delay: i64, error: &str) {
        job.state = JobState::Pending;
        job.run_at = match self.fault {
            Some(Fault::RetryIgnoresDelay) => self.now,
            Some(Fault::RetryAddsToRunAt) => job.run_at.saturating_add(delay),
            _ => self.after(delay),
        };
        job.attempts -= i64::from(self.breaks(Fault::RetryRefundsAttempt));
        if !self.breaks(Fault::RetryKeepsWorker) {
            job.worker_id = None;
        }
        if !self.breaks(Fault::RetryKeepsDeadline) {
            job.claim_expires_at = None;
        }
        job.last_error = (!self.breaks(Fault::RetryDropsError)).then(|| error.into());
    }
}
