//! The seam between the contract and a database.
//!
//! An engine is a cheap handle on one database that implements [`Backend`] and one trait
//! for each mechanism: [`Queues`], [`Streams`], [`Locks`], [`Notify`], [`Schedules`], and
//! [`Batches`] for writes that share a commit. Together they are an [`Engine`], which is all that users ever name. Engines hold SQL and
//! connections; names are valid, payloads encoded and options resolved before they get here.
//!
//! Rules that all methods share:
//!
//! - An operation reads the engine's clock once. Sums of times saturate.
//! - [`At::Auto`] commits before the future is ready, wakes the topics it touched, and is
//!   wholly done or not at all, also when its future is dropped. [`At::In`] runs in the
//!   transaction that the connection is in and wakes nobody before that commits.
//! - Slices are done in one commit, in their order, with a result for each. An empty slice
//!   is an empty result.
//! - After [`Backend::close`] calls fail; the store does not make any.

pub(crate) mod batch;
pub(crate) mod scheduler;

use std::any::Any;
use std::future::Future;
use std::time::Duration;

use alkstore_macros::facade;
use smallvec::SmallVec;

use crate::Result;
pub use crate::batch::Batch;
pub use crate::drivers::scheme;
use crate::notify::WakeReceiver;
pub use crate::notify::{Topic, TopicKind, WakeHub, Wakes};
use crate::queue::{Job, Swept};
pub use crate::runtime::check_runtime;
use crate::stream::StreamEvent;
pub use batch::{BatchError, Batches, Batching, Write, Written};
pub use scheduler::{Advance, Agenda, DueSchedule, NewSchedule, Schedules};

/// A result for each item of a slice; for a single item it takes no allocation.
///
/// ```
/// use alkstore::engine::Results;
///
/// let ids: Results<i64> = [7].into_iter().collect();
/// assert!(!ids.spilled());
/// ```
pub type Results<T> = SmallVec<[T; 1]>;

/// Where an operation runs.
#[derive(Debug)]
pub enum At<'c, C: ?Sized> {
    /// On its own, committed at once.
    Auto,
    /// In the transaction that this connection is in; its owner commits.
    In(&'c mut C),
}

/// A transaction that the engine began. Dropping it rolls it back.
pub trait Transaction: Send + Sized + 'static {
    /// The driver's connection.
    type Conn: ?Sized + Send + 'static;

    /// The connection that the transaction runs on.
    fn conn(&mut self) -> &mut Self::Conn;

    /// Fails once the transaction is no longer open, because the database or the application's
    /// SQL ended it: nothing more may run on its connection. Called before each operation, so
    /// it costs no round trip.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database) that says why there is nothing to go on with.
    fn check_open(&self) -> Result<()> {
        Ok(())
    }

    /// Commits, then wakes `wakes`, where the database itself does not.
    ///
    /// A dropped future leaves the transaction wholly committed or wholly rolled back.
    fn commit(self, wakes: Wakes) -> impl Future<Output = Result<()>> + Send;

    /// Rolls back and waits until that is done.
    fn rollback(self) -> impl Future<Output = Result<()>> + Send;
}

/// The connections of an engine.
pub trait Backend: Clone + Send + Sync + 'static {
    /// The driver's connection, which business SQL runs on.
    type Conn: ?Sized + Send + 'static;
    /// A transaction of the engine's own.
    type Tx: Transaction<Conn = Self::Conn>;

    /// Begins a transaction that may write.
    fn begin(&self) -> impl Future<Output = Result<Self::Tx>> + Send;

    /// The connection in what an application passed to an operation of a boxed store: the
    /// connection itself, or the driver's transaction or pooled connection around it.
    fn downcast(connection: &mut (dyn Any + Send)) -> Option<&mut Self::Conn>;

    /// The connection as a boxed store hands it out: `connection` itself.
    fn upcast(connection: &mut Self::Conn) -> &mut (dyn Any + Send);

    /// How long a lost wake may delay what waits on it.
    fn reread_interval(&self) -> Duration;

    /// Closes the receivers, stops background work and closes connections. Idempotent.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// When a job is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// At the engine's now.
    Now,
    /// So many seconds after the engine's now, saturating.
    In(i64),
    /// At this unix second.
    At(i64),
}

impl Ready {
    /// The unix second for a clock that shows `now`.
    #[must_use]
    pub fn resolve(self, now: i64) -> i64 {
        match self {
            Self::Now => now,
            Self::In(delay) => now.saturating_add(delay),
            Self::At(run_at) => run_at,
        }
    }
}

/// What a job carries from its queue's options, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamps {
    /// How long a claim holds, in seconds.
    pub visibility_timeout_s: i64,
    /// How often the job may be claimed.
    pub max_attempts: i64,
    /// The base of the retry delay, in seconds.
    pub backoff_base_s: i64,
    /// How long the dead job is kept, in seconds; `None` is for ever.
    pub dead_letter_retention_s: Option<i64>,
}

