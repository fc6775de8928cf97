//! What the suite asks of an engine's tests.

use std::any::Any;
use std::future::Future;
use std::time::Duration;

use alkstore::engine::Backend;
use alkstore::{BoxedEngine, Engine, Result, Store};
use futures::future::BoxFuture;

/// The connection type of a harness's engine.
pub type Conn<H> = <<H as Harness>::Engine as Backend>::Conn;

/// The body of a transaction that the application begins with its own driver.
pub type Body<'b, C> = Box<dyn for<'c> FnOnce(&'c mut C) -> BoxFuture<'c, Result<()>> + Send + 'b>;

/// An engine under test, with one database of its own.
///
/// The suite never names an engine: what may differ between engines is a value here.
pub trait Harness: Sized + Send + Sync + 'static {
    /// The engine.
    type Engine: Engine;

    /// A fresh database, shared with nobody. It is gone when the harness is dropped.
    fn new() -> impl Future<Output = Self> + Send;

    /// A store on the database; each call one of its own, as another process would open it.
    fn open(&self) -> impl Future<Output = Store<Self::Engine>> + Send;

    /// A store like those of [`Harness::open`] that waits a fraction of a second at most for
    /// a writer, or a row, that is held.
    fn open_impatient(&self) -> impl Future<Output = Store<Self::Engine>> + Send {
        self.open()
    }

    /// Moves the engine's clock on, for all stores on this database, without waiting; back if
    /// `seconds` is negative.
    fn advance(&self, seconds: i64);

    /// Writes one business row: inserts `key` into a table whose primary key it is. Fails,
    /// without harm to the transaction if it is rolled back, when the row is there already.
    ///
    /// It has no harness, so that the body of an application's own transaction can call it.
    fn insert_row(
        connection: &mut Conn<Self>,
        key: &str,
    ) -> impl Future<Output = Result<()>> + Send;

    /// How many business rows there are, as the connection's transaction sees them.
    fn count_rows(connection: &mut Conn<Self>) -> impl Future<Output = Result<i64>> + Send;

    /// Runs `body` in a transaction that is begun, and committed or rolled back, with the
    /// driver alone, as an application does it; commits if `commit` and the body is `Ok`.
    fn with_own_tx(
        &self,
        commit: bool,
        body: Body<'_, Conn<Self>>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Runs `body` as [`Harness::with_own_tx`] does, committing if it is `Ok`, and hands it
    /// what an application has in its hands: the driver's own transaction object, around the
    /// connection, as `&mut tx` becomes it without a `*`.
    fn with_driver_tx(
        &self,
        body: Body<'_, dyn Any + Send>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Takes the source of wakes away for good (removes the database file), if the engine's
    /// receivers must close then; `false` if they never do.
    fn remove_source(&self) -> impl Future<Output = bool> + Send;

    /// The first encoded size that a notify refuses; `None` if the engine has no limit.
    fn notify_limit(&self) -> Option<usize> {
        None
    }

    /// Whether transactions that are open at once can both write (other streams, other
    /// queues). `false` if a second writer waits for the first one's end.
    fn concurrent_writers(&self) -> bool {
        false
    }

    /// How long the suite waits for what must happen, before it calls it missing.
    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }

    /// How long the suite watches that something does not happen.
    fn quiet(&self) -> Duration {
        Duration::from_millis(50)
    }
}

/// The same engine behind the boxed facade.
#[derive(Debug)]
pub struct Boxed<H>(H);

impl<H: Harness> Boxed<H> {
    fn downcast(connection: &mut (dyn Any + Send)) -> &mut Conn<H> {
        // A boxed store that hands out another engine's connection is what this would find.
        H::Engine::downcast(connection).expect("the connection is the engine's own")
    }
}

impl<H: Harness> Harness for Boxed<H> {
    type Engine = BoxedEngine;

    async fn new() -> Self {
        Self(H::new().await)
    }

    async fn open(&self) -> Store<BoxedEngine> {
        self.0.open().await.boxed()
    }

    async fn open_impatient(&self) -> Store<BoxedEngine> {
        self.0.open_impatient().await.boxed()
    }

    fn advance(&self, seconds: i64) {
        self.0.advance(seconds);
    }

    async fn insert_row(connection: &mut (dyn Any + Send), key: &str) -> Result<()> {
        H::insert_row(Self::downcast(connection), key).await
    }

    async fn count_rows(connection: &mut (dyn Any + Send)) -> Result<i64> {
        H::count_rows(Self::downcast(connection)).await
    }

    async fn with_own_tx(&self, commit: bool, body: Body<'_, dyn Any + Send>) -> Result<()> {
        let body: Body<'_, Conn<H>> = Box::new(|connection| body(H::Engine::upcast(connection)));
        self.0.with_own_tx(commit, body).await
    }

    async fn with_driver_tx(&self, body: Body<'_, dyn Any + Send>) -> Result<()> {
        self.0.with_driver_tx(body).await
    }

    async fn remove_source(&self) -> bool {
        self.0.remove_source().await
    }

    fn notify_limit(&self) -> Option<usize> {
        self.0.notify_limit()
    }

    fn concurrent_writers(&self) -> bool {
        self.0.concurrent_writers()
    }

    fn patience(&self) -> Duration {
        self.0.patience()
    }

    fn quiet(&self) -> Duration {
        self.0.quiet()
    }
}
