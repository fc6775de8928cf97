//! Queues: jobs, claims on them, and their ends.

mod claim;
mod handle;
mod sweep;

use alkstore::engine::{
    At, ClaimEnd, ClaimId, ClaimRequest, NewJob, Queues, Ready, Results, Stamps, SweepStep, Topic,
};
use alkstore::{Job, JobState, Result};

use super::database::Work;
use super::rules::Rules;
use super::{Fault, Reference, ReferenceConn};
use crate::support::job_of;

impl Queues for Reference {
    async fn insert_jobs(
        &self,
        at: At<'_, ReferenceConn>,
        jobs: &[NewJob<'_>],
    ) -> Result<Results<i64>> {
        let ids = self.write(at, |work| work.insert_jobs(jobs)).await;
        ids.map(Results::from)
    }

    async fn claim_jobs(&self, requests: &[ClaimRequest<'_>]) -> Result<Vec<Vec<Job>>> {
        self.write(At::Auto, |work| {
            requests.iter().map(|wish| work.claim(wish)).collect()
        })
        .await
    }

    async fn finish_claims(
        &self,
        at: At<'_, ReferenceConn>,
        ends: &[ClaimEnd<'_>],
    ) -> Result<Results<bool>> {
        let in_tx = matches!(at, At::In(_));
        if in_tx && self.database.fault == Some(Fault::AckTxLandsAtOnce) {
            let mut committed = self.database.committed();
            ends.iter()
                .for_each(|end| drop(committed.jobs.remove(&end.claim.id)));
        }
        let landed = self.write(at, |work| {
            if in_tx && work.rules.breaks(Fault::AckTxIgnoresDeadline) {
                work.rules.fault = Some(Fault::LapsedHandleActs);
            }
            work.finish_claims(ends)
        });
        landed.await.map(Results::from)
    }

    async fn extend_claim(&self, claim: &ClaimId<'_>, extend: i64) -> Result<bool> {
        self.write(At::Auto, |work| work.extend_claim(claim, extend))
            .await
    }

    async fn cancel_job(&self, queue: &str, id: i64) -> Result<bool> {
        self.write(At::Auto, |work| work.cancel_job(queue, id))
            .await
    }

    async fn find_job(
        &self,
        at: At<'_, ReferenceConn>,
        queue: &str,
        id: i64,
    ) -> Result<Option<Job>> {
        self.read(at, |work| work.find_job(queue, id)).await
    }

    async fn sweep_jobs(&self, queue: &str) -> Result<SweepStep> {
        self.write(At::Auto, |work| work.sweep_jobs(queue)).await
    }
}

impl Work<'_> {
    pub(super) fn insert_jobs(&mut self, jobs: &[NewJob<'_>]) -> Vec<i64> {
        let mut ids: Vec<_> = jobs.iter().map(|job| self.insert_job(job)).collect();
        if self.rules.breaks(Fault::EnqueueBatchReversed) {
            ids.reverse();
        }
        ids
    }

    fn insert_job(&mut self, new: &NewJob<'_>) -> i64 {
        let id = 1 + match self.rules.fault {
            Some(Fault::IdsReused) => self.state.jobs.keys().next_back().copied().unwrap_or(0),
            _ => self.state.last_job,
        };
        self.state.last_job = id;
        self.state.jobs.insert(id, self.rules.new_job(id, new));
        if !self.rules.breaks(Fault::EnqueueWakesNobody) {
            self.wakes.add(Topic::queue(new.queue));
        }
        id
    }

    fn find_job(&self, queue: &str, id: i64) -> Option<Job> {
        let job = self.state.jobs.get(&id)?;
        let found = match self.rules.fault {
            Some(Fault::FindCrossesQueues) => true,
            Some(Fault::DeadAreInvisible) => job.queue == queue && job.state != JobState::Dead,
            _ => job.queue == queue,
        };
        found.then(|| job.clone())
    }
}

impl Rules {
    fn new_job(self, id: i64, new: &NewJob<'_>) -> Job {
        let stamps = self.stamps(new.stamps);
        job_of! {
            id,
            queue: new.queue.into(),
            state: JobState::Pending,
            payload: self.payload(new.payload),
            priority: match self.fault {
                Some(Fault::PriorityNarrowed) => {
                    new.priority.clamp(i32::MIN.into(), i32::MAX.into())
                }
                _ => new.priority,
            },
            run_at: match (self.fault, new.ready) {
                (Some(Fault::DelayAbsolute), Ready::In(delay)) => delay,
                (Some(Fault::DelayIgnored), Ready::In(_)) => self.now,
                (Some(Fault::RunAtNotBeforeNow), Ready::At(run_at)) => run_at.max(self.now),
                (_, Ready::In(delay)) => self.after(delay),
                (_, ready) => ready.resolve(self.now),
            },
            attempts: 0,
            max_attempts: stamps.max_attempts,
            worker_id: None,
            claimed_at: None,
            claim_expires_at: None,
            created_at: if self.breaks(Fault::CreatedAtForgotten) {
                0
            } else {
                self.now
            },
            expires_at: new.expires.map(|expires| match self.fault {
                Some(Fault::ExpiresAbsolute) => expires,
                _ => self.after(expires),
            }),
            visibility_timeout_s: stamps.visibility_timeout_s,
            backoff_base_s: stamps.backoff_base_s,
            dead_letter_retention_s: stamps.dead_letter_retention_s,
            last_error: None,
            died_at: None,
        }
    }

    fn stamps(self, stamps: Stamps) -> Stamps {
        match self.fault {
            Some(Fault::VisibilityForgotten) => Stamps {
                visibility_timeout_s: 300,
                ..stamps
            },
            Some(Fault::MaxAttemptsForgotten) => Stamps {
                max_attempts: 3,
                ..stamps
            },
            Some(Fault::BackoffForgotten) => Stamps {
                backoff_base_s: 5,
                ..stamps
            },
            Some(Fault::RetentionForgotten) => Stamps {
                dead_letter_retention_s: None,
                ..stamps
            },
            _ => stamps,
        }
    }

    /// Makes a live job dead.
    fn bury(self, job: &mut Job, error: &str) {
        job.state = JobState::Dead;
        job.claim_expires_at = None;
        job.last_error = Some(error.into());
        if self.breaks(Fault::DeadForgetsWorker) {
            job.worker_id = None;
        }
        job.died_at = (!self.breaks(Fault::DiedAtForgotten)).then_some(self.now);
    }
}

fn most(limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}
