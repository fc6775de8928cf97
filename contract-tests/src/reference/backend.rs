//! A handle on the database, as a process would have one.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use alkstore::engine::{At, Backend, WakeHub, Wakes};
use alkstore::{Error, Result};
use tokio::sync::watch;

use super::database::Work;
use super::{Database, Fault, ReferenceConn, ReferenceTx};

/// The reference engine. Clones are the same process; for another one make another.
#[derive(Debug, Clone)]
pub struct Reference {
    pub(super) database: Arc<Database>,
    pub(super) hub: WakeHub,
    closed: Arc<watch::Sender<bool>>,
    pub(super) busy_timeout: Duration,
}

impl Reference {
    /// A process of its own on the database.
    #[must_use]
    pub fn new(database: Arc<Database>) -> Self {
        let database = match database.fault {
            Some(Fault::StoresSeeOnlyThemselves) => Database::with_fault(database.fault),
            _ => database,
        };
        let closed = Arc::new(watch::Sender::new(false));
        let hub = WakeHub::new();
        database.hubs.register(&hub, &closed);
        Self {
            database,
            hub,
            closed,
            busy_timeout: Duration::from_secs(5),
        }
    }

    /// Sets how long to wait for a writer that is held.
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Runs an operation that changes something, where it is to run.
    pub(super) async fn write<R: Send>(
        &self,
        at: At<'_, ReferenceConn>,
        operation: impl FnOnce(&mut Work<'_>) -> R + Send,
    ) -> Result<R> {
        self.check_open()?;
        self.unless_closed(self.database.reach()).await?;
        on_the_way().await;
        if let At::In(connection) = at {
            let result = connection.run(operation);
            on_the_way().await;
            return Ok(result);
        }
        let writer = self
            .unless_closed(self.database.acquire_writer(self.busy_timeout))
            .await?;
        let mut wakes = Wakes::default();
        let result = operation(
            &mut self
                .database
                .work(&mut self.database.committed(), &mut wakes),
        );
        self.wake(&wakes);
        drop(writer);
        on_the_way().await;
        Ok(result)
    }

    /// Runs an operation that only looks; it waits for nobody.
    pub(super) async fn read<R: Send>(
        &self,
        at: At<'_, ReferenceConn>,
        operation: impl FnOnce(&mut Work<'_>) -> R + Send,
    ) -> Result<R> {
        self.check_open()?;
        self.unless_closed(self.database.reach()).await?;
        on_the_way().await;
        let result = match at {
            At::In(connection) if self.database.fault != Some(Fault::TxReadsOnlyCommitted) => {
                connection.run(operation)
            }
            _ => {
                let mut state = self.database.committed();
                operation(&mut self.database.work(&mut state, &mut Wakes::default()))
            }
        };
        on_the_way().await;
        Ok(result)
    }

    pub(super) fn check_open(&self) -> Result<()> {
        if *self.closed.borrow() {
            Err(Error::store_closed())
        } else {
            Ok(())
        }
    }

    pub(super) fn wake(&self, wakes: &Wakes) {
        match self.database.fault {
            Some(Fault::WakesStayInTheProcess) => wakes.iter().for_each(|t| self.hub.wake(t)),
            _ => self.database.wake(wakes),
        }
    }

    /// Waits for something, at most until the store is closed.
    pub(super) async fn unless_closed<R>(
        &self,
        what: impl Future<Output = Result<R>> + Send,
    ) -> Result<R> {
        let mut closed = self.closed.subscribe();
        tokio::select! {
            result = what => result,
            _ = closed.wait_for(|closed| *closed) => Err(Error::store_closed()),
        }
    }
}

/// The way to a database and back, on which a future may be dropped.
pub(super) async fn on_the_way() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}

impl Backend for Reference {
    type Conn = ReferenceConn;
    type Tx = ReferenceTx;

    async fn begin(&self) -> Result<ReferenceTx> {
        self.check_open()?;
        self.unless_closed(self.database.reach()).await?;
        self.unless_closed(ReferenceTx::begin_own(&self.database, self.busy_timeout))
            .await
    }

    fn downcast(connection: &mut (dyn Any + Send)) -> Option<&mut ReferenceConn> {
        if connection.is::<ReferenceTx>() {
            return connection.downcast_mut::<ReferenceTx>().map(|tx| &mut **tx);
        }
        connection.downcast_mut()
    }

    fn upcast(connection: &mut ReferenceConn) -> &mut (dyn Any + Send) {
        connection
    }

    fn reread_interval(&self) -> Duration {
        Duration::from_secs(3600)
    }

    async fn close(&self) {
        self.closed.send_replace(true);
        match self.database.fault {
            Some(Fault::CloseLeavesReceivers) => {}
            Some(Fault::CloseClosesOthers) => self.database.hubs.close_all(),
            _ => self.hub.close(),
        }
    }
}
