//! Transactions: coordination and business writes commit together or not at all.

mod operations;

use crate::engine::{At, Backend, Engine, Transaction, Wakes};
use crate::{Error, Result, Store};

impl<E: Engine> Store<E> {
    /// Begins a transaction that may write.
    ///
    /// On SQLite there is one writer at a time: until the transaction ends, every other write
    /// to the database waits. An auto-commit method called while holding a `Tx` in the same
    /// task ends in a transient error after the busy timeout.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], transient where the writer or a connection is not free in time.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves no transaction open.
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>) -> Result<()> {
    /// let mut tx = store.begin_tx().await?;
    /// // Business writes go through tx.connection().
    /// tx.enqueue_tx("mail", EnqueueOpts::default(), &"welcome").await?;
    /// tx.publish_tx("users", &"signed up").await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn begin_tx(&self) -> Result<Tx<E>> {
        let tx = self.live()?.begin().await?;
        Ok(Tx::new(self.clone(), tx))
    }

    /// Runs `body` in a transaction: `Ok` commits; `Err`, a panic or a dropped future rolls
    /// back.
    ///
    /// # Errors
    ///
    /// What `body` returns, and [`Error::Database`] from beginning and committing, turned
    /// into the body's error type.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has committed everything or nothing.
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>) -> Result<()> {
    /// let id = store
    ///     .with_tx(async |tx| tx.enqueue_tx("mail", EnqueueOpts::default(), &"welcome").await)
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub async fn with_tx<T, X, F>(&self, body: F) -> Result<T, X>
    where
        F: AsyncFnOnce(&mut Tx<E>) -> Result<T, X>,
        X: From<Error>,
    {
        let mut tx = self.begin_tx().await?;
        match body(&mut tx).await {
            Ok(value) => {
                tx.commit().await?;
                Ok(value)
            }
            Err(error) => {
                // The body's error says more than a rollback that failed as well.
                tx.rollback().await.ok();
                Err(error)
            }
        }
    }

    /// Joins the transaction that the application began itself with its own driver: the same
    /// methods run in it, and commit or rollback stay with the application.
    ///
    /// `connection` is the driver's connection in that transaction; on a boxed store also the
    /// driver's transaction or pooled connection itself. If an operation fails or its future
    /// is dropped half-way, roll the transaction back.
    ///
    /// On SQLite a commit of the application's is noticed by watching the database, as one of
    /// another process would be, so wakes come a little later than for a [`Tx`].
    ///
    /// ```
    /// # use alkstore::{Engine, EnqueueOpts, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>, connection: &mut E::Conn) -> Result<()> {
    /// store.join_tx(connection).enqueue_tx("mail", EnqueueOpts::default(), &"welcome").await?;
    /// # Ok(()) }
    /// ```
    pub fn join_tx<'c>(&self, connection: &'c mut E::Conn) -> JoinedTx<'c, E> {
        Tx::new(self.clone(), Joined(connection))
    }
}

/// A transaction: the library's own, or with another `T` one that the application began.
///
/// Dropping it without a commit rolls it back. An own transaction in which an operation's
/// future was dropped before it finished can only be rolled back.
#[derive(Debug)]
pub struct Tx<E: Engine, T = <E as Backend>::Tx> {
    store: Store<E>,
    inner: T,
    wakes: Wakes,
    /// An operation has begun and its future has not finished.
    in_doubt: bool,
}

/// A transaction that the application began, see [`Store::join_tx`].
pub type JoinedTx<'c, E> = Tx<E, Joined<'c, <E as Backend>::Conn>>;

/// The connection of a transaction that the application began.
#[derive(Debug)]
pub struct Joined<'c, C: ?Sized>(&'c mut C);

/// What a [`Tx`] runs on.
pub trait OnConnection<C: ?Sized>: Send {
    /// The driver's connection.
    fn on(&mut self) -> &mut C;

    /// Fails where the transaction is known to have ended.
    fn check_open(&self) -> Result<()> {
        Ok(())
    }
}

