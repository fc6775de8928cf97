//! The Postgres engine of `alkstore`: one database, many processes on many hosts.
//!
//! ```no_run
//! use alkstore::{EnqueueOpts, QueueOpts, Store};
//! use alkstore_postgres::Postgres;
//!
//! # async fn example() -> alkstore::Result<()> {
//! let store = Store::<Postgres>::open("postgres://app@localhost/app").await?;
//! let mail = store.queue("mail", QueueOpts::default())?;
//! mail.enqueue(&"hello", EnqueueOpts::default()).await?;
//! let job = mail.claim_one("worker-1").await?.expect("a job is there");
//! assert!(job.ack().await?);
//! # Ok(()) }
//! ```
//!
//! # How it works
//!
//! Every operation is one statement and one round trip. The server's clock decides, never a
//! host's. Publishers of a stream stand in line until they commit, so offsets are dense and
//! their order is that of the commits. Changes are told by `NOTIFY`: in a transaction at its
//! commit, otherwise at most once per topic and debounce time; one session beside the pool
//! listens for the whole process and is made when something first waits.
//!
//! # The server
//!
//! The oldest server version is 14, and the encoding of the database `UTF8` (or `SQL_ASCII`,
//! which takes every byte as it comes). Everything is in one schema, whatever the `search_path` is.
//! A role that owns the schema needs nothing else:
//!
//! ```sql
//! CREATE SCHEMA alkstore AUTHORIZATION app;
//! ```
//!
//! So does a role that only uses a schema which another role has opened, and so brought up to
//! date, before:
//!
//! ```sql
//! GRANT USAGE ON SCHEMA alkstore TO app;
//! GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA alkstore TO app;
//! GRANT USAGE ON ALL SEQUENCES IN SCHEMA alkstore TO app;
//! ```
//!
//! Behind a pooler that gives a session to each transaction, switch
//! [`PostgresOptions::statement_cache`] off, and either [`PostgresOptions::listen`] too or give
//! a [`PostgresOptions::listener_url`] that leads past the pooler.
//!
//! A password that changes while the process runs is asked for by
//! [`PostgresOptions::connect_options`].
//!
//! # What differs from other engines
//!
//! - Ids of jobs that are enqueued one by one go up by 1000; those of a batch are side by side.
//! - The clock is the server's.
//! - The encoded payload of a notify must be shorter than 8000 bytes. On a channel whose name
//!   has 63 bytes at most it reaches any Postgres client that listens to the channel.
//! - A commit whose wakes find the server's `NOTIFY` queue full is made without them. They go out
//!   once there is room, and the log tells of it; a plain `notify` ends in a transient error.
//! - Receivers live through the loss of the listening session, and through restarts of the
//!   server: each then gets the wake
//!   [`LISTENER_RECONNECTED`](alkstore::LISTENER_RECONNECTED).
//! - A [`Tx`](alkstore::Tx) is `READ COMMITTED`, and several can write at once. Two that
//!   publish to one stream do so one after the other, and one that waits for longer than
//!   [`PostgresOptions::operation_timeout`] ends in a transient error; those that publish to
//!   several streams in different orders can meet in a deadlock, which ends one in the same way.
//! - [`Store::join_tx`](alkstore::Store::join_tx) works at any isolation; above `READ COMMITTED`
//!   an operation may fail with a transient error, and the whole transaction has to be tried
//!   again.

#![deny(missing_docs)]

mod backend;
mod batch;
mod error;
mod listener;
mod lock;
mod login;
mod notify;
mod options;
mod outage;
mod pool;
mod queue;
mod scheduler;
mod schema;
mod stream;
mod tx;

use std::sync::Arc;

use alkstore::Result;
use alkstore::engine::Open;

use crate::backend::Inner;

pub use crate::options::PostgresOptions;
pub use crate::tx::PostgresTx;

/// A database on a Postgres server, opened. Cheap to clone.
///
/// Give it to [`Store::new`](alkstore::Store::new), or let
/// [`Store::open`](alkstore::Store::open) make it. Dropping the last clone closes its
/// connections; the listening session lives as long as a receiver does.
#[derive(Debug, Clone)]
pub struct Postgres(Arc<Inner>);

impl Postgres {
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }
}

impl Open for Postgres {
    const SCHEMES: &'static [&'static str] = &["postgres", "postgresql"];

    async fn open(target: &str) -> Result<Self> {
        PostgresOptions::new().open(target).await
    }
}
