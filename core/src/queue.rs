//! Queues: durable work, handed to one worker at a time.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backoff;
use crate::engine::{
    At, ClaimEnd, ClaimId, ClaimRequest, Engine, NewJob, Outcome, Ready, Stamps, Topic,
};
use crate::notify::WakeReceiver;
use crate::options::at_least;
use crate::{EnqueueOpts, OnConnection, QueueOpts, Result, Store, Tx, name, payload};

/// What a job without an error text of its own died of.
const FAILED: &str = "failed";

impl<E: Engine> Store<E> {
    /// A handle on a queue. Nothing is created: a queue is a name.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName),
    /// [`Error::ReservedName`](crate::Error::ReservedName);
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a visibility timeout or
    /// max attempts below 1, a negative backoff base or retention.
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, QueueOpts, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>) -> Result<()> {
    /// let mail = store.queue("mail", QueueOpts::default())?;
    /// mail.enqueue(&"hello", EnqueueOpts::default()).await?;
    /// if let Some(job) = mail.claim_one("worker-1").await? {
    ///     println!("sending {}", job.payload_as::<String>()?);
    ///     job.ack().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn queue(&self, name: &str, opts: QueueOpts) -> Result<Queue<E>> {
        name::check_shared(name)?;
        Ok(Queue::new(self.clone(), name, opts.stamps()?))
    }
}

/// A handle on a queue, cheap to clone.
#[derive(Debug)]
pub struct Queue<E> {
    store: Store<E>,
    name: Arc<str>,
    stamps: Stamps,
}

impl<E: Engine> Clone for Queue<E> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            name: Arc::clone(&self.name),
            stamps: self.stamps,
        }
    }
}

impl<E: Engine> Queue<E> {
    pub(crate) fn new(store: Store<E>, name: &str, stamps: Stamps) -> Self {
        Self {
            store,
            name: name.into(),
            stamps,
        }
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Enqueues a job, committed when this returns, and returns its id.
    ///
    /// # Errors
    ///
    /// [`Error::Codec`](crate::Error::Codec);
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for `max_attempts` below 1;
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has enqueued the job or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Queue, Result};
    /// # async fn example<E: Engine>(queue: Queue<E>) -> Result<()> {
    /// let id = queue.enqueue(&[1, 2, 3], EnqueueOpts::default().priority(5)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn enqueue<P>(&self, payload: &P, opts: EnqueueOpts) -> Result<i64>
    where
        P: Serialize + Sync + ?Sized,
    {
        let payload = payload::encode(payload)?;
        let job = new_job(&self.name, &payload, &opts, self.stamps)?;
        let ids = self.store.live()?.insert_jobs(At::Auto, &[job]).await?;
        only(ids)
    }

