//! Batches: calls of one kind become one statement.
//!
//! Each of these has a lane of its own: enqueues; the publishes to one stream, which can wait for
//! a transaction that publishes to it; the claims and ends of claims of one queue. A worker that
//! has ended a claim asks for the next one: since both share a lane, those who end together claim
//! together, and end together again.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::mem::discriminant;
use std::time::Duration;

use alkstore::engine::{At, Batch, BatchError, Batches, Batching, ClaimId, Write, Written};
use alkstore::{Error, Result};

use crate::Postgres;
use crate::backend::once;
use crate::error;

/// How long a batch waits in the server for a row or a stream that others hold.
const PATIENCE: Duration = Duration::from_millis(10);

impl Batches for Postgres {
    fn batching(&self) -> Batching {
        Batching {
            inline: false,
            timeout: self.inner().settings.operation_timeout,
        }
    }

    fn lane(&self, write: &Write<'_>) -> u64 {
        match write {
            Write::Insert(_) => 0,
            Write::Append(event) => number(1, event.stream),
            Write::Finish(end) => number(2, end.claim.queue),
            Write::Claim(request) => number(2, request.queue),
        }
    }

    fn overdue(&self, write: &Write<'_>) -> Error {
        let doing = match write {
            Write::Insert(_) => "enqueueing",
            Write::Append(_) => "publishing",
            Write::Finish(_) => "ending a claim",
            Write::Claim(_) => "claiming",
        };
        error::timed_out(doing, self.inner().settings.operation_timeout)
    }

    async fn write_batch(&self, batch: &mut Batch) -> Result<Vec<Written>, BatchError> {
        let inner = self.inner();
        inner.live().map_err(BatchError::Failed)?;
        // With a connection to be had, nothing is left to wait for.
        inner.pool.has_room().await.map_err(BatchError::Failed)?;
        let writes = batch.begin(|first, write| discriminant(first) == discriminant(write));
        once(PATIENCE, self.write(&writes)).await
    }

    async fn release_claims(&self, claims: &[ClaimId<'_>]) -> Result<()> {
        self.release(claims).await
    }
}

impl Postgres {
    /// Does writes that are all of one kind.
    async fn write(&self, writes: &[Write<'_>]) -> Result<Vec<Written>, BatchError> {
        let (mut jobs, mut events) = (Vec::new(), Vec::new());
        let (mut ends, mut requests) = (Vec::new(), Vec::new());
        for write in writes {
            match write {
                Write::Insert(job) => jobs.push(*job),
                Write::Append(event) => events.push(*event),
                Write::Finish(end) => ends.push(*end),
                Write::Claim(request) => requests.push(*request),
            }
        }
        if !jobs.is_empty() {
            return all(self.insert(At::Auto, &jobs).await, Written::Inserted);
        }
        if !events.is_empty() {
            return all(self.append(At::Auto, &events).await, Written::Appended);
        }
        if !ends.is_empty() {
            let landed = self.finish(At::Auto, &ends).await;
            return all(landed, Written::Finished).map_err(|error| match error {
                // One row that somebody holds keeps nobody else waiting.
                BatchError::Blocked(error) => BatchError::Contended(error),
                error => error,
            });
        }
        all(self.claim(&requests).await, Written::Claimed)
    }
}

/// The number of the lane of `kind` that `name` has. Where two names have the same number, their
/// calls share a lane, and nothing else.
fn number(kind: u8, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (kind, name).hash(&mut hasher);
    hasher.finish()
}

/// The results of a statement. One that may have landed is not tried again by anybody but who
/// asked for it.
fn all<T>(
    results: Result<impl IntoIterator<Item = T>>,
    written: impl Fn(T) -> Written,
) -> Result<Vec<Written>, BatchError> {
    match results {
        Ok(results) => Ok(results.into_iter().map(written).collect()),
        Err(error) if error::says_blocked(&error) => Err(BatchError::Blocked(error)),
        Err(error) if error.is_transient() => Err(BatchError::Failed(error)),
        Err(error) => Err(BatchError::Refused(error)),
    }
}
