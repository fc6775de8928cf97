//! The connections: one that writes, some that read, and the pool of sqlx.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use alkstore::engine::Topic;
use alkstore::engine::coalesce::{Failed, Lanes};
use alkstore::{Error, Result};
use rusqlite::Connection;
use sqlx::{SqliteConnection, SqlitePool};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard, OwnedMutexGuard};
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

use crate::checkpoint::Checkpoints;
use crate::coalesce::{Write, Wrote};
use crate::error::{Answer, Busy, Failure};
use crate::exec::{Awaiting, Inline};
use crate::notify::Hearing;
use crate::place::Place;
use crate::readers::Readers;
use crate::session::Sessions;
use crate::watch::Watch;

/// One opened database.
pub(crate) struct Inner {
    pub(crate) place: Place,
    pub(crate) settings: Settings,
    /// Whoever holds this may write: the one queue that writers of this process stand in.
    writer: Arc<AsyncMutex<Writer>>,
    /// A `Tx` holds the writer, or is about to.
    in_transaction: AtomicBool,
    readers: Readers,
    pub(crate) lanes: Lanes<Write, Wrote>,
    pub(crate) pool: SqlitePool,
    pub(crate) sessions: Sessions,
    /// The pool was made here and is closed with the store.
    pub(crate) own_pool: bool,
    pub(crate) hearing: Arc<Hearing>,
    pub(crate) watch: Mutex<Option<Watch>>,
    closed: AtomicBool,
}

/// What the options say.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) busy_timeout: Duration,
    pub(crate) readers: usize,
    pub(crate) reread_interval: Duration,
    pub(crate) wake_debounce: Duration,
    pub(crate) clock_offset: Arc<AtomicI64>,
}

