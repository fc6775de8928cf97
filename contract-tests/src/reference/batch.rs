//! Batches: writes of several calls in one commit.

use std::mem::discriminant;
use std::time::Duration;

use alkstore::engine::{
    At, Batch, BatchError, Batches, Batching, ClaimId, Topic, Wakes, Write, Written,
};
use alkstore::{Error, JobState, Result};

use super::database::Work;
use super::{Fault, Reference};

impl Batches for Reference {
    fn batching(&self) -> Batching {
        Batching {
            inline: false,
            timeout: match self.database.fault {
                Some(Fault::BusyWaitsForEver) => Duration::MAX,
                _ => self.busy_timeout,
            },
        }
    }

    fn lane(&self, _write: &Write<'_>) -> u64 {
        // There is one writer.
        0
    }

    fn overdue(&self, _write: &Write<'_>) -> Error {
        self.database.busy()
    }

    async fn write_batch(&self, batch: &mut Batch) -> Result<Vec<Written>, BatchError> {
        // Each call of the batch has its own limit.
        let writer = self.database.acquire_writer(Duration::MAX);
        let writer = self
            .unless_closed(writer)
            .await
            .map_err(BatchError::Failed)?;
        let writes = batch.begin(|_, _| true);
        let mut wakes = Wakes::default();
        let written = {
            let mut state = self.database.committed();
            let mut work = self.database.work(&mut state, &mut wakes);
            let alike = |one: &Write<'_>, next: &Write<'_>| discriminant(one) == discriminant(next);
            let runs = writes.chunk_by(alike);
            runs.flat_map(|run| work.write_alike(run)).collect()
        };
        self.wake(&wakes);
        drop(writer);
        super::backend::on_the_way().await;
        Ok(written)
    }

    async fn release_claims(&self, claims: &[ClaimId<'_>]) -> Result<()> {
        self.write(At::Auto, |work| work.release_claims(claims))
            .await
    }
}

impl Work<'_> {
    /// Does writes of one kind.
    fn write_alike(&mut self, writes: &[Write<'_>]) -> Vec<Written> {
        let (mut jobs, mut events, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut claimed = Vec::new();
        for write in writes {
            match write {
                Write::Insert(job) => jobs.push(*job),
                Write::Append(event) => events.push(*event),
                Write::Finish(end) => ends.push(*end),
                Write::Claim(request) => claimed.push(self.claim(request)),
            }
        }
        let ids = self.insert_jobs(&jobs).into_iter().map(Written::Inserted);
        let offsets = self.append_events(&events).into_iter();
        let landed = self.finish_claims(&ends).into_iter();
        ids.chain(offsets.map(Written::Appended))
            .chain(landed.map(Written::Finished))
            .chain(claimed.into_iter().map(Written::Claimed))
            .collect()
    }

    pub(super) fn release_claims(&mut self, claims: &[ClaimId<'_>]) {
        if self.rules.breaks(Fault::DroppedClaimsStay) {
            return;
        }
        let attempt = i64::from(!self.rules.breaks(Fault::DroppedClaimsCount));
        for claim in claims {
            let Some(job) = self.state.jobs.get_mut(&claim.id) else {
                continue;
            };
            if self.rules.holds(job, claim) {
                job.state = JobState::Pending;
                job.attempts -= attempt;
                job.worker_id = None;
                job.claim_expires_at = None;
                self.wakes.add(Topic::queue(claim.queue));
            }
        }
    }
}