/// A job to insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewJob<'a> {
    /// The queue.
    pub queue: &'a str,
    /// The encoded payload, stored as it is.
    pub payload: &'a [u8],
    /// When the job is ready.
    pub ready: Ready,
    /// Higher goes first.
    pub priority: i64,
    /// Seconds from the engine's now to the job's expiry.
    pub expires: Option<i64>,
    /// What the job carries from its queue's options.
    pub stamps: Stamps,
}

/// A wish for jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimRequest<'a> {
    /// The queue.
    pub queue: &'a str,
    /// Who claims.
    pub worker: &'a str,
    /// The most jobs to hand out; at least 1.
    pub limit: i64,
}

/// What identifies one claim of one job: each claim adds one to the job's attempts, so the
/// pair of id and attempt never comes twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimId<'a> {
    /// The queue.
    pub queue: &'a str,
    /// The job.
    pub id: i64,
    /// The job's attempts as that claim counted them.
    pub attempt: i64,
}

/// How a claim ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The job is done: delete it.
    Done,
    /// Pending again after so many seconds, with this as its last error.
    Again {
        /// Seconds from the engine's now, saturating.
        delay: i64,
        /// The last error.
        error: &'a str,
    },
    /// Dead, with this as its last error.
    Dead {
        /// The last error.
        error: &'a str,
    },
}

/// One claim to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimEnd<'a> {
    /// Which claim.
    pub claim: ClaimId<'a>,
    /// How it ends.
    pub outcome: Outcome<'a>,
}

/// The most lapsed claims that one claim ends.
pub const MOST_LAPSED_PER_CLAIM: i64 = 1000;

/// The most expired jobs that one claim moves to dead.
pub const MOST_EXPIRED_PER_CLAIM: i64 = 200;

/// A claim that hands out all it was asked for moves expired jobs to dead only where no more
/// than these are overdue: its cost must not follow their number.
pub const FEW_EXPIRED: i64 = 16;

/// The most jobs that one step of a sweep, and the most events that one step of a trim, takes.
/// An engine takes fewer where that many would hold others up, or where they are large.
pub const MOST_PER_STEP: i64 = 1000;

/// What one step of a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SweepStep {
    /// The jobs of this step.
    pub swept: Swept,
    /// Whether there may be more to sweep.
    pub more: bool,
}

/// What one step of a trim did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrimStep {
    /// The number of events deleted.
    pub trimmed: u64,
    /// The last offset of the step, where there may be more to trim after it.
    pub next: Option<i64>,
}

/// The last error of a job whose claims lapsed until no attempts were left.
pub const MAX_ATTEMPTS_EXCEEDED: &str = "max attempts exceeded";

/// The last error of a job that was not done before its expiry.
pub const EXPIRED: &str = "expired";

