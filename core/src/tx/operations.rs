//! What a transaction can do: the operations that commit with it.

use serde::Serialize;

use crate::engine::{After, ClaimEnd, Engine, NewEvent, Outcome, Stamps, Topic};
use crate::outbox::shown_in;
use crate::queue::{new_job, only};
use crate::tx::{OnConnection, Tx};
use crate::{
    EnqueueOpts, Job, JobHandle, QueueOpts, Result, StreamEvent, name, notify, payload, stream,
};

impl<E: Engine, T: OnConnection<E::Conn>> Tx<E, T> {
    /// Enqueues a job with the plain options of a queue, and returns its id. The queue wakes
    /// at the commit. For other options see [`Queue::enqueue_tx`](crate::Queue::enqueue_tx).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName), [`Error::ReservedName`](crate::Error::ReservedName); [`Error::Codec`](crate::Error::Codec);
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for `max_attempts` below 1; [`Error::Database`](crate::Error::Database).
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
        opts.check()?;
        let payload = payload::encode(payload)?;
        let job = new_job(queue, &payload, opts, stamps);
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
    /// [`Error::InvalidName`](crate::Error::InvalidName), [`Error::ReservedName`](crate::Error::ReservedName); [`Error::Codec`](crate::Error::Codec); [`Error::Database`](crate::Error::Database).
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
    /// As for [`Tx::publish_tx`]; [`Error::InvalidName`](crate::Error::InvalidName) also for a key that is empty or has a
    /// NUL character.
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
        key.map_or(Ok(()), name::check_key)?;
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
    /// As for [`Store::notify`](crate::Store::notify).
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
        let payload = notify::encode(self.store.engine(), channel, payload)?;
        let run = self.start()?;
        run.wakes.add(Topic::channel(channel));
        let done = run.engine.send_notify(run.at, channel, &payload).await;
        *run.in_doubt = false;
        done
    }

    /// Saves how far a consumer has come. `false` if this offset or a greater one is saved
    /// already, or it is below 1, and then nothing changed: another instance of the consumer has
    /// had the event's effects, so roll back.
    ///
    /// Effects in the transaction are exactly once, however many instances the consumer has, if
    /// it commits only where the save has moved. The offset is the consumer's until the
    /// transaction ends: other instances wait.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName), [`Error::ReservedName`](crate::Error::ReservedName); [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Store, StreamEvent};
    /// # async fn example<E: Engine>(store: Store<E>, event: StreamEvent) -> Result<()> {
    /// let mut tx = store.begin_tx().await?;
    /// if tx.save_offset_tx(&event.stream, "billing", event.offset).await? {
    ///     // The event's effects go here, on tx.connection().
    ///     tx.commit().await
    /// } else {
    ///     tx.rollback().await
    /// }
    /// # }
    /// ```
    pub async fn save_offset_tx(
        &mut self,
        stream: &str,
        consumer: &str,
        offset: i64,
    ) -> Result<bool> {
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
    /// [`Error::Database`](crate::Error::Database).
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
    /// [`Error::InvalidName`](crate::Error::InvalidName), [`Error::ReservedName`](crate::Error::ReservedName); [`Error::Database`](crate::Error::Database).
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

    /// The job of a message, live or dead, as this transaction sees it; its queue is the
    /// outbox.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName), [`Error::ReservedName`](crate::Error::ReservedName); [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Result, Tx};
    /// # async fn example<E: Engine>(tx: &mut Tx<E>) -> Result<()> {
    /// let id = tx.outbox_enqueue_tx("invoices", EnqueueOpts::default(), &"invoice 7").await?;
    /// assert!(tx.outbox_get_job_tx("invoices", id).await?.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn outbox_get_job_tx(&mut self, outbox: &str, id: i64) -> Result<Option<Job>> {
        name::check_shared(outbox)?;
        let queue = name::outbox_queue(outbox);
        let run = self.start()?;
        let job = run.engine.find_job(run.at, &queue, id).await;
        *run.in_doubt = false;
        Ok(job?.map(|job| shown_in(job, outbox)))
    }

    /// The offset that a consumer saved, as this transaction sees it; 0 if it never did. It stays
    /// so until the transaction ends: other transactions that read or save it wait.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName), [`Error::ReservedName`](crate::Error::ReservedName); [`Error::Database`](crate::Error::Database).
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
    /// [`Error::InvalidName`](crate::Error::InvalidName), [`Error::ReservedName`](crate::Error::ReservedName); [`Error::Database`](crate::Error::Database).
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
        name::check_shared(stream)?;
        self.read(stream, After::Offset(offset), limit).await
    }

    /// Up to `limit` events after the offset that `consumer` saved, ascending, as this
    /// transaction sees them. The events are the consumer's until the transaction ends: another
    /// instance that reads them in a transaction waits, and reads on from what this one saved.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName), [`Error::ReservedName`](crate::Error::ReservedName); [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// After a dropped call the transaction can only be rolled back.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Tx};
    /// # async fn example<E: Engine>(mut tx: Tx<E>) -> Result<()> {
    /// let events = tx.read_from_consumer_tx("orders", "billing", 100).await?;
    /// for event in &events {
    ///     // The event's effects go here, on tx.connection().
    ///     tx.save_offset_tx("orders", "billing", event.offset).await?;
    /// }
    /// tx.commit().await
    /// # }
    /// ```
    pub async fn read_from_consumer_tx(
        &mut self,
        stream: &str,
        consumer: &str,
        limit: i64,
    ) -> Result<Vec<StreamEvent>> {
        name::check_shared(stream)?;
        name::check_local(consumer)?;
        self.read(stream, After::SavedBy(consumer), limit).await
    }

    async fn read(
        &mut self,
        stream: &str,
        after: After<'_>,
        limit: i64,
    ) -> Result<Vec<StreamEvent>> {
        let run = self.start()?;
        let events = stream::read(run.engine, run.at, stream, after, limit).await;
        *run.in_doubt = false;
        events
    }
}
