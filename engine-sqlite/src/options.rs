//! The options, and opening.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use alkstore::engine::check_runtime;
use alkstore::{Error, Result};
use rusqlite::Connection;
use sqlx::SqlitePool;
use sqlx::sqlite::{SqlitePoolOptions, SqliteSynchronous};

use crate::Sqlite;
use crate::backend::{Inner, Settings};
use crate::backoff::Backoff;
use crate::error::{Answer, Busy, Failure};
use crate::notify;
use crate::place::{Place, Role};
use crate::schema::{self, Schema};

/// The longest busy timeout that SQLite can be told, in milliseconds of 31 bits.
const MOST_PATIENCE: Duration = Duration::from_millis(i32::MAX as u64);

/// The time that opening a connection has, which is no wait for a lock.
const CONNECTING: Duration = Duration::from_secs(1);

/// When a commit has reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Synchronous {
    /// At the latest when the write-ahead log is next copied into the database. A crash of
    /// the process loses nothing; a loss of power may lose the last commits, never a part of
    /// one and never one before another.
    #[default]
    Normal,
    /// Before it returns: a loss of power loses nothing that was committed.
    Full,
}

/// How to open a [`Sqlite`].
///
/// ```
/// use std::time::Duration;
/// use alkstore::Store;
/// use alkstore_sqlite::{SqliteOptions, Synchronous};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> alkstore::Result<()> {
/// let engine = SqliteOptions::new()
///     .synchronous(Synchronous::Full)
///     .busy_timeout(Duration::from_secs(10))
///     .open(":memory:")
///     .await?;
/// let store = Store::new(engine);
/// # store.close().await;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct SqliteOptions {
    synchronous: Synchronous,
    settings: Settings,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::default(),
            settings: Settings {
                busy_timeout: Duration::from_secs(5),
                readers: 4,
                reread_interval: Duration::from_secs(5),
                wake_debounce: Duration::from_millis(1),
                clock_offset: Arc::default(),
            },
        }
    }
}

