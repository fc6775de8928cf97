//! The connection that transactions run on.
//!
//! There is one at a time, since each `Tx` holds the writer. It is not given back to a pool:
//! the driver's connection needs no runtime, its pool does. Hooks on the connection see every
//! end of a transaction, so that nothing is committed there but by a `Tx`.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, SqlSafeStr as _, Sqlite};
use sqlx::{Database, SqliteConnection};
use sqlx_core::transaction::TransactionManager;
use tokio::time::timeout;

use crate::error::{Answer, Failure, TransactionGone};

type Manager = <Sqlite as Database>::TransactionManager;

/// How far a session's transaction is.
#[derive(Debug, Default)]
struct Phase(AtomicU8);

impl Phase {
    /// No transaction; what the driver does on the connection is its own business.
    const IDLE: u8 = 0;
    /// A transaction that only its owner may commit.
    const OPEN: u8 = 1;
    /// Its owner commits it.
    const COMMITTING: u8 = 2;
    const COMMITTED: u8 = 3;
    /// Its owner rolls it back.
    const ROLLING_BACK: u8 = 4;
    /// It was ended by somebody else.
    const GONE: u8 = 5;

    fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Release);
    }

    fn is(&self, phase: u8) -> bool {
        self.0.load(Ordering::Acquire) == phase
    }

    /// Goes from one phase to another; `false` if it was in neither.
    fn go(&self, from: u8, to: u8) -> bool {
        let gone = self
            .0
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        gone.is_ok()
    }

    /// Whether SQLite may commit; else it rolls back, and the statement fails. This keeps a
    /// COMMIT of the application's from ending the transaction, and statements that come after
    /// its end from committing one by one.
    fn may_commit(&self) -> bool {
        self.is(Self::IDLE) || self.go(Self::COMMITTING, Self::COMMITTED)
    }

    fn rolled_back(&self) {
        self.go(Self::OPEN, Self::GONE);
    }
}

/// A connection for one transaction after another.
#[derive(Debug)]
pub(crate) struct Session {
    connection: SqliteConnection,
    phase: Arc<Phase>,
}

impl Session {
    /// Puts a connection, which nobody else has, to use.
    pub(crate) async fn new(
        mut connection: SqliteConnection,
        busy_timeout: Duration,
    ) -> Answer<Self> {
        let most = busy_timeout.as_millis().min(i32::MAX.unsigned_abs().into());
        let pragma = AssertSqlSafe(format!("PRAGMA busy_timeout = {most}"));
        connection.execute(pragma).await?;
        let phase = Arc::new(Phase::default());
        let mut handle = connection.lock_handle().await?;
        let committing = Arc::clone(&phase);
        handle.set_commit_hook(move || committing.may_commit());
        let rolled_back = Arc::clone(&phase);
        handle.set_rollback_hook(move || rolled_back.rolled_back());
        drop(handle);
        Ok(Self { connection, phase })
    }

    pub(crate) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }

    /// Begins a transaction that may write. If this is dropped half-way, [`Session::abandon`]
    /// undoes what came of it.
    pub(crate) async fn begin(&mut self) -> Answer<()> {
        let begin = Some("BEGIN IMMEDIATE".into_sql_str());
        Manager::begin(&mut self.connection, begin).await?;
        self.phase.set(Phase::OPEN);
        Ok(())
    }

    /// Fails once the transaction has ended.
    pub(crate) fn check_open(&self) -> Answer<()> {
        if self.phase.is(Phase::OPEN) {
            Ok(())
        } else {
            Err(Failure::stated(TransactionGone))
        }
    }

    /// Commits. After a failure the session is not to be used again.
    pub(crate) async fn commit(&mut self) -> Answer<()> {
        if !self.phase.go(Phase::OPEN, Phase::COMMITTING) {
            return Err(Failure::stated(TransactionGone));
        }
        Manager::commit(&mut self.connection).await?;
        // All commands before the commit are done by now, so the depth is exact.
        if Manager::get_transaction_depth(&self.connection) > 0 {
            return Err(Failure::internal(
                "a nested transaction was neither committed nor rolled back",
            ));
        }
        self.phase.set(Phase::IDLE);
        Ok(())
    }

    /// Rolls back. After a failure the session is not to be used again.
    pub(crate) async fn rollback(&mut self) -> Answer<()> {
        if !self.phase.go(Phase::OPEN, Phase::ROLLING_BACK) {
            return Err(Failure::stated(TransactionGone));
        }
        Manager::rollback(&mut self.connection).await?;
        if Manager::get_transaction_depth(&self.connection) > 0 {
            return Err(Failure::internal("a nested transaction is still open"));
        }
        self.phase.set(Phase::IDLE);
        Ok(())
    }

    /// Rolls back what has begun and is not committed, without waiting for it: the
    /// connection's thread does it before anything that comes later. `None` if the connection
    /// cannot be used again.
    pub(crate) fn abandon(mut self) -> Option<Self> {
        if self.phase.is(Phase::GONE) {
            return None;
        }
        self.phase.go(Phase::OPEN, Phase::ROLLING_BACK);
        // What is wrong with it shows when the next transaction begins.
        Manager::start_rollback(&mut self.connection);
        Some(self)
    }
}

/// The session that is kept for the next transaction.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    idle: Option<Session>,
    closed: bool,
}

impl Sessions {
    pub(crate) fn take(&self) -> Option<Session> {
        self.lock().idle.take()
    }

    pub(crate) fn give(&self, session: Session) {
        let mut kept = self.lock();
        if !kept.closed {
            kept.idle = Some(session);
        }
    }

    /// Closes the connection, within reason; one that is in use is closed by its owner.
    pub(crate) async fn close(&self, most: Duration) {
        let idle = {
            let mut kept = self.lock();
            kept.closed = true;
            kept.idle.take()
        };
        if let Some(session) = idle {
            timeout(most, session.connection.close()).await.ok();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
