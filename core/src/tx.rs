//! Transactions: coordination and business writes commit together or not at all.

use serde::Serialize;

use crate::engine::{After, At, Backend, ClaimEnd, Engine, Outcome, Stamps, Topic, Transaction};
use crate::engine::{NewEvent, Wakes};
use crate::queue::{new_job, only};
use crate::{
    EnqueueOpts, Error, Job, JobHandle, QueueOpts, Result, Store, StreamEvent, name, notify,
    payload, stream,
};

impl<E: Engine> Store<E> {
    /// Begins a transaction that may write.
    ///
    /// On SQLite there is one writer at a time: until the transaction ends, every other write
    /// to the database waits. An auto-commit method called while holding a `Tx` in the same
    /// task ends in a transient error after the busy timeout.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], transient where the writer or a connection is not free in time.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves no transaction open.
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>) -> Result<()> {
    /// let mut tx = store.begin_tx().await?;
    /// // Business writes go through tx.connection().
    /// tx.enqueue_tx("mail", EnqueueOpts::default(), &"welcome").await?;
    /// tx.publish_tx("users", &"signed up").await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn begin_tx(&self) -> Result<Tx<E>> {
        let tx = self.live()?.begin().await?;
        Ok(Tx::new(self.clone(), tx))
    }

    /// Runs `body` in a transaction: `Ok` commits; `Err`, a panic or a dropped future rolls
    /// back.
    ///
    /// # Errors
    ///
    /// What `body` returns, and [`Error::Database`] from beginning and committing, turned
    /// into the body's error type.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has committed everything or nothing.
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>) -> Result<()> {
    /// let id = store
    ///     .with_tx(async |tx| tx.enqueue_tx("mail", EnqueueOpts::default(), &"welcome").await)
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub async fn with_tx<T, X, F>(&self, body: F) -> Result<T, X>
    where
        F: AsyncFnOnce(&mut Tx<E>) -> Result<T, X>,
        X: From<Error>,
    {
        let mut tx = self.begin_tx().await?;
        match body(&mut tx).await {
            Ok(value) => {
                tx.commit().await?;
                Ok(value)
            }
            Err(error) => {
                // The body's error says more than a rollback that failed as well.
                tx.rollback().await.ok();
                Err(error)
            }
        }
    }

    /// Joins the transaction that the application began itself with its own driver: the same
    /// methods run in it, and commit or rollback stay with the application.
    ///
    /// `connection` is the driver's connection in that transaction; on a boxed store also the
    /// driver's transaction or pooled connection itself. If an operation fails or its future
    /// is dropped half-way, roll the transaction back.
    ///
    /// On SQLite a commit of the application's is noticed by watching the database, as one of
    /// another process would be, so wakes come a little later than for a [`Tx`].
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>, connection: &mut E::Conn) -> Result<()> {
    /// store.join_tx(connection).enqueue_tx("mail", EnqueueOpts::default(), &"welcome").await?;
    /// # Ok(()) }
    /// ```
    pub fn join_tx<'c>(&self, connection: &'c mut E::Conn) -> JoinedTx<'c, E> {
        Tx::new(self.clone(), Joined(connection))
    }
}

/// A transaction: the library's own, or with another `T` one that the application began.
///
/// Dropping it without a commit rolls it back. An own transaction in which an operation's
/// future was dropped before it finished can only be rolled back.
#[derive(Debug)]
pub struct Tx<E: Engine, T = <E as Backend>::Tx> {
    store: Store<E>,
    inner: T,
    wakes: Wakes,
    /// An operation has begun and its future has not finished.
    in_doubt: bool,
}

/// A transaction that the application began, see [`Store::join_tx`].
pub type JoinedTx<'c, E> = Tx<E, Joined<'c, <E as Backend>::Conn>>;

/// The connection of a transaction that the application began.
#[derive(Debug)]
pub struct Joined<'c, C: ?Sized>(&'c mut C);

/// What a [`Tx`] runs on.
pub trait OnConnection<C: ?Sized>: Send {
    /// The driver's connection.
    fn on(&mut self) -> &mut C;
}

impl<T: Transaction> OnConnection<T::Conn> for T {
    fn on(&mut self) -> &mut T::Conn {
        self.conn()
    }
}

impl<C: ?Sized + Send> OnConnection<C> for Joined<'_, C> {
    fn on(&mut self) -> &mut C {
        self.0
    }
}