impl SqliteOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// When a commit has reached the disk; [`Synchronous::Normal`] by default. Over an
    /// application's pool this is for the engine's own connections; the pool keeps its
    /// setting.
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// The longest wait for a writer, of this process or another, or for a connection; 5
    /// seconds by default. Opening waits so long at most, too. Zero waits for nobody; the
    /// pool's connections wait 24 days at most.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.settings.busy_timeout = timeout;
        self
    }

    /// How many reads run at once; 4 by default, and 1 where less is given. Each has a connection of its
    /// own, made when it is needed.
    pub fn readers(mut self, readers: usize) -> Self {
        self.settings.readers = readers;
        self
    }

    /// How long a lost wake may delay what waits on it, and how often the database is looked
    /// at where its file cannot be watched; 5 seconds by default, and a millisecond where less
    /// is given.
    pub fn reread_interval(mut self, interval: Duration) -> Self {
        self.settings.reread_interval = interval.max(Duration::from_millis(1));
        self
    }

    /// How long commits of other processes are gathered after the first one of a burst, which
    /// wakes at once; 1 millisecond by default, and never longer than the re-read interval.
    pub fn wake_debounce(mut self, debounce: Duration) -> Self {
        self.settings.wake_debounce = debounce;
        self
    }

    /// Seconds that are added to the host's clock, for tests that cannot wait.
    #[doc(hidden)]
    pub fn clock_offset(mut self, offset: Arc<AtomicI64>) -> Self {
        self.settings.clock_offset = offset;
        self
    }

    /// Opens a database and brings its schema up to date.
    ///
    /// `target` is a path, or a URL: `sqlite://app.db?mode=rwc`, with the parameters `mode` and
    /// `vfs`. A missing file is created, unless the URL says `mode=rw`; missing folders are
    /// not. `:memory:` and `sqlite::memory:` are a new database in memory that only this
    /// engine and its clones share.
    ///
    /// The store stays with the file that is found now, whatever becomes of the working
    /// directory and of symbolic links. A database on a network file system is warned of with
    /// `tracing`, where the system tells (Linux): WAL mode needs a local one.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], with the path in its message, if the database cannot be opened or
    /// written, or if its schema is newer than this crate; then nothing was changed.
    /// [`Error::InvalidArgument`] for a target that is neither a path nor a URL of SQLite, or
    /// has other parameters. [`Error::Database`] outside of a Tokio runtime, or in one without
    /// a time driver.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have created the file, or brought the schema up to date.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> alkstore::Result<()> {
    /// let engine = alkstore_sqlite::SqliteOptions::new().open("sqlite::memory:").await?;
    /// # Ok(()) }
    /// ```
    pub async fn open(self, target: &str) -> Result<Sqlite> {
        check_runtime()?;
        let mut place = Place::parse(target)?;
        let writer = self.prepare(&mut place).await?;
        // The driver panics beyond this.
        let patience = self.settings.busy_timeout.min(MOST_PATIENCE);
        let options = place
            .options()
            .busy_timeout(patience)
            .synchronous(match self.synchronous {
                Synchronous::Normal => SqliteSynchronous::Normal,
                Synchronous::Full => SqliteSynchronous::Full,
            });
        // A connection to a file does not go stale while it is idle.
        let pool = SqlitePoolOptions::new()
            .test_before_acquire(false)
            .acquire_timeout(patience.max(CONNECTING))
            .connect_lazy_with(options);
        Ok(Sqlite(Arc::new(Inner::new(
            place,
            self.settings,
            writer,
            pool,
            true,
        ))))
    }

    /// Opens the database of a pool that the application has, and brings its schema up to
    /// date. Transactions run on one connection that the engine takes out of the pool with the
    /// first of them, so that it is set up as the pool does it; the pool may replace it. SQLite's
    /// commit and rollback hooks of that connection are the engine's. The pool stays the
    /// application's to close.
    ///
    /// The database is switched to WAL mode if it is in another.
    ///
    /// # Errors
    ///
    /// As for [`SqliteOptions::open`]; [`Error::InvalidArgument`] for a database in memory
    /// that cannot be shared: name it `file:/name?vfs=memdb`.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have brought the schema up to date.
    ///
    /// ```
    /// use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let shared = SqliteConnectOptions::new().filename("file:/shop?vfs=memdb");
    /// let pool = SqlitePoolOptions::new().connect_with(shared).await?;
    /// let engine = alkstore_sqlite::SqliteOptions::new().over_pool(pool).await?;
    /// # Ok(()) }
    /// ```
    pub async fn over_pool(self, pool: SqlitePool) -> Result<Sqlite> {
        check_runtime()?;
        let mut place = Place::of_pool(&pool.connect_options())?;
        let writer = self.prepare(&mut place).await?;
        Ok(Sqlite(Arc::new(Inner::new(
            place,
            self.settings,
            writer,
            pool,
            false,
        ))))
    }

    /// Opens the connection that writes, to a database that is ready for use.
    async fn prepare(&self, place: &mut Place) -> Result<Connection> {
        let doing = format!("opening the database {:?}", place.shown());
        let mut backoff = Backoff::new(self.settings.busy_timeout);
        loop {
            // From the start each time: another process may be half-way through the same.
            match self.attempt(place) {
                Ok(Opened::Ready(writer)) => {
                    place.opened(&writer);
                    place.warn_of_network();
                    return Ok(writer);
                }
                Ok(Opened::Newer(found)) => {
                    return Err(Error::database(
                        doing,
                        Newer {
                            found,
                            known: schema::NEWEST,
                        },
                    ));
                }
                Err(failure) if failure.is_busy() => {
                    backoff
                        .pause()
                        .await
                        .map_err(|()| Busy::OtherProcess.into_error(&doing))?;
                }
                Err(failure) => return Err(failure.into_error(&doing)),
            }
        }
    }

    fn attempt(&self, place: &Place) -> Answer<Opened> {
        let mut connection = place.connect(Role::Writer)?;
        let mut schema = schema::look(&connection)?;
        if let Schema::Newer(found) = schema {
            return Ok(Opened::Newer(found));
        }
        if connection.is_readonly("main")? {
            return Err(Failure::internal("the database is open for reading only"));
        }
        if !place.memory {
            set_wal(&connection)?;
        }
        connection.pragma_update(
            None,
            "synchronous",
            match self.synchronous {
                Synchronous::Normal => "NORMAL",
                Synchronous::Full => "FULL",
            },
        )?;
        if schema == Schema::Older {
            schema = schema::bring_up(&mut connection)?;
        } else {
            prove_writable(&connection)?;
        }
        match schema {
            Schema::Newer(found) => Ok(Opened::Newer(found)),
            _ => {
                notify::prune(&mut connection)?;
                Ok(Opened::Ready(connection))
            }
        }
    }
}

enum Opened {
    Ready(Connection),
    Newer(i64),
}

/// The database was made by a newer version of this crate.
#[derive(Debug, thiserror::Error)]
#[error(
    "its schema has version {found} and this library knows versions up to {known}; nothing was \
     changed"
)]
struct Newer {
    found: i64,
    known: i64,
}

/// Switches the database to WAL mode, unless it is in it.
fn set_wal(connection: &Connection) -> Answer<()> {
    let mode = |sql| connection.query_row(sql, [], |row| row.get::<_, String>(0));
    if mode("PRAGMA journal_mode")? == "wal" || mode("PRAGMA journal_mode = WAL")? == "wal" {
        return Ok(());
    }
    Err(Failure::internal(
        "the database cannot be switched to WAL mode",
    ))
}

/// Takes the write lock and gives it back, so that a database that cannot be written is
/// refused now. Somebody else who holds it shows as much.
fn prove_writable(connection: &Connection) -> Answer<()> {
    match try_lock(connection) {
        Err(failure) if !failure.is_busy() => Err(failure),
        _ => Ok(()),
    }
}

/// Whether somebody else holds the write lock.
pub(crate) fn is_locked(connection: &Connection) -> bool {
    try_lock(connection).is_err_and(|failure| failure.is_busy())
}

fn try_lock(connection: &Connection) -> Answer<()> {
    connection
        .execute_batch("BEGIN IMMEDIATE; ROLLBACK")
        .map_err(Failure::from)
}
