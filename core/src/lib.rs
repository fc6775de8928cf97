//! Queues, streams, wake-ups, locks and timers in the database that a service already has.
//!
//! Work that must survive a crash, events that others follow, wake-ups, locks and timers
//! usually come from a second system, which commits at another moment than the business
//! data: a crash between the two commits is a bug. Here they are rows of the same database,
//! written in the same transaction.
//!
//! | mechanism | start at | promise |
//! |---|---|---|
//! | queue | [`Store::queue`] | at least once, one holder at a time while its claim lasts |
//! | outbox | [`Store::outbox`] | as a queue: what was committed is delivered |
//! | stream | [`Store::stream`] | every committed event to every consumer, in order; effects exactly once when the offset commits with them |
//! | notify | [`Store::listen`] | best effort, nothing stored |
//! | lock | [`Store::try_lock`] | mutual exclusion within its time, fencing tokens for the rest |
//! | scheduler | [`Store::schedule`] | every elapsed boundary, up to a cap of 64 |
//! | transaction | [`Store::begin_tx`] | all of these and the business writes, or none |
//!
//! This crate is the contract and names no database. Add an engine, `alkstore-sqlite` for
//! one host with nothing to install or `alkstore-postgres` for many, and everything below
//! is the same on both:
//!
//! ```
//! use alkstore::{Engine, EnqueueOpts, QueueOpts, Result, Store};
//!
//! async fn tour<E: Engine>(store: Store<E>) -> Result<()> {
//!     // Business writes and what follows from them commit together.
//!     let mut tx = store.begin_tx().await?;
//!     // sqlx::query("INSERT INTO users …").execute(tx.connection()).await?;
//!     tx.enqueue_tx("mail", EnqueueOpts::default(), &"welcome").await?;
//!     tx.publish_tx("users", &"signed up").await?;
//!     tx.commit().await?;
//!
//!     // A worker claims the job; if it crashes, another gets it.
//!     let mail = store.queue("mail", QueueOpts::default())?;
//!     while let Some(job) = mail.claim_one("worker-1").await? {
//!         println!("sending {}", job.payload_as::<String>()?);
//!         job.ack().await?;
//!     }
//!
//!     // A consumer follows the stream, from where it was. An event's effects and the offset
//!     // commit together: each effect happens once, with many instances of the consumer too.
//!     let mut events = store.stream("users")?.subscribe("billing").await?;
//!     while let Some(event) = events.try_recv().await? {
//!         let mut tx = store.begin_tx().await?;
//!         if tx.save_offset_tx("users", "billing", event.offset).await? {
//!             // sqlx::query("UPDATE invoices …").execute(tx.connection()).await?;
//!             tx.commit().await?;
//!         } else {
//!             tx.rollback().await?; // Another instance has had this event.
//!         }
//!     }
//!
//!     // One process at a time.
//!     if let Some(lock) = store.try_lock("report", "host-1", 30).await? {
//!         lock.release().await?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! `Store<Sqlite>` is compiled for its engine: no allocation and no virtual call is added.
//! [`BoxedStore`] is the same store for code that does not name an engine.
//!
//! Times are unix seconds of the engine's one clock, `i64` everywhere; sums saturate. To
//! write an engine, see [`engine`].

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod backoff;
mod batch;
mod boxed;
mod drivers;
pub mod engine;
mod error;
mod foreign;
mod lock;
mod name;
mod notify;
mod options;
mod outbox;
mod payload;
mod queue;
mod runtime;
mod scheduler;
mod stop;
mod store;
mod stream;
mod subscription;
mod tx;

pub use boxed::{BoxedEngine, BoxedStore, BoxedTx};
pub use drivers::Drivers;
pub use engine::{Engine, Open};
pub use error::{CodecError, DatabaseError, Error, Result, StoreClosed};
pub use lock::Lock;
pub use name::{LISTENER_RECONNECTED, MAX_NAME_BYTES, RESERVED_PREFIX, SCHEDULER_LOCK};
pub use notify::{Wake, WakeReceiver};
pub use options::{EnqueueOpts, QueueOpts, ScheduleOpts};
pub use outbox::{Delivery, Outbox};
pub use queue::{Job, JobHandle, JobState, Queue, Swept};
pub use scheduler::Schedule;
pub use stop::StopToken;
pub use store::Store;
pub use stream::{Stream, StreamEvent};
pub use subscription::EventReceiver;
pub use tx::{Joined, JoinedTx, OnConnection, Tx};

/// What users read can grow: a crate outside builds none of it by literal and matches no state
/// without a `_`.
///
/// ```compile_fail,E0639
/// let swept = alkstore::Swept { expired: 1, purged: 0 };
/// ```
///
/// ```compile_fail,E0639
/// fn example(job: alkstore::Job) -> alkstore::Job {
///     alkstore::Job { id: 1, ..job }
/// }
/// ```
///
/// ```compile_fail,E0639
/// fn example(event: alkstore::StreamEvent) -> alkstore::StreamEvent {
///     alkstore::StreamEvent { offset: 1, ..event }
/// }
/// ```
///
/// ```compile_fail,E0004
/// use alkstore::JobState;
///
/// fn example(state: JobState) -> bool {
///     match state {
///         JobState::Pending | JobState::Processing => true,
///         JobState::Dead => false,
///     }
/// }
/// ```
#[cfg(doctest)]
pub struct OpenTypes;

/// Every future can move to another thread, for an engine that is not known as well.
#[cfg(test)]
mod spawnable {
    use super::*;

    fn send<F: Send>(_: F) {}

    #[allow(dead_code, reason = "it is checked by being compiled")]
    fn futures_are_send<E: Engine>(store: &Store<E>, mut events: EventReceiver<E>, tx: Tx<E>) {
        send(store.begin_tx());
        send(store.with_tx(async |tx| tx.publish_tx("s", &1).await));
        send(store.with_tx(async |tx| {
            let id = tx.enqueue_tx("q", EnqueueOpts::default(), "x").await?;
            tx.get_job_tx("q", id).await
        }));
        send(store.run_schedules(StopToken::new()));
        send(async move {
            let outbox = store.outbox("o")?;
            outbox
                .run_once("w", async |message| message.heartbeat(1).await.map(drop))
                .await
        });
        send(async move {
            events.recv().await;
            events.save_offset().await
        });
        send(tx.commit());
        send(async move {
            let queue = store.queue("q", QueueOpts::default())?;
            let jobs = queue.claim_batch("w", 5).await?;
            queue.ack_batch(&jobs).await
        });
    }

    #[allow(dead_code, reason = "it is checked by being compiled")]
    fn handles_are_send_and_sync(store: BoxedStore) {
        fn both<T: Send + Sync>(_: T) {}
        both(store.queue("q", QueueOpts::default()));
        both(store.outbox("o"));
        both(store.stream("s"));
        both(store);
    }
}
