//! The SQLite engine of `alkstore`: one file, many processes of one host.
//!
//! ```
//! use alkstore::{EnqueueOpts, QueueOpts, Store};
//! use alkstore_sqlite::Sqlite;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> alkstore::Result<()> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let path = folder.path().join("app.db");
//! # let path = path.to_str().expect("a path of text");
//! let store = Store::<Sqlite>::open(path).await?;
//! let mail = store.queue("mail", QueueOpts::default())?;
//! mail.enqueue(&"hello", EnqueueOpts::default()).await?;
//! let job = mail.claim_one("worker-1").await?.expect("a job is there");
//! assert!(job.ack().await?);
//! # store.close().await;
//! # Ok(()) }
//! ```
//!
//! # How it works
//!
//! Operations that commit at once run where they are called, on a connection of this crate's
//! own: a statement takes microseconds, and handing it to another thread would take many times
//! that. They never sleep in the executor's thread. Transactions and business SQL run on
//! connections of sqlx, which have threads of their own. Both link the same SQLite.
//!
//! One writer works at a time, as always with SQLite. In this process writers stand in a fair
//! line; writers of other processes are waited for. Either wait ends with the busy timeout, in
//! a transient error that says who holds the writer.
//!
//! # What differs from other engines
//!
//! - The clock is the host's.
//! - A [`Tx`](alkstore::Tx) holds the writer from its begin to its end. An operation that
//!   commits at once, called while the same task holds a `Tx`, ends in a transient error after
//!   the busy timeout.
//! - In a transaction that the application began itself, `BEGIN IMMEDIATE` is the safe way to
//!   begin. A plain `BEGIN` that reads first cannot write once another connection has
//!   committed: the operation fails with a transient error, and the whole transaction has to
//!   be tried again.
//! - A transaction that SQLite or the application's SQL ends by itself is gone whole: a `COMMIT`
//!   by SQL on a [`Tx`](alkstore::Tx)'s connection is refused and rolls back.
//! - Receivers close when the database file or its log is removed or replaced; writes then fail
//!   and say so. So does every call in a process that was forked off the one that opened it.
//! - A notify has no size limit, and its payload reaches nobody.
//! - A stream gives 2^40 - 1 offsets and a database holds 2^23 - 1 streams; a publish beyond is
//!   [`Error::Database`](alkstore::Error::Database).
//! - In memory there is one lock for readers and the writer alike: reads wait for an open `Tx`
//!   to end, and end in a transient error if it does not within the busy timeout.
//!
//! Do not open the database file, or copy it, by any way other than SQLite in a process that
//! has it open here: closing any handle on it drops the locks that SQLite holds.

#![deny(missing_docs)]

mod backend;
mod backoff;
mod batch;
mod checkpoint;
mod error;
mod exec;
mod gate;
mod lock;
mod notify;
mod options;
mod place;
mod presence;
mod queue;
mod readers;
mod scheduler;
mod schema;
mod session;
mod stream;
mod tx;
mod watch;

use std::sync::Arc;

use alkstore::Result;
use alkstore::engine::Open;
use sqlx::SqlitePool;

use crate::backend::Inner;

pub use crate::options::{SqliteOptions, Synchronous};
pub use crate::tx::SqliteTx;

/// A database file, or a database in memory, opened. Cheap to clone.
///
/// Give it to [`Store::new`](alkstore::Store::new), or let
/// [`Store::open`](alkstore::Store::open) make it. Dropping the last clone closes it.
#[derive(Debug, Clone)]
pub struct Sqlite(Arc<Inner>);

impl Sqlite {
    /// A pool for business reads. It is the application's own where the engine was opened over
    /// one. Transactions have a connection of their own.
    ///
    /// Business writes belong in a [`Tx`](alkstore::Tx): written through the pool, they
    /// compete with the engine for SQLite's write lock.
    ///
    /// ```
    /// use alkstore::engine::Open as _;
    /// use alkstore_sqlite::Sqlite;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Sqlite::open(":memory:").await?;
    /// let row: (i64,) = sqlx::query_as("SELECT 1").fetch_one(engine.pool()).await?;
    /// assert_eq!(row.0, 1);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn pool(&self) -> &SqlitePool {
        &self.0.pool
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }
}

impl Open for Sqlite {
    const SCHEMES: &'static [&'static str] = &["sqlite", ""];

    async fn open(target: &str) -> Result<Self> {
        SqliteOptions::new().open(target).await
    }
}
