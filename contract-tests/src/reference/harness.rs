//! The reference engine under the suite.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use alkstore::{Result, Store};

use super::{Database, Fault, Reference, ReferenceConn, ReferenceTx};
use crate::harness::{Body, Harness};

/// A database of the reference engine for one case.
#[derive(Debug)]
pub struct ReferenceHarness {
    database: Arc<Database>,
    busy_timeout: Duration,
    patience: Duration,
    quiet: Duration,
}

impl ReferenceHarness {
    /// A database that breaks one rule, or none, and little time for a case to notice.
    #[must_use]
    pub fn with_fault(fault: Option<Fault>) -> Self {
        Self {
            database: Database::with_fault(fault),
            busy_timeout: Duration::from_millis(200),
            patience: Duration::from_millis(400),
            quiet: Duration::from_millis(20),
        }
    }
}

impl Harness for ReferenceHarness {
    type Engine = Reference;

    async fn new() -> Self {
        Self {
            database: Database::new(),
            busy_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(10),
            quiet: Duration::from_millis(50),
        }
    }

    async fn open(&self) -> Store<Reference> {
        let process = Reference::new(Arc::clone(&self.database));
        Store::new(process.busy_timeout(self.busy_timeout))
    }

    async fn open_impatient(&self) -> Store<Reference> {
        let process = Reference::new(Arc::clone(&self.database));
        Store::new(process.busy_timeout(self.busy_timeout.min(Duration::from_millis(100))))
    }

    fn advance(&self, seconds: i64) {
        self.database.advance(seconds);
    }

    async fn insert_row(connection: &mut ReferenceConn, key: &str) -> Result<()> {
        connection.insert_row(key)
    }

    async fn count_rows(connection: &mut ReferenceConn) -> Result<i64> {
        Ok(i64::try_from(connection.count_rows()).unwrap_or(i64::MAX))
    }

    async fn with_own_tx(&self, commit: bool, body: Body<'_, ReferenceConn>) -> Result<()> {
        let mut tx = ReferenceTx::begin(&self.database, self.busy_timeout).await?;
        body(&mut tx).await?;
        if commit {
            tx.commit();
        } else {
            tx.rollback();
        }
        Ok(())
    }

    async fn with_driver_tx(&self, body: Body<'_, dyn Any + Send>) -> Result<()> {
        let mut tx = ReferenceTx::begin(&self.database, self.busy_timeout).await?;
        body(&mut tx).await?;
        tx.commit();
        Ok(())
    }

    async fn remove_source(&self) -> bool {
        self.database.remove_source();
        true
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    fn quiet(&self) -> Duration {
        self.quiet
    }
}