    /// Enqueues a job in a transaction, with this queue's options, and returns its id. The
    /// queue wakes at the commit. Without a handle, [`Tx::enqueue_tx`] does the same with the
    /// plain options of a queue.
    ///
    /// # Errors
    ///
    /// As for [`Queue::enqueue`].
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Queue, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>, queue: Queue<E>) -> Result<()> {
    /// let mut tx = store.begin_tx().await?;
    /// queue.enqueue_tx(&mut tx, &"welcome", EnqueueOpts::default()).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn enqueue_tx<P, T>(
        &self,
        tx: &mut Tx<E, T>,
        payload: &P,
        opts: EnqueueOpts,
    ) -> Result<i64>
    where
        P: Serialize + Sync + ?Sized,
        T: OnConnection<E::Conn>,
    {
        tx.insert(&self.name, self.stamps, &opts, payload).await
    }

    /// Enqueues jobs in one commit, all with the same options, and returns their ids in the
    /// order of the payloads. All of them are enqueued or none.
    ///
    /// # Errors
    ///
    /// As for [`Queue::enqueue`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has enqueued all jobs or none.
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Queue, Result};
    /// # async fn example<E: Engine>(queue: Queue<E>) -> Result<()> {
    /// let ids = queue.enqueue_batch(&["a", "b"], EnqueueOpts::default()).await?;
    /// assert_eq!(ids.len(), 2);
    /// # Ok(()) }
    /// ```
    pub async fn enqueue_batch<P>(&self, payloads: &[P], opts: EnqueueOpts) -> Result<Vec<i64>>
    where
        P: Serialize + Sync,
    {
        let encoded = payloads
            .iter()
            .map(payload::encode)
            .collect::<Result<Vec<_>>>()?;
        let jobs = encoded
            .iter()
            .map(|payload| new_job(&self.name, payload, &opts, self.stamps))
            .collect::<Result<Vec<_>>>()?;
        let engine = self.store.live()?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        engine.insert_jobs(At::Auto, &jobs).await
    }

    /// Claims the next job, if one is ready. See [`Queue::claim_batch`].
    ///
    /// # Errors
    ///
    /// As for [`Queue::claim_batch`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have claimed the job; it comes back when the claim lapses.
    ///
    /// ```
    /// # use alkstore::{Engine, Queue, Result};
    /// # async fn example<E: Engine>(queue: Queue<E>) -> Result<()> {
    /// while let Some(job) = queue.claim_one("worker-1").await? {
    ///     job.ack().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn claim_one(&self, worker: &str) -> Result<Option<JobHandle<E>>> {
        Ok(self.claim_batch(worker, 1).await?.pop())
    }

    /// Claims up to `n` jobs, by priority from high to low, then `run_at`, then id.
    ///
    /// Each goes to this claim alone until its deadline, `visibility_timeout_s` from now.
    /// Each claim, of a lapsed one too, adds one to the job's attempts. Zero or a negative
    /// `n` claims nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName) for the worker;
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have claimed jobs; they come back when the claims lapse.
    ///
    /// ```
    /// # use alkstore::{Engine, Queue, Result};
    /// # async fn example<E: Engine>(queue: Queue<E>) -> Result<()> {
    /// let jobs = queue.claim_batch("worker-1", 100).await?;
    /// let done = queue.ack_batch(&jobs).await?;
    /// # Ok(()) }
    /// ```
    pub async fn claim_batch(&self, worker: &str, n: i64) -> Result<Vec<JobHandle<E>>> {
        name::check_local(worker)?;
        let engine = self.store.live()?;
        if n <= 0 {
            return Ok(Vec::new());
        }
        let request = ClaimRequest {
            queue: &self.name,
            worker,
            limit: n,
        };
        let claimed = engine.claim_jobs(&[request]).await?;
        let handle = |job| JobHandle {
            store: self.store.clone(),
            job,
        };
        Ok(claimed.into_iter().flatten().map(handle).collect())
    }

    /// Acks claims in one commit and returns how many landed. Each is judged by itself, as
    /// by [`JobHandle::ack`].
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database); then none landed.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has acked all claims that can be or none.
    ///
    /// ```
    /// # use alkstore::{Engine, Queue, Result};
    /// # async fn example<E: Engine>(queue: Queue<E>) -> Result<()> {
    /// let jobs = queue.claim_batch("worker-1", 10).await?;
    /// assert_eq!(queue.ack_batch(&jobs).await?, jobs.len());
    /// # Ok(()) }
    /// ```
    pub async fn ack_batch<'h, I>(&self, claims: I) -> Result<usize>
    where
        I: IntoIterator<Item = &'h JobHandle<E>>,
        E: 'h,
    {
        let end = |handle: &'h JobHandle<E>| ClaimEnd {
            claim: handle.claim(),
            outcome: Outcome::Done,
        };
        let ends: Vec<_> = claims
            .into_iter()
            .filter(|handle| handle.job.queue == *self.name)
            .map(end)
            .collect();
        let engine = self.store.live()?;
        if ends.is_empty() {
            return Ok(0);
        }
        let landed = engine.finish_claims(At::Auto, &ends).await?;
        Ok(landed.into_iter().filter(|landed| *landed).count())
    }

    /// Deletes a live job, whoever holds it; `false` if there is none of this id. A worker
    /// that holds it is not interrupted: its handle's operations return `false`.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has cancelled the job or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, Queue, Result};
    /// # async fn example<E: Engine>(queue: Queue<E>, id: i64) -> Result<()> {
    /// let was_live = queue.cancel(id).await?;
    /// # Ok(()) }
    /// ```
    pub async fn cancel(&self, id: i64) -> Result<bool> {
        self.store.live()?.cancel_job(&self.name, id).await
    }

    /// The job of this id, live or dead, as it is now.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// Nothing changes.
    ///
    /// ```
    /// # use alkstore::{Engine, JobState, Queue, Result};
    /// # async fn example<E: Engine>(queue: Queue<E>, id: i64) -> Result<()> {
    /// if let Some(job) = queue.get_job(id).await? && job.state == JobState::Dead {
    ///     println!("died of {:?}", job.last_error);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn get_job(&self, id: i64) -> Result<Option<Job>> {
        self.store.live()?.find_job(At::Auto, &self.name, id).await
    }

    /// Moves every live job past its expiry to dead and deletes every dead job past its
    /// retention. Nothing else does the latter: call it as often as suits.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has swept or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, Queue, Result};
    /// # async fn example<E: Engine>(queue: Queue<E>) -> Result<()> {
    /// let swept = queue.sweep_expired().await?;
    /// println!("{} expired, {} purged", swept.expired, swept.purged);
    /// # Ok(()) }
    /// ```
    pub async fn sweep_expired(&self) -> Result<Swept> {
        self.store.live()?.sweep_jobs(&self.name).await
    }

    /// A receiver of this queue's wakes: an enqueue wakes it, with no notify call, and so
    /// does a job that is ready again. A delayed job wakes it when it is enqueued, not when
    /// it becomes ready, and a lapsed claim does not: wait with
    /// [`recv_timeout`](WakeReceiver::recv_timeout).
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves nothing behind.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use alkstore::{Engine, Queue, Result};
    /// # async fn example<E: Engine>(queue: Queue<E>) -> Result<()> {
    /// let mut wakes = queue.listen().await?;
    /// loop {
    ///     while let Some(job) = queue.claim_one("worker-1").await? {
    ///         job.ack().await?;
    ///     }
    ///     wakes.recv_timeout(Duration::from_secs(5)).await?;
    /// }
    /// # }
    /// ```
    pub async fn listen(&self) -> Result<WakeReceiver> {
        self.store.live()?.listen(Topic::queue(&self.name)).await
    }
}

