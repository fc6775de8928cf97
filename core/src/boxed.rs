//! The boxed facade: an engine that any engine hides in. Its operations are the object-safe
//! twins that `#[facade]` makes of the engine traits; this is what they have in common.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::engine::batch::batches_twin::DynBatches;
use crate::engine::locks_twin::DynLocks;
use crate::engine::notify_twin::DynNotify;
use crate::engine::queues_twin::DynQueues;
use crate::engine::scheduler::schedules_twin::DynSchedules;
use crate::engine::streams_twin::DynStreams;
use crate::engine::{Backend, Engine, Transaction, Wakes};
use crate::{Error, Result, Store};

/// A store for code that does not name an engine: made by [`Store::boxed`].
///
/// It has every method of a [`Store`], since it is one. A call costs one allocation and one
/// virtual call more than on the engine's own store.
///
/// ```
/// use alkstore::{BoxedStore, EnqueueOpts, QueueOpts, Result};
///
/// async fn greet(store: &BoxedStore) -> Result<()> {
///     let mail = store.queue("mail", QueueOpts::default())?;
///     mail.enqueue(&"hello", EnqueueOpts::default()).await?;
///     Ok(())
/// }
/// ```
pub type BoxedStore = Store<BoxedEngine>;

/// Any engine, with its type erased.
#[derive(Clone)]
pub struct BoxedEngine(pub(crate) Arc<dyn DynEngine>);

impl BoxedEngine {
    pub(crate) fn new<E: Engine>(engine: E) -> Self {
        Self(Arc::new(engine))
    }
}

impl fmt::Debug for BoxedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxedEngine").finish_non_exhaustive()
    }
}

/// A transaction of any engine.
pub struct BoxedTx(Box<dyn DynTransaction>);

impl fmt::Debug for BoxedTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxedTx").finish_non_exhaustive()
    }
}

/// Every part of an engine behind one pointer.
pub(crate) trait DynEngine:
    DynBackend + DynQueues + DynStreams + DynLocks + DynNotify + DynSchedules + DynBatches
{
}

impl<E: Engine> DynEngine for E {}

/// The object-safe twin of [`Backend`].
pub(crate) trait DynBackend: Send + Sync {
    fn begin(&self) -> BoxFuture<'_, Result<BoxedTx>>;
    fn reread_interval(&self) -> Duration;
    fn close(&self) -> BoxFuture<'_, ()>;
}

impl<E: Backend> DynBackend for E {
    fn begin(&self) -> BoxFuture<'_, Result<BoxedTx>> {
        Box::pin(async move {
            let tx = Backend::begin(self).await?;
            Ok(BoxedTx(Box::new(Erased::<E>(tx))))
        })
    }

    fn reread_interval(&self) -> Duration {
        Backend::reread_interval(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(Backend::close(self))
    }
}

/// The object-safe twin of [`Transaction`].
trait DynTransaction: Send {
    fn conn(&mut self) -> &mut (dyn Any + Send);
    fn check_open(&self) -> Result<()>;
    fn commit(self: Box<Self>, wakes: Wakes) -> BoxFuture<'static, Result<()>>;
    fn rollback(self: Box<Self>) -> BoxFuture<'static, Result<()>>;
}

/// A transaction together with the engine that can erase its connection.
struct Erased<E: Backend>(E::Tx);

impl<E: Backend> DynTransaction for Erased<E> {
    fn conn(&mut self) -> &mut (dyn Any + Send) {
        E::upcast(self.0.conn())
    }

    fn check_open(&self) -> Result<()> {
        self.0.check_open()
    }

    fn commit(self: Box<Self>, wakes: Wakes) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.0.commit(wakes))
    }

    fn rollback(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(self.0.rollback())
    }
}

impl Transaction for BoxedTx {
    type Conn = dyn Any + Send;

    fn conn(&mut self) -> &mut Self::Conn {
        self.0.conn()
    }

    fn check_open(&self) -> Result<()> {
        self.0.check_open()
    }

    async fn commit(self, wakes: Wakes) -> Result<()> {
        self.0.commit(wakes).await
    }

    async fn rollback(self) -> Result<()> {
        self.0.rollback().await
    }
}

impl Backend for BoxedEngine {
    type Conn = dyn Any + Send;
    type Tx = BoxedTx;

    async fn begin(&self) -> Result<BoxedTx> {
        DynBackend::begin(&*self.0).await
    }

    fn downcast(connection: &mut (dyn Any + Send)) -> Option<&mut Self::Conn> {
        Some(connection)
    }

    fn upcast(connection: &mut Self::Conn) -> &mut (dyn Any + Send) {
        connection
    }

    fn reread_interval(&self) -> Duration {
        DynBackend::reread_interval(&*self.0)
    }

    async fn close(&self) {
        DynBackend::close(&*self.0).await;
    }
}

/// The error of an operation on a connection that another driver made.
pub(crate) fn foreign_connection() -> Error {
    Error::InvalidArgument {
        argument: "connection",
        value: "of another driver".into(),
        reason: "it must be the connection, pooled connection or transaction of the driver \
                 that the store's engine is built on"
            .into(),
    }
}