impl<T: Transaction> OnConnection<T::Conn> for T {
    fn on(&mut self) -> &mut T::Conn {
        self.conn()
    }

    fn check_open(&self) -> Result<()> {
        Transaction::check_open(self)
    }
}

impl<C: ?Sized + Send> OnConnection<C> for Joined<'_, C> {
    fn on(&mut self) -> &mut C {
        self.0
    }
}

/// An operation that has begun: what it needs, and the mark that it has not finished.
struct Running<'t, E: Engine> {
    engine: &'t E,
    at: At<'t, E::Conn>,
    wakes: &'t mut Wakes,
    in_doubt: &'t mut bool,
}

impl<E: Engine, T: OnConnection<E::Conn>> Tx<E, T> {
    fn new(store: Store<E>, inner: T) -> Self {
        Self {
            store,
            inner,
            wakes: Wakes::default(),
            in_doubt: false,
        }
    }

    fn start(&mut self) -> Result<Running<'_, E>> {
        if self.in_doubt {
            return Err(half_done("the transaction does nothing more"));
        }
        let engine = self.store.live()?;
        self.inner.check_open()?;
        self.in_doubt = true;
        let (wakes, in_doubt) = (&mut self.wakes, &mut self.in_doubt);
        Ok(Running {
            engine,
            at: At::In(self.inner.on()),
            wakes,
            in_doubt,
        })
    }

    /// The driver's connection, for the business writes. On a boxed store it is a `dyn Any`
    /// to downcast to the driver's connection type.
    ///
    /// Commit and roll back through this transaction, not by SQL. A transaction that SQL or
    /// the database itself has ended is gone: every later operation and the commit say so.
    ///
    /// ```
    /// # use alkstore::{BoxedStore, Result};
    /// # struct SqliteConnection;
    /// # async fn example(store: BoxedStore) -> Result<()> {
    /// let mut tx = store.begin_tx().await?;
    /// if let Some(sqlite) = tx.connection().downcast_mut::<SqliteConnection>() {
    ///     // Run business SQL on it.
    /// }
    /// # Ok(()) }
    /// ```
    pub fn connection(&mut self) -> &mut E::Conn {
        self.inner.on()
    }

    /// The engine and where its operations run, for loops of this crate.
    pub(crate) fn parts(&mut self) -> (&E, &mut E::Conn, &mut Wakes) {
        (self.store.engine(), self.inner.on(), &mut self.wakes)
    }
}

impl<E: Engine> Tx<E> {
    /// Commits: everything becomes visible at once, then the wakes go out.
    ///
    /// # Errors
    ///
    /// [`Error::Database`]; then nothing was committed, unless the connection was lost while
    /// the commit was on its way: then, as with every database, it may have landed. A
    /// transaction in which an operation's future was dropped is rolled back instead, with a
    /// transient error.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has committed everything or nothing.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Tx};
    /// # async fn example<E: Engine>(tx: Tx<E>) -> Result<()> {
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn commit(self) -> Result<()> {
        if self.in_doubt {
            self.inner.rollback().await?;
            return Err(half_done("the transaction was rolled back"));
        }
        self.inner.commit(self.wakes).await
    }

    /// Rolls back: nothing of the transaction remains.
    ///
    /// # Errors
    ///
    /// [`Error::Database`]; nothing of the transaction remains then either.
    ///
    /// # Cancel safety
    ///
    /// A dropped call rolls back all the same.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Tx};
    /// # async fn example<E: Engine>(tx: Tx<E>) -> Result<()> {
    /// tx.rollback().await?;
    /// # Ok(()) }
    /// ```
    pub async fn rollback(self) -> Result<()> {
        self.inner.rollback().await
    }
}

/// What an operation that was cancelled half-way leaves to be said.
fn half_done(context: &'static str) -> Error {
    Error::transient(
        format!("{context}: an earlier operation of it was cancelled half-way"),
        "it can only be rolled back",
    )
}