/// A job for an engine: the options resolved, the payload encoded.
pub(crate) fn new_job<'a>(
    queue: &'a str,
    payload: &'a [u8],
    opts: &EnqueueOpts,
    stamps: Stamps,
) -> Result<NewJob<'a>> {
    let ready = match (opts.delay, opts.run_at) {
        (Some(delay), _) => Ready::In(delay),
        (None, Some(run_at)) => Ready::At(run_at),
        (None, None) => Ready::Now,
    };
    let stamps = opts.over(stamps)?;
    Ok(NewJob {
        queue,
        payload,
        ready,
        priority: opts.priority,
        expires: opts.expires,
        stamps,
    })
}

/// The one result of a call with one item.
pub(crate) fn only<T>(results: Vec<T>) -> Result<T> {
    results.into_iter().next().ok_or_else(|| {
        crate::Error::database("the engine broke its contract", "no result for an item")
    })
}

/// Where a job is in its life. An acked or cancelled job is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Waiting for a claim, or for its time.
    Pending,
    /// Claimed; the claim may have lapsed.
    Processing,
    /// Out of attempts, failed or expired, and kept to be looked at.
    Dead,
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Dead => "dead",
        })
    }
}

/// A job as it was when it was read. Times are unix seconds. It is a value; only the
/// [`JobHandle`] of a claim can act on the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its id, unique in the database and never used again.
    pub id: i64,
    /// Its queue.
    pub queue: String,
    /// Where it is in its life.
    pub state: JobState,
    /// The encoded payload, byte for byte as it was enqueued.
    pub payload: Vec<u8>,
    /// Higher is claimed first.
    pub priority: i64,
    /// When it is ready.
    pub run_at: i64,
    /// How often it was claimed.
    pub attempts: i64,
    /// How often it may be claimed.
    pub max_attempts: i64,
    /// Who holds it, or for a dead job held it last.
    pub worker_id: Option<String>,
    /// When it was last claimed.
    pub claimed_at: Option<i64>,
    /// The claim's deadline: it holds up to and including this second. `None` without a claim.
    pub claim_expires_at: Option<i64>,
    /// When it was enqueued.
    pub created_at: i64,
    /// When it expires.
    pub expires_at: Option<i64>,
    /// How long a claim of it holds, in seconds.
    pub visibility_timeout_s: i64,
    /// The base of its retry delay, in seconds.
    pub backoff_base_s: i64,
    /// How long it is kept once it is dead, in seconds; `None` is for ever.
    pub dead_letter_retention_s: Option<i64>,
    /// What the last failed attempt said.
    pub last_error: Option<String>,
    /// When it died.
    pub died_at: Option<i64>,
}

