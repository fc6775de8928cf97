//! The store: one database, opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::batch::Lanes;
use crate::boxed::{BoxedEngine, BoxedStore};
use crate::engine::{Engine, Open};
use crate::{Error, Result};

/// A database with the mechanisms of this library, cheap to clone.
///
/// `Store<Sqlite>` or `Store<Postgres>` is compiled for that engine and dispatches
/// statically; [`BoxedStore`] is the same for code that does not name an engine. Methods are
/// grouped by mechanism: see [`Store::queue`], [`Store::stream`], [`Store::listen`],
/// [`Store::try_lock`], [`Store::outbox`], [`Store::schedule`], [`Store::begin_tx`].
///
/// Dropping the last clone, handles and receivers included, stops the engine's background
/// work.
#[derive(Debug)]
pub struct Store<E> {
    engine: E,
    closed: Arc<AtomicBool>,
    lanes: Arc<Lanes>,
}

impl<E: Engine> Clone for Store<E> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            closed: Arc::clone(&self.closed),
            lanes: Arc::clone(&self.lanes),
        }
    }
}

impl<E: Engine> Store<E> {
    /// A store over an engine that was opened with options of its own.
    ///
    /// ```
    /// # use alkstore::{Engine, Store};
    /// fn service<E: Engine>(engine: E) -> Store<E> {
    ///     Store::new(engine)
    /// }
    /// ```
    pub fn new(engine: E) -> Self {
        Self {
            engine,
            closed: Arc::default(),
            lanes: Arc::default(),
        }
    }

    /// Opens a database by its URL or path and brings its schema up to date, safely from many
    /// processes at once.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] if it cannot be opened, or its schema is newer than this library;
    /// then nothing was changed. [`Error::InvalidArgument`] for a target that the engine does
    /// not understand.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have brought the schema up to date.
    ///
    /// ```
    /// # use alkstore::{Open, Result, Store};
    /// # async fn example<Sqlite: Open>() -> Result<()> {
    /// let store = Store::<Sqlite>::open("app.db").await?;
    /// # Ok(()) }
    /// ```
    pub async fn open(target: &str) -> Result<Self>
    where
        E: Open,
    {
        E::open(target).await.map(Self::new)
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The same store for code that does not name an engine. Closing either closes both.
    ///
    /// ```
    /// # use alkstore::{BoxedStore, Engine, Store};
    /// fn erase<E: Engine>(store: Store<E>) -> BoxedStore {
    ///     store.boxed()
    /// }
    /// ```
    #[must_use]
    pub fn boxed(self) -> BoxedStore {
        Store {
            engine: BoxedEngine::new(self.engine),
            closed: self.closed,
            lanes: self.lanes,
        }
    }

    /// Closes the store and all its clones: receivers end, operations that wait finish or
    /// fail, later ones fail with [`Error::Database`] whose source says that the store is
    /// closed. Idempotent.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has closed the store; connections may still be closing.
    ///
    /// ```
    /// # use alkstore::{Engine, Store};
    /// # async fn example<E: Engine>(store: Store<E>) {
    /// store.close().await;
    /// assert!(store.is_closed());
    /// # }
    /// ```
    pub async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.lanes.close();
        self.engine.close().await;
    }

    /// Whether [`Store::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    /// The engine, unless the store is closed: the way of every operation to it.
    #[inline]
    pub(crate) fn live(&self) -> Result<&E> {
        if self.is_closed() {
            Err(Error::store_closed())
        } else {
            Ok(&self.engine)
        }
    }
}