/// An operation that has begun: what it needs, and the mark that it has not finished.
struct Running<'t, E: Engine> {
    engine: &'t E,
    at: At<'t, E::Conn>,
    wakes: &'t mut Wakes,
    in_doubt: &'t mut bool,
}

impl<E: Engine, T: OnConnection<E::Conn>> Tx<E, T> {
    fn new(store: Store<E>, inner: T) -> Self {
        Self {
            store,
            inner,
            wakes: Wakes::default(),
            in_doubt: false,
        }
    }

    fn start(&mut self) -> Result<Running<'_, E>> {
        if self.in_doubt {
            return Err(half_done("the operation was not started"));
        }
        let engine = self.store.live()?;
        self.in_doubt = true;
        let (wakes, in_doubt) = (&mut self.wakes, &mut self.in_doubt);
        Ok(Running {
            engine,
            at: At::In(self.inner.on()),
            wakes,
            in_doubt,
        })
    }

    /// The driver's connection, for the business writes. On a boxed store it is a `dyn Any`
    /// to downcast to the driver's connection type.
    ///
    /// Commit and roll back through this transaction, not by SQL.
    ///
    /// ```
    /// # use alkstore::{BoxedStore, Result};
    /// # struct SqliteConnection;
    /// # async fn example(store: BoxedStore) -> Result<()> {
    /// let mut tx = store.begin_tx().await?;
    /// if let Some(sqlite) = tx.connection().downcast_mut::<SqliteConnection>() {
    ///     // Run business SQL on it.
    /// }
    /// # Ok(()) }
    /// ```
    pub fn connection(&mut self) -> &mut E::Conn {
        self.inner.on()
    }

    /// Enqueues a job with the plain options of a queue, and returns its id. The queue wakes
    /// at the commit. For other options see [`Queue::enqueue_tx`](crate::Queue::enqueue_tx).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::ReservedName`]; [`Error::Codec`];
    /// [`Error::InvalidArgument`] for `max_attempts` below 1; [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Result, Tx};
    /// # async fn example<E: Engine>(tx: &mut Tx<E>) -> Result<()> {
    /// let id = tx.enqueue_tx("mail", EnqueueOpts::default(), &"welcome").await?;
    /// # Ok(()) }
    /// ```
    pub async fn enqueue_tx<P>(
        &mut self,
        queue: &str,
        opts: EnqueueOpts,
        payload: &P,
    ) -> Result<i64>
    where
        P: Serialize + Sync + ?Sized,
    {
        name::check_shared(queue)?;
        self.insert(queue, QueueOpts::default().stamps()?, &opts, payload)
            .await
    }

    /// Enqueues a message with the options of an outbox, and returns its job's id. The
    /// outbox wakes at the commit.
    ///
    /// # Errors
    ///
    /// As for [`Tx::enqueue_tx`].
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Result, Tx};
    /// # async fn example<E: Engine>(tx: &mut Tx<E>) -> Result<()> {
    /// tx.outbox_enqueue_tx("invoices", EnqueueOpts::default(), &"invoice 7").await?;
    /// # Ok(()) }
    /// ```
    pub async fn outbox_enqueue_tx<P>(
        &mut self,
        outbox: &str,
        opts: EnqueueOpts,
        payload: &P,
    ) -> Result<i64>
    where
        P: Serialize + Sync + ?Sized,
    {
        name::check_shared(outbox)?;
        let queue = name::outbox_queue(outbox);
        self.insert(&queue, QueueOpts::outbox().stamps()?, &opts, payload)
            .await
    }

    pub(crate) async fn insert<P>(
        &mut self,
        queue: &str,
        stamps: Stamps,
        opts: &EnqueueOpts,
        payload: &P,
    ) -> Result<i64>
    where
        P: Serialize + Sync + ?Sized,
    {
        let payload = payload::encode(payload)?;
        let job = new_job(queue, &payload, opts, stamps)?;
        let run = self.start()?;
        run.wakes.add(Topic::queue(queue));
        let ids = run.engine.insert_jobs(run.at, &[job]).await;
        *run.in_doubt = false;
        only(ids?)
    }

    /// Publishes an event and returns its offset. Other publishers of the stream wait until
    /// this transaction ends; the stream wakes at the commit.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::ReservedName`]; [`Error::Codec`]; [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Tx};
    /// # async fn example<E: Engine>(tx: &mut Tx<E>) -> Result<()> {
    /// let offset = tx.publish_tx("orders", &"created").await?;
    /// # Ok(()) }
    /// ```
    pub async fn publish_tx<P>(&mut self, stream: &str, payload: &P) -> Result<i64>
    where
        P: Serialize + Sync + ?Sized,
    {
        self.publish_with_key_tx(stream, None, payload).await
    }

    /// Publishes an event with a key and returns its offset.
    ///
    /// # Errors
    ///
    /// As for [`Tx::publish_tx`]; [`Error::InvalidName`] also for a key that is blank, longer
    /// than 255 bytes or has a NUL character.
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Tx};
    /// # async fn example<E: Engine>(tx: &mut Tx<E>) -> Result<()> {
    /// tx.publish_with_key_tx("orders", Some("customer-7"), &"created").await?;
    /// # Ok(()) }
    /// ```
    pub async fn publish_with_key_tx<P>(
        &mut self,
        stream: &str,
        key: Option<&str>,
        payload: &P,
    ) -> Result<i64>
    where
        P: Serialize + Sync + ?Sized,
    {
        name::check_shared(stream)?;
        key.map_or(Ok(()), name::check_local)?;
        let payload = payload::encode(payload)?;
        let event = NewEvent {
            stream,
            key,
            payload: &payload,
        };
        let run = self.start()?;
        run.wakes.add(Topic::stream(stream));
        let offsets = run.engine.append_events(run.at, &[event]).await;
        *run.in_doubt = false;
        only(offsets?)
    }

    /// Wakes who listens to `channel`, at the commit or not at all.
    ///
    /// # Errors
    ///
    /// As for [`Store::notify`].
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Tx};
    /// # async fn example<E: Engine>(tx: &mut Tx<E>) -> Result<()> {
    /// tx.notify_tx("prices", &"changed").await?;
    /// # Ok(()) }
    /// ```
    pub async fn notify_tx<P>(&mut self, channel: &str, payload: &P) -> Result<()>
    where
        P: Serialize + Sync + ?Sized,
    {
        let payload = notify::encode(self.store.live()?, channel, payload)?;
        let run = self.start()?;
        run.wakes.add(Topic::channel(channel));
        let done = run.engine.send_notify(run.at, channel, &payload).await;
        *run.in_doubt = false;
        done
    }

    /// Saves how far a consumer has come: effects in this transaction are then exactly once.
    /// A lower offset than the saved one is ignored.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::ReservedName`]; [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, StreamEvent, Tx};
    /// # async fn example<E: Engine>(tx: &mut Tx<E>, event: StreamEvent) -> Result<()> {
    /// tx.save_offset_tx(&event.stream, "billing", event.offset).await?;
    /// # Ok(()) }
    /// ```
    pub async fn save_offset_tx(
        &mut self,
        stream: &str,
        consumer: &str,
        offset: i64,
    ) -> Result<()> {
        name::check_shared(stream)?;
        name::check_local(consumer)?;
        let run = self.start()?;
        let done = run
            .engine
            .save_offset(run.at, stream, consumer, offset)
            .await;
        *run.in_doubt = false;
        done
    }

    /// Acks a claim with this transaction: the job's effects and its end commit together.
    /// `false` means that the claim has lapsed and somebody else may do the job: roll back.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, JobHandle, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>, job: JobHandle<E>) -> Result<()> {
    /// let mut tx = store.begin_tx().await?;
    /// // The job's business writes go here.
    /// if tx.ack_tx(&job).await? { tx.commit().await } else { tx.rollback().await }
    /// # }
    /// ```
    pub async fn ack_tx(&mut self, job: &JobHandle<E>) -> Result<bool> {
        let end = ClaimEnd {
            claim: job.claim(),
            outcome: Outcome::Done,
        };
        let run = self.start()?;
        let landed = run.engine.finish_claims(run.at, &[end]).await;
        *run.in_doubt = false;
        only(landed?)
    }

    /// The job of this id, live or dead, as this transaction sees it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::ReservedName`]; [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Tx};
    /// # async fn example<E: Engine>(tx: &mut Tx<E>, id: i64) -> Result<()> {
    /// let job = tx.get_job_tx("mail", id).await?;
    /// # Ok(()) }
    /// ```
    pub async fn get_job_tx(&mut self, queue: &str, id: i64) -> Result<Option<Job>> {
        name::check_shared(queue)?;
        let run = self.start()?;
        let job = run.engine.find_job(run.at, queue, id).await;
        *run.in_doubt = false;
        job
    }

    /// The offset that a consumer saved, as this transaction sees it; 0 if it never did.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::ReservedName`]; [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Tx};
    /// # async fn example<E: Engine>(tx: &mut Tx<E>) -> Result<()> {
    /// let offset = tx.get_offset_tx("orders", "billing").await?;
    /// # Ok(()) }
    /// ```
    pub async fn get_offset_tx(&mut self, stream: &str, consumer: &str) -> Result<i64> {
        name::check_shared(stream)?;
        name::check_local(consumer)?;
        let run = self.start()?;
        let offset = run.engine.find_offset(run.at, stream, consumer).await;
        *run.in_doubt = false;
        offset
    }

    /// Up to `limit` events with an offset greater than `offset`, ascending, as this
    /// transaction sees them. Zero or a negative limit reads nothing.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::ReservedName`]; [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Tx};
    /// # async fn example<E: Engine>(tx: &mut Tx<E>) -> Result<()> {
    /// let events = tx.read_since_tx("orders", 0, 100).await?;
    /// # Ok(()) }
    /// ```
    pub async fn read_since_tx(
        &mut self,
        stream: &str,
        offset: i64,
        limit: i64,
    ) -> Result<Vec<StreamEvent>> {
        self.read(stream, After::Offset(offset), limit).await
    }

    /// Up to `limit` events after the offset that `consumer` saved, ascending, as this
    /// transaction sees them.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::ReservedName`]; [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Tx};
    /// # async fn example<E: Engine>(tx: &mut Tx<E>) -> Result<()> {
    /// let events = tx.read_from_consumer_tx("orders", "billing", 100).await?;
    /// # Ok(()) }
    /// ```
    pub async fn read_from_consumer_tx(
        &mut self,
        stream: &str,
        consumer: &str,
        limit: i64,
    ) -> Result<Vec<StreamEvent>> {
        name::check_local(consumer)?;
        self.read(stream, After::SavedBy(consumer), limit).await
    }

    async fn read(
        &mut self,
        stream: &str,
        after: After<'_>,
        limit: i64,
    ) -> Result<Vec<StreamEvent>> {
        name::check_shared(stream)?;
        let run = self.start()?;
        let events = stream::read(run.engine, run.at, stream, after, limit).await;
        *run.in_doubt = false;
        events
    }

    /// The engine and where its operations run, for loops of this crate.
    pub(crate) fn parts(&mut self) -> (&E, &mut E::Conn, &mut Wakes) {
        (self.store.engine(), self.inner.on(), &mut self.wakes)
    }
}

