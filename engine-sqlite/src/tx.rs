//! Transactions of the engine's own.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use alkstore::engine::{Backend, Transaction, Wakes, check_runtime};
use alkstore::{Error, Result};
use sqlx::pool::PoolConnection;
use sqlx::{ConnectOptions as _, Sqlite as Driver, SqliteConnection};
use tokio::time::timeout;

use crate::Sqlite;
use crate::backend::{Inner, Kept, Writer};
use crate::backoff::Backoff;
use crate::error::{Answer, Busy, Failure, TransactionGone};
use crate::options::is_locked;
use crate::session::Session;

const BEGINNING: &str = "beginning a transaction";

/// The time that a connection's thread has for what is no wait for a lock, whatever the busy
/// timeout.
const GRACE: Duration = Duration::from_secs(1);

impl Backend for Sqlite {
    type Conn = SqliteConnection;
    type Tx = SqliteTx;

    async fn begin(&self) -> Result<SqliteTx> {
        check_runtime()?;
        let inner = self.inner();
        inner.check_all_there(BEGINNING)?;
        let mut backoff = Backoff::new(inner.settings.busy_timeout);
        loop {
            let kept = inner.keep_writer(BEGINNING, &mut backoff).await?;
            if kept.writer().connection.is_none() {
                return Err(Error::store_closed());
            }
            // Dropped with this future, it rolls back whatever has begun.
            let mut tx = SqliteTx {
                session: inner.sessions.take(),
                kept,
            };
            if tx.begin(&mut backoff).await? {
                return Ok(tx);
            }
            // Others may try while this one pauses.
            tx.finished();
            drop(tx);
            let paused = backoff.pause().await;
            paused.map_err(|()| Busy::OtherProcess.into_error(BEGINNING))?;
        }
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

impl SqliteTx {
    /// Begins; `false` if another process has the write lock.
    async fn begin(&mut self, backoff: &mut Backoff) -> Result<bool> {
        let inner = Arc::clone(&self.kept.inner);
        let mut fresh = false;
        loop {
            let session = match &mut self.session {
                Some(session) => session,
                none => {
                    fresh = true;
                    none.insert(connect(&inner, backoff).await?)
                }
            };
            let Ok(begun) = timeout(backoff.left().max(GRACE), session.begin()).await else {
                return Err(why_late(&self.kept.writer()).into_error(BEGINNING));
            };
            match begun {
                Ok(()) => return Ok(true),
                Err(failure) if failure.is_busy() => return Ok(false),
                Err(failure) => {
                    // The transaction before may have left the connection in any state.
                    self.session = None;
                    if fresh {
                        return Err(failure.into_error(BEGINNING));
                    }
                }
            }
        }
    }

    /// The open session; both ends of a transaction consume it.
    fn session(&mut self) -> Answer<&mut Session> {
        let session = self.session.as_mut();
        session.ok_or_else(|| Failure::stated(TransactionGone))
    }

    /// Keeps the session, whose transaction has ended as it should, for the next one.
    fn finished(&mut self) {
        if let Some(session) = self.session.take() {
            self.kept.inner.sessions.give(session);
        }
    }

    async fn end_by_commit(&mut self) -> Answer<()> {
        let session = self.session()?;
        if let Err(failure) = session.commit().await {
            self.session = None;
            return Err(failure);
        }
        self.finished();
        // Nothing is acknowledged that nobody can read.
        self.kept.inner.place.check_still_there()
    }
}

/// Opens the connection that transactions run on. Of an application's pool it takes one, with
/// all that the pool does to a new connection, and for good.
async fn connect(inner: &Inner, backoff: &mut Backoff) -> Result<Session> {
    let connecting = async {
        let mut connection = if inner.own_pool {
            inner.pool.connect_options().connect().await?
        } else {
            inner.pool.acquire().await?.detach()
        };
        inner.place.check_connection(&mut connection).await?;
        Session::new(connection, inner.settings.busy_timeout).await
    };
    match timeout(backoff.left().max(GRACE), connecting).await {
        Ok(connected) => connected.map_err(|failure: Failure| failure.into_error(BEGINNING)),
        Err(_) => Err(Busy::Pool.into_error(BEGINNING)),
    }
}

/// What a begin waited for in vain.
fn why_late(writer: &Writer) -> Busy {
    match &writer.connection {
        Some(connection) if is_locked(connection) => Busy::OtherProcess,
        _ => Busy::Pool,
    }
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
    session: Option<Session>,
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
        match &mut self.session {
            Some(session) => session.connection(),
            // Only `commit`, `rollback` and `drop` take it out, and each of them ends this.
            None => unreachable!("the transaction has ended"),
        }
    }

    fn check_open(&self) -> Result<()> {
        let open = match &self.session {
            Some(session) => session.check_open(),
            None => Err(Failure::stated(TransactionGone)),
        };
        open.map_err(|failure| failure.into_error("an operation in a transaction"))
    }

    // Runs where it is called, on whichever runtime that is, or none: it waits for the
    // connection's thread alone.
    async fn commit(mut self, wakes: Wakes) -> Result<()> {
        let committed = self.end_by_commit().await;
        committed.map_err(|failure| failure.into_error("committing"))?;
        let inner = &self.kept.inner;
        if inner.hearing.hub().is_attached()
            && let Some(connection) = &mut self.kept.writer().connection
        {
            wakes
                .iter()
                .for_each(|topic| inner.hearing.committed(connection, topic));
        }
        Ok(())
    }

    async fn rollback(mut self) -> Result<()> {
        let Ok(session) = self.session() else {
            return Ok(());
        };
        if session.check_open().is_err() {
            // Nothing of it remains, which is what was asked for.
            return Ok(());
        }
        match session.rollback().await {
            Ok(()) => {
                self.finished();
                Ok(())
            }
            Err(failure) => {
                // Closing the connection rolls back.
                self.session = None;
                Err(failure.into_error("rolling back"))
            }
        }
    }
}

impl Drop for SqliteTx {
    /// The writer is free at once: who takes it next finds SQLite's lock taken for as long as
    /// the rollback needs, and tries again.
    fn drop(&mut self) {
        if let Some(session) = self.session.take().and_then(Session::abandon) {
            self.kept.inner.sessions.give(session);
        }
    }
}
