//! The outbox: messages that leave the database exactly if the business write committed.

use std::fmt::{self, Display};
use std::future::Future;
use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use serde::Serialize;

use crate::engine::Engine;
use crate::foreign;
use crate::notify::WakeReceiver;
use crate::{EnqueueOpts, Job, JobHandle, Queue, QueueOpts, Result, Store, name};

impl<E: Engine> Store<E> {
    /// A handle on an outbox. Nothing is created: an outbox is a name, and its messages are
    /// jobs in a queue of its own that only the outbox reaches.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName),
    /// [`Error::ReservedName`](crate::Error::ReservedName).
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Result, Store};
    /// # async fn send(invoice: String) -> Result<(), std::io::Error> { Ok(()) }
    /// # async fn example<E: Engine>(store: Store<E>) -> Result<()> {
    /// let mut tx = store.begin_tx().await?;
    /// tx.outbox_enqueue_tx("invoices", EnqueueOpts::default(), &"invoice 7").await?;
    /// tx.commit().await?;
    ///
    /// let outbox = store.outbox("invoices")?;
    /// while outbox
    ///     .run_once("sender-1", async |message| {
    ///         let invoice = message.payload_as().map_err(std::io::Error::other)?;
    ///         send(invoice).await
    ///     })
    ///     .await?
    /// {}
    /// # Ok(()) }
    /// ```
    pub fn outbox(&self, name: &str) -> Result<Outbox<E>> {
        name::check_shared(name)?;
        let stamps = QueueOpts::outbox().stamps()?;
        let queue = Queue::new(self.clone(), &name::outbox_queue(name), stamps);
        Ok(Outbox {
            queue,
            name: name.into(),
        })
    }
}

/// A handle on an outbox, cheap to clone.
pub struct Outbox<E> {
    queue: Queue<E>,
    name: Arc<str>,
}

impl<E> fmt::Debug for Outbox<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outbox").field(&self.name).finish()
    }
}

impl<E: Engine> Clone for Outbox<E> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            name: Arc::clone(&self.name),
        }
    }
}

impl<E: Engine> Outbox<E> {
    /// The outbox's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Enqueues a message, committed when this returns, and returns its job's id. With a
    /// business write use [`Tx::outbox_enqueue_tx`](crate::Tx::outbox_enqueue_tx) instead.
    ///
    /// # Errors
    ///
    /// As for [`Queue::enqueue`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has enqueued the message or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Outbox, Result};
    /// # async fn example<E: Engine>(outbox: Outbox<E>) -> Result<()> {
    /// outbox.enqueue(&"invoice 7", EnqueueOpts::default()).await?;
    /// # Ok(()) }
    /// ```
    pub async fn enqueue<P>(&self, payload: &P, opts: EnqueueOpts) -> Result<i64>
    where
        P: Serialize + Sync + ?Sized,
    {
        self.queue.enqueue(payload, opts).await
    }

