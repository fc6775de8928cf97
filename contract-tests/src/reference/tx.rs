//! Transactions: a copy of the state that takes its place at the commit.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use alkstore::engine::{Transaction, Wakes};
use alkstore::{Error, Result};

use super::database::{State, Work};
use super::writer::WriterGuard;
use super::{Database, Fault};

/// A connection in a transaction, for business writes.
#[derive(Debug)]
pub struct ReferenceConn {
    database: Arc<Database>,
    /// The state as the transaction sees it.
    state: State,
    wakes: Wakes,
    /// Whether the engine began it, and not the application.
    own: bool,
}

/// A transaction, the engine's or one that the application began. Dropping it rolls it back.
#[derive(Debug)]
pub struct ReferenceTx {
    connection: ReferenceConn,
    /// What faults bring back.
    before: Option<State>,
    /// Empty once the transaction has ended.
    writer: Option<WriterGuard>,
}

impl ReferenceConn {
    /// Inserts a business row.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if there is a row of this key.
    pub fn insert_row(&mut self, key: &str) -> Result<()> {
        match self.run(|work| work.state.rows.insert(key.into())) {
            true => Ok(()),
            false => Err(Error::database(
                "the row cannot be inserted",
                "its key is there already",
            )),
        }
    }

    /// Counts the business rows.
    #[must_use]
    pub fn count_rows(&self) -> usize {
        self.state.rows.len()
    }

    /// Runs an operation in the transaction.
    pub(super) fn run<R>(&mut self, operation: impl FnOnce(&mut Work<'_>) -> R) -> R {
        let result = operation(&mut self.database.work(&mut self.state, &mut self.wakes));
        match self.database.fault {
            Some(Fault::UncommittedIsVisible) => *self.database.committed() = self.state.clone(),
            Some(Fault::WakesBeforeCommit) => self.wake(),
            Some(Fault::JoinedTxCommitsAtOnce) if !self.own => self.commit(),
            _ => {}
        }
        result
    }

    fn commit(&mut self) {
        let mut state = self.state.clone();
        let mut committed = self.database.committed();
        match self.database.fault {
            Some(Fault::CommitLosesRows) => state.rows = mem::take(&mut committed.rows),
            // Others have committed since this transaction began.
            Some(Fault::ConsumerIsNotHeld) => state.merge(&committed),
            _ => {}
        }
        *committed = state;
        drop(committed);
        self.wake();
    }

    fn wake(&mut self) {
        let wakes = mem::take(&mut self.wakes);
        if self.database.fault != Some(Fault::CommitLosesWakes) {
            self.database.wake(&wakes);
        }
    }
}

impl ReferenceTx {
    /// Begins a transaction, as an application does that uses the database by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], transient, if another writer is not done in time.
    pub async fn begin(database: &Arc<Database>, busy_timeout: Duration) -> Result<Self> {
        let mut tx = Self::begin_own(database, busy_timeout).await?;
        tx.connection.own = false;
        Ok(tx)
    }

    pub(super) async fn begin_own(database: &Arc<Database>, timeout: Duration) -> Result<Self> {
        let writer = match database.fault {
            // Held by nobody else: transactions do not wait for each other.
            Some(Fault::ConsumerIsNotHeld) => Arc::default(),
            _ => Arc::clone(&database.writer),
        };
        let writer = database.acquire(writer, timeout).await?;
        let state = database.committed().clone();
        let before = (database.fault == Some(Fault::UncommittedIsVisible)).then(|| state.clone());
        let (database, wakes) = (Arc::clone(database), Wakes::default());
        let connection = ReferenceConn {
            database,
            state,
            wakes,
            own: true,
        };
        Ok(Self {
            connection,
            before,
            writer: Some(writer),
        })
    }

    /// Commits.
    pub fn commit(mut self) {
        self.connection.commit();
        self.writer = None;
    }

    /// Rolls back, as a drop does.
    pub fn rollback(mut self) {
        self.undo();
    }

    /// The state in place is the one from before, and nobody is woken: nothing to do but for
    /// the faults.
    fn undo(&mut self) {
        let Some(writer) = self.writer.take() else {
            return;
        };
        let (database, state) = (&self.connection.database, &mut self.connection.state);
        let mut committed = database.committed();
        match database.fault {
            Some(Fault::RollbackKeepsJobs) => committed.jobs = mem::take(&mut state.jobs),
            Some(Fault::RollbackKeepsEvents) => committed.streams = mem::take(&mut state.streams),
            Some(Fault::RollbackKeepsOffsets) => committed.offsets = mem::take(&mut state.offsets),
            Some(Fault::RollbackKeepsRows) => committed.rows = mem::take(&mut state.rows),
            Some(Fault::RollbackKeepsWakes) => database.wake(&self.connection.wakes),
            Some(Fault::OffsetsHaveHoles) => committed.keep_heads(state),
            Some(Fault::UncommittedIsVisible) => {
                *committed = self.before.take().unwrap_or_default();
            }
            _ => {}
        }
        drop(committed);
        drop(writer);
    }
}

impl Drop for ReferenceTx {
    fn drop(&mut self) {
        match self.connection.database.fault {
            Some(Fault::DropCommits) if self.writer.is_some() => self.connection.commit(),
            Some(Fault::DropKeepsWriter) => mem::forget(self.writer.take()),
            _ => self.undo(),
        }
    }
}

impl Transaction for ReferenceTx {
    type Conn = ReferenceConn;

    fn conn(&mut self) -> &mut ReferenceConn {
        &mut self.connection
    }

    /// The database wakes by itself: it knows what was touched.
    async fn commit(self, _: Wakes) -> Result<()> {
        Self::commit(self);
        Ok(())
    }

    async fn rollback(self) -> Result<()> {
        Self::rollback(self);
        Ok(())
    }
}

impl Deref for ReferenceTx {
    type Target = ReferenceConn;

    fn deref(&self) -> &ReferenceConn {
        &self.connection
    }
}

impl DerefMut for ReferenceTx {
    fn deref_mut(&mut self) -> &mut ReferenceConn {
        &mut self.connection
    }
}
