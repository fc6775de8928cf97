//! Writes that share a commit.
//!
//! A commit costs about the same for one row as for many. Calls that arrive while others are on
//! their way wait in a lane, and all that wait there become one batch. The lanes, their waiting,
//! fairness and limits are the store's; an engine says which writes may share a lane and a
//! batch, and does a batch in one commit.

use std::time::Duration;

use alkstore_macros::facade;

use crate::batch::Batch;
use crate::engine::{Backend, ClaimEnd, ClaimId, ClaimRequest, NewEvent, NewJob};
use crate::queue::Job;
use crate::{Error, Result};

/// One write of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write<'a> {
    /// Inserts a job.
    Insert(NewJob<'a>),
    /// Appends an event.
    Append(NewEvent<'a>),
    /// Ends a claim.
    Finish(ClaimEnd<'a>),
    /// Claims jobs.
    Claim(ClaimRequest<'a>),
}

impl Write<'_> {
    /// The size of its payload.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Insert(job) => job.payload.len(),
            Self::Append(event) => event.payload.len(),
            Self::Finish(_) | Self::Claim(_) => 0,
        }
    }
}

/// The result of one [`Write`], of the same kind.
#[derive(Debug)]
pub enum Written {
    /// The inserted job's id.
    Inserted(i64),
    /// The appended event's offset.
    Appended(i64),
    /// Whether the end of the claim landed.
    Finished(bool),
    /// The claimed jobs.
    Claimed(Vec<Job>),
}

/// Why a batch was not done.
#[derive(Debug)]
pub enum BatchError {
    /// Nothing was done, and one of the writes may be the reason. Where there are several calls,
    /// each is tried again alone.
    Refused(Error),
    /// Nothing was done, because a row that one of the writes needs is held by a transaction.
    /// Each call waits for its rows by itself, outside the lane.
    Contended(Error),
    /// Nothing was done, because what the whole lane needs is held. The batch is formed anew a
    /// little later, for as long as its calls may wait.
    Blocked(Error),
    /// The batch may have been done, or trying its calls alone cannot help. Each call gets this
    /// error.
    Failed(Error),
}

/// How an engine wants its batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    /// Whether a batch that has begun ends within the same poll. If not, each batch runs on a
    /// task of its own, with calls of one runtime only.
    pub inline: bool,
    /// The longest a call may take, counted from its start.
    pub timeout: Duration,
}

/// Writes in batches.
#[facade]
pub trait Batches: Backend {
    /// Returns how the engine wants its batches.
    fn batching(&self) -> Batching;

    /// Returns the number of the lane that a write waits in. Writes that can wait for different
    /// things, such as the transactions that publish to two streams, belong in different lanes.
    fn lane(&self, write: &Write<'_>) -> u64;

    /// Returns the transient error of a write that has waited for as long as it may, with what
    /// it waited for.
    fn overdue(&self, write: &Write<'_>) -> Error;

    /// Does a batch in one commit and returns a result for each of its writes, in their order.
    ///
    /// The engine first waits for what the batch needs, a connection or its turn to write, and
    /// calls [`Batch::begin`] when nothing is left to wait for: only then it is decided which
    /// calls are in the batch. Without any write it returns an empty result. An error before
    /// `begin` is for all that wait.
    ///
    /// # Cancel safety
    ///
    /// Dropped before `begin`, nothing has happened.
    fn write_batch(
        &self,
        batch: &mut Batch,
    ) -> impl Future<Output = Result<Vec<Written>, BatchError>> + Send;

    /// Gives claims back as if they had never been: the jobs are pending again, their attempts
    /// one less. Claims that do not hold stay as they are. Wakes the queues.
    ///
    /// Only for claims that nobody has heard of, since the next claim of such a job has the same
    /// [`ClaimId`].
    fn release_claims(&self, claims: &[ClaimId<'_>]) -> impl Future<Output = Result<()>> + Send;
}