/// The connection that writes; gone once the database is closed.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) connection: Option<Connection>,
    checkpoints: Checkpoints,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn new(
        place: Place,
        settings: Settings,
        writer: Connection,
        pool: SqlitePool,
        own_pool: bool,
    ) -> Self {
        Self {
            readers: Readers::new(settings.readers),
            hearing: Arc::default(),
            sessions: Sessions::default(),
            writer: Arc::new_cyclic(|own| {
                AsyncMutex::new(Writer {
                    checkpoints: Checkpoints::take_over(&writer, own.clone()),
                    connection: Some(writer),
                })
            }),
            in_transaction: AtomicBool::new(false),
            lanes: Lanes::default(),
            watch: Mutex::new(None),
            closed: AtomicBool::new(false),
            place,
            settings,
            pool,
            own_pool,
        }
    }

    /// The engine's clock, in unix seconds.
    pub(crate) fn now(&self) -> i64 {
        let host = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let host = host.map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        });
        host.saturating_add(self.settings.clock_offset.load(Ordering::SeqCst))
    }

    /// Runs `operation` in a write transaction and commits it, then wakes what `touched`
    /// names.
    ///
    /// Nothing is awaited between the begin and the commit, so a dropped future has done
    /// everything or nothing.
    pub(crate) async fn write<T>(
        &self,
        doing: &'static str,
        operation: impl Fn(&mut Inline<'_>, i64) -> Answer<T> + Send,
        touched: impl Fn(&T, &mut dyn FnMut(Topic<'_>)) + Send,
    ) -> Result<T> {
        // Nothing below waits as a rule: a task that calls again and again lets others run.
        consume_budget().await;
        self.check_still_there(doing)?;
        let mut backoff = Backoff::new(self.settings.busy_timeout);
        let mut writer = self.hold_writer(doing, &mut backoff).await?;
        loop {
            let result = begin(writer.open()?).map_err(Unwritten::undone);
            match result.and_then(|()| self.finish(&mut writer, &operation, &touched)) {
                Ok(value) => return Ok(value),
                Err(unwritten) if unwritten.failure.is_busy() => backoff.busy(doing).await?,
                Err(unwritten) => return Err(unwritten.failure.into_error(doing)),
            }
        }
    }

    /// Begins a write transaction for whoever has waited since then.
    pub(crate) async fn begin_writing(
        &self,
        doing: &'static str,
        since: Instant,
    ) -> Result<Writing> {
        self.check_still_there(doing)?;
        let mut backoff = Backoff::since(since, self.settings.busy_timeout);
        let waiting = Arc::clone(&self.writer).lock_owned();
        let mut writer = match Arc::clone(&self.writer).try_lock_owned() {
            Ok(writer) => writer,
            Err(_) => timeout(backoff.left(), waiting)
                .await
                .map_err(|_| self.who_holds_it().into_error(doing))?,
        };
        loop {
            match begin(writer.open()?) {
                Ok(()) => return Ok(Writing(writer)),
                Err(failure) if failure.is_busy() => backoff.busy(doing).await?,
                Err(failure) => return Err(failure.into_error(doing)),
            }
        }
    }

    /// Runs `operation` in a transaction that has begun, as [`Inner::write`] does.
    pub(crate) async fn write_on<T>(
        &self,
        doing: &'static str,
        mut writing: Writing,
        operation: impl Fn(&mut Inline<'_>, i64) -> Answer<T> + Send,
        touched: impl Fn(&T, &mut dyn FnMut(Topic<'_>)) + Send,
    ) -> Result<T, Failed> {
        let mut backoff = Backoff::new(self.settings.busy_timeout);
        loop {
            match self.finish(&mut writing.0, &operation, &touched) {
                Ok(value) => return Ok(value),
                Err(unwritten) if unwritten.failure.is_busy() => {
                    backoff.busy(doing).await.map_err(Failed::Broken)?;
                    let begun = writing.0.open().map(begin).map_err(Failed::Broken)?;
                    begun.map_err(|failure| Failed::Broken(failure.into_error(doing)))?;
                }
                Err(unwritten) => return Err(unwritten.into_failed(doing)),
            }
        }
    }

    /// Does the operation in the transaction that has begun, ends that, and sees to what comes
    /// of it.
    fn finish<T>(
        &self,
        writer: &mut Writer,
        operation: &impl Fn(&mut Inline<'_>, i64) -> Answer<T>,
        touched: &impl Fn(&T, &mut dyn FnMut(Topic<'_>)),
    ) -> Result<T, Unwritten> {
        let Some(connection) = &mut writer.connection else {
            return Err(Unwritten::undone(Failure::internal("the writer is gone")));
        };
        // The clock is read once the writer is held: waiting for it takes nothing off a lease.
        let result = operation(&mut Inline(connection), self.now());
        let result = result.map_err(Unwritten::undone).and_then(|value| {
            self.commit(connection).map_err(Unwritten::in_doubt)?;
            // Nothing is acknowledged that nobody can read.
            let there = self.place.check_still_there();
            there.map_err(Unwritten::in_doubt)?;
            Ok(value)
        });
        if result.is_err() {
            roll_back(connection);
        }
        let value = result?;
        if self.hearing.hub().is_attached() {
            touched(&value, &mut |topic| {
                self.hearing.committed(connection, topic)
            });
        }
        writer.checkpoints.committed(&self.place, connection);
        Ok(value)
    }

    fn commit(&self, connection: &Connection) -> Answer<()> {
        let deadline = Instant::now().checked_add(self.settings.busy_timeout);
        loop {
            let result = connection.prepare_cached("COMMIT")?.execute([]);
            match result.map_err(Failure::from) {
                // Only in memory can readers stand in the way of a commit, for as long as
                // one statement of theirs takes; a file in WAL mode has no such moment.
                Err(failure)
                    if self.place.memory
                        && failure.is_busy()
                        && deadline.is_none_or(|end| Instant::now() < end) =>
                {
                    std::thread::sleep(Duration::from_micros(50));
                }
                result => return result.map(|_| ()),
            }
        }
    }

    /// Runs a read on a connection of its own.
    pub(crate) async fn read<T>(
        &self,
        doing: &'static str,
        operation: impl Fn(&mut Inline<'_>, i64) -> Answer<T> + Send,
    ) -> Result<T> {
        consume_budget().await;
        self.check_process(doing)?;
        let mut backoff = Backoff::new(self.settings.busy_timeout);
        // Where this future is dropped the connection is closed, and the next one made anew.
        let (_permit, mut reader) = self.readers.take(&self.place, doing, &mut backoff).await?;
        loop {
            match operation(&mut Inline(&mut reader), self.now()) {
                Err(failure) if failure.is_busy() => backoff.busy(doing).await?,
                result => {
                    self.readers.give(reader);
                    return result.map_err(|failure| failure.into_error(doing));
                }
            }
        }
    }

    /// Runs an operation of one statement in a transaction that somebody else commits.
    pub(crate) async fn join<T>(
        &self,
        doing: &'static str,
        connection: &mut SqliteConnection,
        operation: impl AsyncFnOnce(&mut Awaiting<'_>, i64) -> Answer<T>,
    ) -> Result<T> {
        let result = operation(&mut Awaiting(connection), self.now()).await;
        result.map_err(|failure| failure.into_joined_error(doing))
    }

    /// Runs an operation of several statements, so that all of them land or none.
    pub(crate) async fn join_whole<T>(
        &self,
        doing: &'static str,
        connection: &mut SqliteConnection,
        operation: impl AsyncFnOnce(&mut Awaiting<'_>, i64) -> Answer<T>,
    ) -> Result<T> {
        let mut x = Awaiting(connection);
        let result = match x.mark().await {
            Ok(()) => {
                let result = operation(&mut x, self.now()).await;
                x.settle(result).await
            }
            Err(failure) => Err(failure),
        };
        result.map_err(|failure| failure.into_joined_error(doing))
    }

    /// Before a write, too: the log of a file that was replaced would be read into the new one.
    pub(crate) fn check_still_there(&self, doing: &str) -> Result<()> {
        // The last connection takes the log with it.
        if self.is_closed() {
            return Err(Error::store_closed());
        }
        let there = self.place.check_still_there();
        there.map_err(|failure| failure.into_error(doing))
    }

    fn check_process(&self, doing: &str) -> Result<()> {
        let same = self.place.check_process();
        same.map_err(|failure| failure.into_error(doing))
    }

    async fn hold_writer(
        &self,
        doing: &'static str,
        backoff: &mut Backoff,
    ) -> Result<MutexGuard<'_, Writer>> {
        match self.writer.try_lock() {
            Ok(writer) => Ok(writer),
            Err(_) => timeout(backoff.left(), self.writer.lock())
                .await
                .map_err(|_| self.who_holds_it().into_error(doing)),
        }
    }

    /// The writer, for a transaction that outlives the call.
    pub(crate) async fn keep_writer(
        self: &Arc<Self>,
        doing: &'static str,
        backoff: &mut Backoff,
    ) -> Result<Kept> {
        let waiting = Arc::clone(&self.writer).lock_owned();
        let writer = timeout(backoff.left(), waiting)
            .await
            .map_err(|_| self.who_holds_it().into_error(doing))?;
        self.in_transaction.store(true, Ordering::SeqCst);
        Ok(Kept {
            writer,
            inner: Arc::clone(self),
        })
    }

    /// Why the writer was not free in time: else it is held for microseconds, or by one who
    /// waits for another process.
    fn who_holds_it(&self) -> Busy {
        if self.in_transaction.load(Ordering::SeqCst) {
            Busy::OwnTransaction
        } else {
            Busy::OtherProcess
        }
    }

    /// Closes everything; what is in the middle of something is waited for, within reason.
    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.hearing.hub().close();
        self.stop_watching();
        self.readers.close();
        self.sessions.close(self.settings.busy_timeout).await;
        if let Ok(mut writer) = timeout(self.settings.busy_timeout, self.writer.lock()).await {
            writer.connection = None;
            writer.checkpoints = Checkpoints::default();
        }
        if self.own_pool {
            // A transaction that the caller still holds would never let this end.
            timeout(self.settings.busy_timeout, self.pool.close())
                .await
                .ok();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn stop_watching(&self) {
        let watch = self
            .watch
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(watch);
    }
}

impl Writer {
    /// The connection, unless the database is closed.
    fn open(&mut self) -> Result<&mut Connection> {
        self.connection.as_mut().ok_or_else(Error::store_closed)
    }
}

fn begin(connection: &mut Connection) -> Answer<()> {
    if !connection.is_autocommit() {
        // A rollback that failed, of an attempt before, is made up for.
        connection.execute_batch("ROLLBACK")?;
    }
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    Ok(())
}

fn roll_back(connection: &Connection) {
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK").ok();
    }
}

/// The writer, with a transaction that has begun. Dropping it rolls that back.
#[derive(Debug)]
pub(crate) struct Writing(OwnedMutexGuard<Writer>);

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(connection) = &self.0.connection {
            roll_back(connection);
        }
    }
}

/// A write transaction that was rolled back.
#[derive(Debug)]
struct Unwritten {
    failure: Failure,
    /// It was the commit that failed: what of it reached the disk may come back after a crash.
    in_doubt: bool,
}

impl Unwritten {
    fn undone(failure: Failure) -> Self {
        Self {
            failure,
            in_doubt: false,
        }
    }

    fn in_doubt(failure: Failure) -> Self {
        Self {
            failure,
            in_doubt: true,
        }
    }

    fn into_failed(self, doing: &str) -> Failed {
        let error = self.failure.into_error(doing);
        if self.in_doubt {
            Failed::Broken(error)
        } else {
            Failed::Undone(error)
        }
    }
}

/// The writer, held for a `Tx`.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) writer: OwnedMutexGuard<Writer>,
    pub(crate) inner: Arc<Inner>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.inner.in_transaction.store(false, Ordering::SeqCst);
    }
}

/// Waits between attempts on a database that others keep busy, until a deadline.
#[derive(Debug)]
pub(crate) struct Backoff {
    deadline: Option<Instant>,
    attempts: u32,
}

impl Backoff {
    pub(crate) fn new(most: Duration) -> Self {
        Self::since(Instant::now(), most)
    }

    /// For whoever has waited since then already.
    fn since(since: Instant, most: Duration) -> Self {
        Self {
            deadline: since.checked_add(most),
            attempts: 0,
        }
    }

    /// Waits as [`Backoff::pause`] does for whoever else has the write lock.
    async fn busy(&mut self, doing: &str) -> Result<()> {
        let paused = self.pause().await;
        paused.map_err(|()| Busy::OtherProcess.into_error(doing))
    }

    /// How much time is left.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.map_or(Duration::MAX, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        })
    }

    /// Lets others run, the longer the more often it was called; `Err` past the deadline.
    pub(crate) async fn pause(&mut self) -> Result<(), ()> {
        /// A write transaction of this crate's is shorter than this many yields.
        const YIELDS: u32 = 3;
        /// So that a writer that waits is not overtaken for long, in milliseconds.
        const LONGEST: u64 = 8;
        let left = self.left();
        if left.is_zero() {
            return Err(());
        }
        if self.attempts < YIELDS {
            tokio::task::yield_now().await;
        } else {
            let longest = (1 << (self.attempts - YIELDS).min(8)).min(LONGEST);
            let pause = Duration::from_millis(fastrand::u64(1..=longest));
            tokio::time::sleep(pause.min(left)).await;
        }
        self.attempts += 1;
        Ok(())
    }
}
