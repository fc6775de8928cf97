//! The connections: one that writes, some that read, and the pool of sqlx.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use alkstore::engine::Topic;
use alkstore::engine::{Batch, BatchError, Written};
use alkstore::{Error, Result};
use rusqlite::Connection;
use sqlx::{SqliteConnection, SqlitePool};
use tokio::task::coop::consume_budget;
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::checkpoint::Checkpoints;
use crate::error::{Answer, Busy, Failure};
use crate::exec::{Awaiting, Inline};
use crate::gate::{Entered, Gate};
use crate::notify::Hearing;
use crate::place::Place;
use crate::readers::Readers;
use crate::session::Sessions;
use crate::watch::Watch;

/// One opened database.
pub(crate) struct Inner {
    pub(crate) place: Place,
    pub(crate) settings: Settings,
    /// The one line that writers of this process stand in.
    gate: Arc<Gate>,
    /// A `Tx` holds the writer, or is about to.
    in_transaction: AtomicBool,
    readers: Readers,
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
#[derive(Debug, Default)]
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
            gate: Arc::new_cyclic(|own| {
                Gate::new(Writer {
                    checkpoints: Checkpoints::take_over(&writer, own.clone()),
                    connection: Some(writer),
                })
            }),
            in_transaction: AtomicBool::new(false),
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
        self.instant().0
    }

    /// The same, and the time since that second began.
    pub(crate) fn instant(&self) -> (i64, Duration) {
        let host = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let host = host.unwrap_or_default();
        let seconds = i64::try_from(host.as_secs()).unwrap_or(i64::MAX);
        let offset = self.settings.clock_offset.load(Ordering::SeqCst);
        let subsec = Duration::from_nanos(host.subsec_nanos().into());
        (seconds.saturating_add(offset), subsec)
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
        let mut backoff = Backoff::new(self.settings.busy_timeout);
        loop {
            let entered = self.enter(doing, &backoff).await?;
            self.check_still_there(doing)?;
            let result = {
                let mut writer = entered.writer();
                let begun = begin(writer.open()?).map_err(Unwritten::undone);
                begun.and_then(|()| self.finish(&mut writer, &operation, &touched))
            };
            // Others may try while this one pauses.
            drop(entered);
            match result {
                Ok(value) => return Ok(value),
                Err(unwritten) if unwritten.failure.is_busy() => {
                    backoff.busy(doing, self.who_is_busy()).await?;
                }
                Err(unwritten) => return Err(unwritten.failure.into_error(doing)),
            }
        }
    }

    /// Runs a batch in a write transaction of its own.
    ///
    /// The batch is formed once the transaction has begun, and nothing is awaited from then on.
    pub(crate) async fn write_batch<T: FromIterator<Written>>(
        &self,
        batch: &mut Batch,
        run: impl FnOnce(&mut Batch, &mut Writer) -> Result<T, Unwritten> + Send,
    ) -> Result<T, BatchError> {
        consume_budget().await;
        // Each call of the batch has its own limit.
        let mut backoff = Backoff::new(Duration::MAX);
        loop {
            let entered = self.gate.enter().await.map_err(BatchError::Failed)?;
            self.check_still_there(WRITING)
                .map_err(BatchError::Failed)?;
            {
                let mut writer = entered.writer();
                match begin(writer.open().map_err(BatchError::Failed)?) {
                    Ok(()) => {
                        let result = run(batch, &mut writer);
                        return result.map_err(|unwritten| self.batch_error(unwritten));
                    }
                    Err(failure) if failure.is_busy() => {}
                    Err(failure) => return Err(BatchError::Failed(failure.into_error(WRITING))),
                }
            }
            drop(entered);
            backoff.pause().await.ok();
        }
    }

    fn batch_error(&self, unwritten: Unwritten) -> BatchError {
        if unwritten.failure.is_busy() {
            return BatchError::Blocked(self.who_is_busy().into_error(WRITING));
        }
        let error = unwritten.failure.into_error(WRITING);
        if unwritten.in_doubt {
            BatchError::Failed(error)
        } else {
            BatchError::Refused(error)
        }
    }

    /// Does the operation in the transaction that has begun, ends that, and sees to what comes
    /// of it.
    pub(crate) fn finish<T>(
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
            let there = self.place.check_after_write();
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
        /// A read of this crate's is shorter than this.
        const SPIN: Duration = Duration::from_micros(100);
        let begun = Instant::now();
        loop {
            let result = connection.prepare_cached("COMMIT")?.execute([]);
            match result.map_err(Failure::from) {
                // Only in memory can readers stand in the way of a commit, for as long as
                // a statement of theirs takes; a file in WAL mode has no such moment. If it takes
                // long, the write is tried anew later.
                Err(failure)
                    if self.place.memory && failure.is_busy() && begun.elapsed() < SPIN =>
                {
                    std::thread::yield_now();
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
                Err(failure) if failure.is_busy() => {
                    backoff.busy(doing, Busy::OtherProcess).await?;
                }
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
        let there = self.place.check_before_write();
        there.map_err(|failure| failure.into_error(doing))
    }

    /// The same, however lately it was checked.
    pub(crate) fn check_all_there(&self, doing: &str) -> Result<()> {
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

    async fn enter(&self, doing: &'static str, backoff: &Backoff) -> Result<Entered> {
        if let Some(entered) = self.gate.try_enter() {
            return Ok(entered);
        }
        timeout(backoff.left(), self.gate.enter())
            .await
            .map_err(|_| self.who_holds_it().into_error(doing))?
    }

    /// The writer, for a transaction that outlives the call.
    pub(crate) async fn keep_writer(
        self: &Arc<Self>,
        doing: &'static str,
        backoff: &mut Backoff,
    ) -> Result<Kept> {
        let entered = self.enter(doing, backoff).await?;
        self.in_transaction.store(true, Ordering::SeqCst);
        Ok(Kept {
            entered,
            inner: Arc::clone(self),
        })
    }

    /// Why the writer was not free in time: else it is held for microseconds, or by one who
    /// waits for another process.
    pub(crate) fn who_holds_it(&self) -> Busy {
        if self.in_transaction.load(Ordering::SeqCst) {
            Busy::OwnTransaction
        } else {
            self.who_is_busy()
        }
    }

    /// Who kept the database busy for one who had the gate.
    fn who_is_busy(&self) -> Busy {
        if self.place.memory {
            Busy::OwnReader
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
        if let Ok(Ok(entered)) = timeout(self.settings.busy_timeout, self.gate.close()).await {
            let mut writer = entered.writer();
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

/// A write transaction that was rolled back.
#[derive(Debug)]
pub(crate) struct Unwritten {
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
}

/// The writer, held for a `Tx`.
#[derive(Debug)]
pub(crate) struct Kept {
    entered: Entered,
    pub(crate) inner: Arc<Inner>,
}

impl Kept {
    /// The writer, for as long as nothing is awaited.
    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.entered.writer()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.inner.in_transaction.store(false, Ordering::SeqCst);
    }
}

/// What a batch is called in errors.
pub(crate) const WRITING: &str = "writing";