impl Job {
    /// Decodes the payload.
    ///
    /// # Errors
    ///
    /// [`Error::Codec`](crate::Error::Codec) if the bytes are not a `T`.
    ///
    /// ```
    /// # fn example(job: alkstore::Job) -> alkstore::Result<()> {
    /// let numbers: Vec<u8> = job.payload_as()?;
    /// # Ok(()) }
    /// ```
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T> {
        payload::decode(&self.payload)
    }
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Live jobs that went to dead because they were past their expiry.
    pub expired: u64,
    /// Dead jobs that were deleted because they were past their retention.
    pub purged: u64,
}

/// A claim of one job. Its operations land only while the job is processing, held by this
/// very claim, and the deadline has not passed; otherwise they return `false` and nothing
/// changes. Dropping it does nothing: the job comes back when the claim lapses.
///
/// It dereferences to the [`Job`] as it was claimed.
#[derive(Debug)]
pub struct JobHandle<E> {
    store: Store<E>,
    job: Job,
}

impl<E> Deref for JobHandle<E> {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}

impl<E: Engine> JobHandle<E> {
    /// The job as it was claimed.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    pub(crate) fn claim(&self) -> ClaimId<'_> {
        ClaimId {
            queue: &self.job.queue,
            id: self.job.id,
            attempt: self.job.attempts,
        }
    }

    /// The job is done: deletes it. To let the ack commit with business writes, use
    /// [`Tx::ack_tx`](crate::Tx::ack_tx).
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has acked or has not; if not, the job comes back.
    ///
    /// ```
    /// # use alkstore::{Engine, JobHandle, Result};
    /// # async fn example<E: Engine>(job: JobHandle<E>) -> Result<()> {
    /// if !job.ack().await? {
    ///     println!("too late: somebody else may be doing it again");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn ack(self) -> Result<bool> {
        self.end_ack().await
    }

    /// The attempt failed: the job is ready again after `delay` seconds, or with no attempts
    /// left it is dead, with `error` as its last error. Without a delay it is random, between
    /// half the cap and the cap, which is `backoff_base_s` doubled with each attempt, at most
    /// an hour.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has landed or has not; if not, the job comes back when the claim lapses.
    ///
    /// ```
    /// # use alkstore::{Engine, JobHandle, Result};
    /// # async fn example<E: Engine>(job: JobHandle<E>) -> Result<()> {
    /// job.retry("the mail server is down", None).await?;
    /// # Ok(()) }
    /// ```
    pub async fn retry(self, error: &str, delay: Option<i64>) -> Result<bool> {
        self.end_retry(error, delay).await
    }
    /// The job cannot be done: it is dead at once, with `error`, or "failed", as its last
    /// error.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has landed or has not; if not, the job comes back when the claim lapses.
    ///
    /// ```
    /// # use alkstore::{Engine, JobHandle, Result};
    /// # async fn example<E: Engine>(job: JobHandle<E>) -> Result<()> {
    /// job.fail(Some("no such recipient")).await?;
    /// # Ok(()) }
    /// ```
    pub async fn fail(self, error: Option<&str>) -> Result<bool> {
        let error = &storable(error.unwrap_or(FAILED));
        self.end(Outcome::Dead { error }).await
    }

    /// Sets the claim's deadline to now plus `extend` seconds, however much was left.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for `extend` below 1;
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has moved the deadline or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, JobHandle, Result};
    /// # async fn example<E: Engine>(job: JobHandle<E>) -> Result<()> {
    /// assert!(job.heartbeat(60).await?, "the claim has lapsed: stop working");
    /// # Ok(()) }
    /// ```
    pub async fn heartbeat(&self, extend: i64) -> Result<bool> {
        at_least("extend", extend, 1)?;
        self.store.live()?.extend_claim(&self.claim(), extend).await
    }

    pub(crate) async fn end_ack(&self) -> Result<bool> {
        self.end(Outcome::Done).await
    }

    pub(crate) async fn end_retry(&self, error: &str, delay: Option<i64>) -> Result<bool> {
        let error = &storable(error);
        if self.job.attempts >= self.job.max_attempts {
            return self.end(Outcome::Dead { error }).await;
        }
        let delay =
            delay.unwrap_or_else(|| backoff::delay(self.job.backoff_base_s, self.job.attempts));
        self.end(Outcome::Again { delay, error }).await
    }

    async fn end(&self, outcome: Outcome<'_>) -> Result<bool> {
        let end = ClaimEnd {
            claim: self.claim(),
            outcome,
        };
        only(self.store.live()?.finish_claims(At::Auto, &[end]).await?)
    }
}

/// An error text that every database can store: text columns of Postgres hold no NUL.
fn storable(error: &str) -> String {
    error.replace('\0', "\u{fffd}")
}
