//! Queues: durable work, handed to one worker at a time.

mod job;

use std::sync::Arc;

use serde::Serialize;

use crate::engine::{
    At, ClaimEnd, ClaimRequest, Engine, NewJob, Outcome, Ready, Results, Stamps, Topic,
};
use crate::notify::WakeReceiver;
use crate::payload::Encoded;
use crate::{EnqueueOpts, OnConnection, QueueOpts, Result, Store, Tx, name, payload};

pub use job::{Job, JobHandle, JobState, Swept};

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
        opts.check()?;
        let payload = payload::encode(payload)?;
        let job = new_job(&self.name, &payload, &opts, self.stamps);
        only(self.store.insert_jobs(&[job]).await?)
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
        opts.check()?;
        let encoded = Encoded::new(payloads.iter())?;
        let job = |payload| new_job(&self.name, payload, &opts, self.stamps);
        let jobs: Vec<_> = encoded.iter().map(job).collect();
        self.store.live()?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.store.insert_jobs(&jobs).await?.into_vec())
    }

    /// Claims the next job, if one is ready. See [`Queue::claim_batch`].
    ///
    /// # Errors
    ///
    /// As for [`Queue::claim_batch`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have claimed the job; it is given back, or comes back when the claim
    /// lapses if its runtime ends first.
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
        name::check_local(worker)?;
        let request = self.request(worker, 1);
        let job = self.store.claim_jobs(request).await?.pop();
        Ok(job.map(|job| JobHandle::new(self.store.clone(), job)))
    }

    fn request<'r>(&'r self, worker: &'r str, limit: i64) -> ClaimRequest<'r> {
        ClaimRequest {
            queue: &self.name,
            worker,
            limit,
        }
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
    /// A dropped call may have claimed jobs; they are given back, or come back when the claims
    /// lapse if its runtime ends first.
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
        self.store.live()?;
        if n <= 0 {
            return Ok(Vec::new());
        }
        let claimed = self.store.claim_jobs(self.request(worker, n)).await?;
        let handle = |job| JobHandle::new(self.store.clone(), job);
        Ok(claimed.into_iter().map(handle).collect())
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
            .filter(|handle| handle.queue == *self.name)
            .map(end)
            .collect();
        self.store.live()?;
        if ends.is_empty() {
            return Ok(0);
        }
        let landed = self.store.finish_claims(&ends).await?;
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
    /// It works in bounded steps, each a commit of its own: other callers pass in between,
    /// however much there is to sweep.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database). The steps before the one that failed stay
    /// done; another call goes on from there.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves whole steps done, and the rest for the next call.
    ///
    /// ```
    /// # use alkstore::{Engine, Queue, Result};
    /// # async fn example<E: Engine>(queue: Queue<E>) -> Result<()> {
    /// let swept = queue.sweep_expired().await?;
    /// println!("{} expired, {} purged", swept.expired, swept.purged);
    /// # Ok(()) }
    /// ```
    pub async fn sweep_expired(&self) -> Result<Swept> {
        let mut swept = Swept::default();
        loop {
            let step = self.store.live()?.sweep_jobs(&self.name).await?;
            swept.expired += step.swept.expired;
            swept.purged += step.swept.purged;
            if !step.more {
                return Ok(swept);
            }
            tokio::task::yield_now().await;
        }
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
#[inline]
pub(crate) fn new_job<'a>(
    queue: &'a str,
    payload: &'a [u8],
    opts: &EnqueueOpts,
    stamps: Stamps,
) -> NewJob<'a> {
    let ready = match (opts.delay, opts.run_at) {
        (Some(delay), _) => Ready::In(delay),
        (None, Some(run_at)) => Ready::At(run_at),
        (None, None) => Ready::Now,
    };
    NewJob {
        queue,
        payload,
        ready,
        priority: opts.priority,
        expires: opts.expires,
        stamps: opts.over(stamps),
    }
}

/// The one result of a call with one item.
#[inline]
pub(crate) fn only<T: Copy>(results: Results<T>) -> Result<T> {
    match results.first() {
        Some(result) => Ok(*result),
        None => Err(no_result()),
    }
}

#[cold]
fn no_result() -> crate::Error {
    crate::Error::database("the engine broke its contract", "no result for an item")
}
