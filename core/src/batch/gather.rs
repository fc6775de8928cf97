//! The calls of one batch.

use std::sync::Arc;
use std::task::{Context, Waker};

use tokio::runtime::Handle;
use tokio::time::Instant;

use super::call::{Call, Outcome};
use super::lanes::{Key, Lanes, Pass};
use crate::engine::{BatchError, Batches, ClaimId, Write, Written};
use crate::queue::Job;
use crate::{Error, Result};

/// Calls that are to be done in one commit, see
/// [`Batches::write_batch`](crate::engine::Batches::write_batch).
#[derive(Debug)]
pub struct Batch {
    pass: Pass,
    calls: Vec<Arc<Call>>,
    begun: bool,
}

impl Batch {
    pub(super) fn new(pass: Pass) -> Self {
        Self {
            pass,
            calls: Vec::new(),
            begun: false,
        }
    }

    pub(super) fn lane(&self) -> (Arc<Lanes>, Key, u64) {
        (
            Arc::clone(&self.pass.lanes),
            self.pass.key,
            self.pass.number,
        )
    }

    /// Decides which calls are in the batch: the one that has waited longest, and those of its
    /// lane whose writes `can_share` with its first one. Returns their writes.
    ///
    /// Calls that were dropped are in no batch. None may be left; then there is nothing to do.
    ///
    /// ```
    /// # use alkstore::engine::{Batch, BatchError, Written};
    /// # async fn example(batch: &mut Batch) -> Result<Vec<Written>, BatchError> {
    /// let writes = batch.begin(|_first, _write| true);
    /// println!("{} writes go together", writes.len());
    /// # Ok(Vec::new()) }
    /// ```
    pub fn begin(&mut self, can_share: impl Fn(&Write<'_>, &Write<'_>) -> bool) -> Vec<Write<'_>> {
        if !self.begun {
            self.begun = true;
            self.calls = self.pass.lanes.gather(self.pass.key, can_share);
        }
        let writes = self.calls.iter().flat_map(|call| &call.writes);
        writes.map(|write| write.borrow()).collect()
    }

    /// When the last of its calls gives up waiting; `None` before the batch has begun, or if
    /// nobody is left in it.
    ///
    /// ```
    /// # fn example(batch: &alkstore::engine::Batch) {
    /// if let Some(deadline) = batch.deadline() {
    ///     println!("{:?} are left", deadline.saturating_duration_since(std::time::Instant::now()));
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn deadline(&self) -> Option<std::time::Instant> {
        let deadlines = self.calls.iter().map(|call| call.deadline);
        deadlines.max().map(Instant::into_std)
    }

    /// Hands each call what became of it.
    pub(super) async fn deliver<E: Batches>(
        &mut self,
        engine: &E,
        result: Result<Vec<Written>, BatchError>,
    ) {
        let calls = std::mem::take(&mut self.calls);
        let (lanes, key) = (&self.pass.lanes, self.pass.key);
        let error = match result {
            Ok(written) => {
                lanes.unblock(key);
                return hand_out(engine, &calls, written).await;
            }
            Err(BatchError::Blocked(error)) => return lanes.put_back(key, calls, error),
            Err(BatchError::Contended(_)) if self.begun => {
                return calls.iter().for_each(|call| end(call, Outcome::Alone));
            }
            Err(BatchError::Refused(_)) if calls.len() > 1 => {
                return calls.iter().for_each(|call| end(call, Outcome::Alone));
            }
            Err(
                BatchError::Refused(error)
                | BatchError::Contended(error)
                | BatchError::Failed(error),
            ) => error,
        };
        if !self.begun {
            lanes.fail(key, &error);
        }
        tell(&calls, &error);
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.calls.is_empty() {
            let error = Error::transient(
                "the operation may have been done or not",
                "the runtime that it ran on was shut down",
            );
            tell(&self.calls, &error);
        }
    }
}

async fn hand_out<E: Batches>(engine: &E, calls: &[Arc<Call>], written: Vec<Written>) {
    let writes: usize = calls.iter().map(|call| call.writes.len()).sum();
    if written.len() != writes {
        let error = Error::database("the engine broke its contract", "a result is missing");
        return tell(calls, &error);
    }
    let mut written = written.into_iter();
    let mut orphans = Vec::new();
    for call in calls {
        let own: Vec<_> = written.by_ref().take(call.writes.len()).collect();
        // The caller went while the batch ran.
        if let Err(Outcome::Done(Ok(own))) = call.end(Outcome::Done(Ok(own))) {
            orphans.extend(claimed(own));
        }
    }
    release(engine, &orphans).await;
}

/// Gives jobs back that were claimed for a caller who has gone.
pub(super) fn give_back<E: Batches>(engine: &E, written: Vec<Written>) {
    let jobs: Vec<_> = claimed(written).collect();
    if jobs.is_empty() {
        return;
    }
    let owned = engine.clone();
    let mut releasing = Box::pin(async move { release(&owned, &jobs).await });
    if engine.batching().inline {
        let mut cx = Context::from_waker(Waker::noop());
        if releasing.as_mut().poll(&mut cx).is_ready() {
            return;
        }
    }
    // Without a runtime the claims lapse.
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(releasing);
    }
}

async fn release<E: Batches>(engine: &E, jobs: &[Job]) {
    if jobs.is_empty() {
        return;
    }
    let claims: Vec<_> = jobs.iter().map(claim_id).collect();
    if let Err(error) = engine.release_claims(&claims).await {
        tracing::warn!(
            error = %error,
            jobs = claims.len(),
            "jobs that were claimed for a dropped call stay claimed until their claims lapse"
        );
    }
}

fn claim_id(job: &Job) -> ClaimId<'_> {
    ClaimId {
        queue: &job.queue,
        id: job.id,
        attempt: job.attempts,
    }
}

fn claimed(written: Vec<Written>) -> impl Iterator<Item = Job> {
    written.into_iter().flat_map(|written| match written {
        Written::Claimed(jobs) => jobs,
        _ => Vec::new(),
    })
}

fn tell(calls: &[Arc<Call>], error: &Error) {
    for call in calls {
        end(call, Outcome::Done(Err(error.share())));
    }
}

/// Ends a call; one that has gone needs no end.
fn end(call: &Call, outcome: Outcome) {
    call.end(outcome).ok();
}