/// Jobs.
#[facade]
pub trait Queues: Backend {
    /// Inserts jobs and returns their ids, ascending. Wakes their queues.
    fn insert_jobs(
        &self,
        at: At<'_, Self::Conn>,
        jobs: &[NewJob<'_>],
    ) -> impl Future<Output = Result<Results<i64>>> + Send;

    /// Hands out jobs: for each request first up to [`MOST_LAPSED_PER_CLAIM`] lapsed claims
    /// of its queue end, most overdue first: jobs past their expiry are dead ([`EXPIRED`]),
    /// those without attempts left too ([`MAX_ATTEMPTS_EXCEEDED`]), others pending. Then
    /// pending jobs that are ready and not expired are claimed, by priority from high to
    /// low, `run_at`, id, and come back in that order.
    ///
    /// Expired jobs go to dead ([`EXPIRED`]), most overdue first: all if there are no more than
    /// [`FEW_EXPIRED`], up to [`MOST_EXPIRED_PER_CLAIM`] where fewer jobs were handed out than
    /// the request asked for, otherwise none. They are never handed out, whatever their number.
    fn claim_jobs(
        &self,
        requests: &[ClaimRequest<'_>],
    ) -> impl Future<Output = Result<Vec<Vec<Job>>>> + Send;

    /// Ends claims. `false` where the job is not processing, or held by another claim, or
    /// the claim has lapsed; then nothing changed. A job that is ready again wakes its queue.
    fn finish_claims(
        &self,
        at: At<'_, Self::Conn>,
        ends: &[ClaimEnd<'_>],
    ) -> impl Future<Output = Result<Results<bool>>> + Send;

    /// Sets a claim's deadline to now plus `extend` seconds; `false` as in
    /// [`Queues::finish_claims`].
    fn extend_claim(
        &self,
        claim: &ClaimId<'_>,
        extend: i64,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Deletes a live job, whoever holds it.
    fn cancel_job(&self, queue: &str, id: i64) -> impl Future<Output = Result<bool>> + Send;

    /// The job, live or dead.
    fn find_job(
        &self,
        at: At<'_, Self::Conn>,
        queue: &str,
        id: i64,
    ) -> impl Future<Output = Result<Option<Job>>> + Send;

    /// Does one step of a sweep, a commit of its own: moves live jobs of the queue past their
    /// expiry to dead ([`EXPIRED`]), most overdue first, and deletes dead ones past their
    /// retention; [`MOST_PER_STEP`] of both together at most, and at least one of what there is.
    fn sweep_jobs(&self, queue: &str) -> impl Future<Output = Result<SweepStep>> + Send;
}

/// An event to append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEvent<'a> {
    /// The stream.
    pub stream: &'a str,
    /// The key; of any length, not empty if present.
    pub key: Option<&'a str>,
    /// The encoded payload, stored as it is.
    pub payload: &'a [u8],
}

/// Where a read of a stream starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After<'a> {
    /// After this offset.
    Offset(i64),
    /// After the offset that this consumer saved, 0 if it never did.
    SavedBy(&'a str),
}

/// Streams of events.
#[facade]
pub trait Streams: Backend {
    /// Appends events and returns their offsets: dense per stream, in commit order, never
    /// used twice. Wakes the streams.
    fn append_events(
        &self,
        at: At<'_, Self::Conn>,
        events: &[NewEvent<'_>],
    ) -> impl Future<Output = Result<Results<i64>>> + Send;

    /// Events by ascending offset, at most `limit`, which is at least 1. In a transaction,
    /// [`After::SavedBy`] holds the consumer as [`Streams::find_offset`] does.
    fn read_events(
        &self,
        at: At<'_, Self::Conn>,
        stream: &str,
        after: After<'_>,
        limit: i64,
    ) -> impl Future<Output = Result<Vec<StreamEvent>>> + Send;

    /// A page for a subscription: events with an offset greater than `offset`, ascending, at
    /// most `limit`, and none after those whose [`StreamEvent::size`] adds up to `bytes`. Both
    /// are at least 1, so that there is one event if there is any. What is left out must not
    /// have been in memory.
    fn read_page(
        &self,
        stream: &str,
        offset: i64,
        limit: i64,
        bytes: i64,
    ) -> impl Future<Output = Result<Vec<StreamEvent>>> + Send;

    /// Saves a consumer's offset; `false` if it has saved this one or a greater one, or
    /// `offset` is below 1, and then nothing changed.
    fn save_offset(
        &self,
        at: At<'_, Self::Conn>,
        stream: &str,
        consumer: &str,
        offset: i64,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// The offset that a consumer saved, 0 if it never did. In a transaction it stays so until
    /// that ends: other transactions that save it or read it wait.
    fn find_offset(
        &self,
        at: At<'_, Self::Conn>,
        stream: &str,
        consumer: &str,
    ) -> impl Future<Output = Result<i64>> + Send;

    /// Does one step of a trim, a commit of its own: deletes events after the offset `after`,
    /// up to and including `horizon`, in their order; [`MOST_PER_STEP`] at most, and at least
    /// one of what there is. Wakes nobody.
    fn trim_events(
        &self,
        stream: &str,
        after: i64,
        horizon: i64,
    ) -> impl Future<Output = Result<TrimStep>> + Send;
}

/// Named locks.
#[facade]
pub trait Locks: Backend {
    /// Acquires the lock for `ttl` seconds if it is free or has lapsed, with a token greater
    /// than all before it for that name. An owner that holds it already gets the token of
    /// its acquisition and no longer lease. `None` if another holds it.
    fn acquire_lock(
        &self,
        name: &str,
        owner: &str,
        ttl: i64,
    ) -> impl Future<Output = Result<Option<i64>>> + Send;

    /// Sets the deadline of the acquisition with this token to now plus `ttl` seconds;
    /// `false` if it has lapsed or ended.
    fn renew_lock(
        &self,
        name: &str,
        token: i64,
        ttl: i64,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Sets the deadline of the acquisition with this token to now plus `ttl` seconds, also if
    /// it has lapsed; `false` if it was released or the lock was acquired since.
    fn resume_lock(
        &self,
        name: &str,
        token: i64,
        ttl: i64,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Ends the acquisition with this token; `false` if it has lapsed or ended.
    fn release_lock(&self, name: &str, token: i64) -> impl Future<Output = Result<bool>> + Send;
}

/// Wake-ups.
#[facade]
pub trait Notify: Backend {
    /// Wakes who listens to the channel.
    fn send_notify(
        &self,
        at: At<'_, Self::Conn>,
        channel: &str,
        payload: &[u8],
    ) -> impl Future<Output = Result<()>> + Send;

    /// A receiver of everything on this topic that commits after the future is ready.
    fn listen(&self, topic: Topic<'_>) -> impl Future<Output = Result<WakeReceiver>> + Send;

    /// The first size of an encoded payload in bytes that a notify refuses, if any.
    fn notify_limit(&self) -> Option<usize>;
}

/// A database that keeps the whole contract. Implemented by implementing its parts.
pub trait Engine: Queues + Streams + Locks + Notify + Schedules + Batches {}

impl<T: Queues + Streams + Locks + Notify + Schedules + Batches> Engine for T {}

/// An engine that is opened by a URL or a path.
pub trait Open: Engine {
    /// The URL schemes it answers to, without `:`; the empty one stands for a path.
    const SCHEMES: &'static [&'static str];

    /// Opens the database and brings its schema up to date.
    fn open(target: &str) -> impl Future<Output = Result<Self>> + Send;
}
