//! Transactions of the engine's own.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use alkstore::engine::{Backend, Transaction, Wakes};
use alkstore::{Error, Result};
use sqlx::pool::PoolConnection;
use sqlx::{Sqlite as Driver, SqliteConnection};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::Sqlite;
use crate::backend::{Backoff, Kept, Writer};
use crate::error::{Busy, Failure};
use crate::options::is_locked;

const BEGINNING: &str = "beginning a transaction";

impl Backend for Sqlite {
    type Conn = SqliteConnection;
    type Tx = SqliteTx;

    async fn begin(&self) -> Result<SqliteTx> {
        let runtime = Handle::try_current().map_err(|error| Error::database(BEGINNING, error))?;
        let mut backoff = Backoff::new(self.inner().settings.busy_timeout);
        let kept = self.inner().keep_writer(BEGINNING, &mut backoff).await?;
        if kept.writer().connection.is_none() {
            return Err(Error::store_closed());
        }
        // A driver's begin that is dropped half-way leaves its connection in doubt, so it runs
        // to its end even if nobody waits for it; then the transaction is dropped whole.
        let beginning = begin(kept, backoff, runtime.clone());
        finished(BEGINNING, runtime.spawn(beginning)).await
    }

    fn downcast(connection: &mut (dyn Any + Send)) -> Option<&mut SqliteConnection> {
        if connection.is::<SqliteConnection>() {
            return connection.downcast_mut();
        }
        if connection.is::<sqlx::Transaction<'static, Driver>>() {
            let tx = connection.downcast_mut::<sqlx::Transaction<'static, Driver>>();
            return tx.map(|tx| &mut **tx);
        }
        connection
            .downcast_mut::<PoolConnection<Driver>>()
            .map(|pooled| &mut **pooled)
    }

    fn upcast(connection: &mut SqliteConnection) -> &mut (dyn Any + Send) {
        connection
    }

    fn reread_interval(&self) -> Duration {
        self.inner().settings.reread_interval
    }

    async fn close(&self) {
        self.inner().close().await;
    }
}

async fn begin(kept: Kept, mut backoff: Backoff, runtime: Handle) -> Result<SqliteTx> {
    loop {
        let begun = timeout(
            backoff.left(),
            kept.inner.pool.begin_with("BEGIN IMMEDIATE"),
        )
        .await;
        let failure = match begun {
            Ok(Ok(tx)) => {
                let open = Open { tx, kept };
                return Ok(SqliteTx {
                    open: Some(open),
                    runtime,
                });
            }
            Ok(Err(error)) => Failure::from(error),
            Err(_) => return Err(why_late(&kept.writer()).into_error(BEGINNING)),
        };
        if !failure.is_busy() {
            return Err(failure.into_error(BEGINNING));
        }
        backoff
            .pause()
            .await
            .map_err(|()| Busy::OtherProcess.into_error(BEGINNING))?;
    }
}

/// What a begin waited for in vain.
fn why_late(writer: &Writer) -> Busy {
    match &writer.connection {
        Some(connection) if is_locked(connection) => Busy::OtherProcess,
        _ => Busy::Pool,
    }
}

/// What a task that always finishes came back with.
async fn finished<T>(doing: &'static str, task: JoinHandle<Result<T>>) -> Result<T> {
    // The task does not panic; it is lost only where its runtime is shut down.
    task.await
        .unwrap_or_else(|error| Err(Error::database(format!("{doing} was cut off"), error)))
}

/// A transaction that holds the writer. Dropping it rolls it back.
///
/// ```
/// use alkstore::engine::{Backend as _, Open as _, Transaction as _, Wakes};
/// use alkstore_sqlite::Sqlite;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Sqlite::open(":memory:").await?;
/// let mut tx = engine.begin().await?;
/// sqlx::query("CREATE TABLE users (name TEXT)").execute(tx.conn()).await?;
/// tx.commit(Wakes::default()).await?;
/// # Ok(()) }
/// ```
pub struct SqliteTx {
    open: Option<Open>,
    /// Where it was begun, for whoever drops it elsewhere.
    runtime: Handle,
}

/// The parts in the order in which they must go: the transaction, then the writer.
struct Open {
    tx: sqlx::Transaction<'static, Driver>,
    kept: Kept,
}

impl fmt::Debug for SqliteTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTx").finish_non_exhaustive()
    }
}

impl Transaction for SqliteTx {
    type Conn = SqliteConnection;

    fn conn(&mut self) -> &mut SqliteConnection {
        match &mut self.open {
            Some(open) => &mut open.tx,
            // Only `commit`, `rollback` and `drop` take it out, and each of them ends this.
            None => unreachable!("the transaction has ended"),
        }
    }

    async fn commit(mut self, wakes: Wakes) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        finished("committing", self.runtime.spawn(open.commit(wakes))).await
    }

    async fn rollback(mut self) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        finished("rolling back", self.runtime.spawn(open.rollback())).await
    }
}

impl Open {
    async fn commit(self, wakes: Wakes) -> Result<()> {
        let Self { tx, kept } = self;
        tx.commit()
            .await
            .map_err(|error| Failure::from(error).into_error("committing"))?;
        if kept.inner.hearing.hub().is_attached()
            && let Some(connection) = &mut kept.writer().connection
        {
            wakes
                .iter()
                .for_each(|topic| kept.inner.hearing.committed(connection, topic));
        }
        Ok(())
    }

    async fn rollback(self) -> Result<()> {
        let Self { tx, kept } = self;
        let result = tx.rollback().await;
        drop(kept);
        result.map_err(|error| Failure::from(error).into_error("rolling back"))
    }
}

impl Drop for SqliteTx {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            // The driver's connection may only be dropped within a runtime.
            let _entered = self.runtime.enter();
            self.runtime.spawn(open.rollback());
        }
    }
}