    /// Claims one message and delivers it: `Ok` acks it; `Err` and a panic let it be tried
    /// again later, with the error as its last error, until its attempts are used up.
    /// `false` if there was nothing to do. An error that cannot be formatted, or panics
    /// meanwhile, is a failed delivery like any other.
    ///
    /// The claim holds 60 seconds from now. A delivery that takes longer calls
    /// [`Delivery::heartbeat`], or it is delivered again meanwhile. Deliveries are at least
    /// once: make them idempotent.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName) for the worker;
    /// [`Error::Database`](crate::Error::Database); then the message is delivered again when
    /// its claim lapses.
    ///
    /// # Cancel safety
    ///
    /// A dropped call drops the delivery; the message comes back when its claim lapses.
    ///
    /// ```
    /// # use alkstore::{Engine, Outbox, Result};
    /// # async fn example<E: Engine>(outbox: Outbox<E>) -> Result<()> {
    /// let did_one = outbox
    ///     .run_once("sender-1", async |message| {
    ///         println!("{}", message.payload_as::<String>()?);
    ///         Ok::<(), alkstore::Error>(())
    ///     })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub async fn run_once<D, F, X>(&self, worker: &str, delivery: D) -> Result<bool>
    where
        D: FnOnce(Delivery<E>) -> F + Send,
        F: Future<Output = Result<(), X>> + Send,
        X: Display,
    {
        let Some(job) = self.queue.claim_one(worker).await? else {
            return Ok(false);
        };
        let job = Arc::new(job.shown_in(&self.name));
        let attempt = AssertUnwindSafe(async { delivery(Delivery(Arc::clone(&job))).await });
        let failure = match attempt.catch_unwind().await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(foreign::error_text(error)),
            Err(panic) => Some(format!(
                "the delivery panicked: {}",
                foreign::panic_text(panic)
            )),
        };
        match failure {
            None => job.end_ack().await?,
            Some(error) => job.end_retry(&error, None).await?,
        };
        Ok(true)
    }

    /// The message's job, live or dead, as it is now; its queue is the outbox. In a
    /// transaction use [`Tx::outbox_get_job_tx`](crate::Tx::outbox_get_job_tx).
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
    /// # use alkstore::{Engine, Outbox, Result};
    /// # async fn example<E: Engine>(outbox: Outbox<E>, id: i64) -> Result<()> {
    /// let delivered = outbox.get_job(id).await?.is_none();
    /// # Ok(()) }
    /// ```
    pub async fn get_job(&self, id: i64) -> Result<Option<Job>> {
        let job = self.queue.get_job(id).await?;
        Ok(job.map(|job| shown_in(job, &self.name)))
    }

    /// Sweeps the outbox's queue, as [`Queue::sweep_expired`] does.
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
    /// # use alkstore::{Engine, Outbox, Result};
    /// # async fn example<E: Engine>(outbox: Outbox<E>) -> Result<()> {
    /// let swept = outbox.sweep_expired().await?;
    /// # Ok(()) }
    /// ```
    pub async fn sweep_expired(&self) -> Result<crate::Swept> {
        self.queue.sweep_expired().await
    }

    /// A receiver of this outbox's wakes, as [`Queue::listen`] gives one. They carry the
    /// outbox's name.
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
    /// # use alkstore::{Engine, Outbox, Result};
    /// # async fn example<E: Engine>(outbox: Outbox<E>) -> Result<()> {
    /// outbox.listen().await?.recv().await;
    /// # Ok(()) }
    /// ```
    pub async fn listen(&self) -> Result<WakeReceiver> {
        let wakes = self.queue.listen().await?;
        Ok(wakes.shown_as(Arc::clone(&self.name)))
    }
}

/// A message being delivered. It dereferences to its [`Job`], whose queue is the outbox.
pub struct Delivery<E>(Arc<JobHandle<E>>);

impl<E> fmt::Debug for Delivery<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Delivery").field(&**self.0).finish()
    }
}

impl<E> Deref for Delivery<E> {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.0
    }
}

impl<E: Engine> Delivery<E> {
    /// Sets the claim's deadline to now plus `extend` seconds, as [`JobHandle::heartbeat`].
    ///
    /// # Errors
    ///
    /// As for [`JobHandle::heartbeat`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has moved the deadline or has not.
    ///
    /// ```
    /// # use alkstore::{Delivery, Engine, Result};
    /// # async fn example<E: Engine>(message: Delivery<E>) -> Result<()> {
    /// let still_mine = message.heartbeat(60).await?;
    /// # Ok(()) }
    /// ```
    pub async fn heartbeat(&self, extend: i64) -> Result<bool> {
        self.0.heartbeat(extend).await
    }
}

/// The job as who uses the outbox sees it.
pub(crate) fn shown_in(mut job: Job, outbox: &str) -> Job {
    outbox.clone_into(&mut job.queue);
    job
}