impl<E: Engine> Tx<E> {
    /// Commits: everything becomes visible at once, then the wakes go out.
    ///
    /// # Errors
    ///
    /// [`Error::Database`]; then nothing was committed, unless the connection was lost while
    /// the commit was on its way: then, as with every database, it may have landed. A
    /// transaction in which an operation's future was dropped is rolled back instead, with a
    /// transient error.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has committed everything or nothing.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Tx};
    /// # async fn example<E: Engine>(tx: Tx<E>) -> Result<()> {
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn commit(self) -> Result<()> {
        if self.in_doubt {
            self.inner.rollback().await?;
            return Err(half_done("the transaction was rolled back"));
        }
        self.inner.commit(self.wakes).await
    }

    /// Rolls back: nothing of the transaction remains.
    ///
    /// # Errors
    ///
    /// [`Error::Database`]; nothing of the transaction remains then either.
    ///
    /// # Cancel safety
    ///
    /// A dropped call rolls back all the same.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Tx};
    /// # async fn example<E: Engine>(tx: Tx<E>) -> Result<()> {
    /// tx.rollback().await?;
    /// # Ok(()) }
    /// ```
    pub async fn rollback(self) -> Result<()> {
        self.inner.rollback().await
    }
}

/// What an operation that was cancelled half-way leaves to be said.
fn half_done(context: &'static str) -> Error {
    Error::transient(
        context,
        "an earlier operation of the transaction was cancelled half-way: it can only be rolled back",
    )
}
