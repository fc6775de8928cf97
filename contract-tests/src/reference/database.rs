//! The database: what is committed, who writes, and what time it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use alkstore::engine::Wakes;
use alkstore::{Error, Job, Result};
use tokio::sync::watch;
use tokio::time::Instant;

use super::notify::Hubs;
use super::rules::Rules;
use super::scheduler::Schedule;
use super::stream::Stream;
use super::writer::{Writer, WriterGuard};
use super::{Fault, lock};

/// A database in memory. It lives as long as someone holds it.
#[derive(Debug, Default)]
pub struct Database {
    committed: Mutex<State>,
    /// Whoever holds it may write.
    pub(super) writer: Arc<Writer>,
    /// How far the clock is ahead of the host's, in seconds.
    ahead: AtomicI64,
    /// The start of a clock that is the runtime's.
    started: Option<(Instant, Duration)>,
    reach: watch::Sender<Reach>,
    calls: AtomicU64,
    pub(super) hubs: Hubs,
    pub(super) fault: Option<Fault>,
}

/// The course of each operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// As they should.
    #[default]
    Open,
    /// They fail.
    Refused {
        /// With an error that may pass.
        transient: bool,
    },
    /// They wait for an answer that does not come.
    Silent,
}

/// Everything that is stored.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// The business table.
    pub(super) rows: BTreeSet<String>,
    /// Live and dead jobs by id.
    pub(super) jobs: BTreeMap<i64, Job>,
    /// The greatest id given so far.
    pub(super) last_job: i64,
    pub(super) streams: BTreeMap<String, Stream>,
    /// What consumers saved, by stream and consumer.
    pub(super) offsets: BTreeMap<(String, String), i64>,
    pub(super) locks: BTreeMap<String, lock::Record>,
    pub(super) schedules: BTreeMap<String, Schedule>,
}

/// One operation: the state that it sees and changes, at one instant.
pub(super) struct Work<'w> {
    pub(super) state: &'w mut State,
    /// What to wake once the change is committed.
    pub(super) wakes: &'w mut Wakes,
    pub(super) rules: Rules,
}

impl Database {
    /// An empty database that keeps the contract.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Self::with_fault(None)
    }

    /// An empty database that breaks one rule, or none.
    #[must_use]
    pub fn with_fault(fault: Option<Fault>) -> Arc<Self> {
        Arc::new(Self {
            fault,
            ..Self::default()
        })
    }

    /// An empty database whose clock is the runtime's, which tests can pause: it starts where
    /// the host's is.
    #[must_use]
    pub fn on_tokio_time() -> Arc<Self> {
        Arc::new(Self {
            started: Some((Instant::now(), since_epoch())),
            ..Self::default()
        })
    }

    /// Decides how operations go from now on.
    pub fn set_reach(&self, reach: Reach) {
        self.reach.send_replace(reach);
    }

    /// The count of operations that were called, those that failed included.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The time on the clock, since the epoch.
    #[must_use]
    pub fn time(&self) -> Duration {
        let (seconds, subsec) = self.instant();
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0)) + subsec
    }

    /// An operation's way to the database.
    pub(super) async fn reach(&self) -> Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let mut reach = self.reach.subscribe();
        let answers = reach.wait_for(|reach| *reach != Reach::Silent).await;
        match answers.map(|reach| *reach) {
            Ok(Reach::Refused { transient: true }) => {
                Err(Error::transient("the call failed", "the database is away"))
            }
            Ok(Reach::Refused { transient: false }) => {
                Err(Error::database("the call failed", "the database is broken"))
            }
            _ => Ok(()),
        }
    }

    /// Moves the clock on, or back.
    pub fn advance(&self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Closes all receivers for good, as an engine does whose database was taken away.
    pub fn remove_source(&self) {
        if self.fault != Some(Fault::RemovedSourceLeavesReceivers) {
            self.hubs.close_all();
        }
    }

    /// What is committed. Held for the length of a statement, never while waiting.
    pub(super) fn committed(&self) -> MutexGuard<'_, State> {
        self.committed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for its turn to write.
    pub(super) async fn acquire_writer(&self, timeout: Duration) -> Result<WriterGuard> {
        self.acquire(Arc::clone(&self.writer), timeout).await
    }

    pub(super) async fn acquire(
        &self,
        writer: Arc<Writer>,
        timeout: Duration,
    ) -> Result<WriterGuard> {
        let turn = writer.acquire();
        let timeout = match self.fault {
            Some(Fault::BusyWaitsForEver) => Duration::MAX,
            _ => timeout,
        };
        tokio::time::timeout(timeout, turn)
            .await
            .map_err(|_| self.busy())
    }

    /// The error of one that has waited for the writer in vain.
    pub(super) fn busy(&self) -> Error {
        let context = "the writer is busy";
        let cause = "another transaction held it for longer than the busy timeout";
        match self.fault {
            Some(Fault::BusyIsPermanent) => Error::database(context, cause),
            _ => Error::transient(context, cause),
        }
    }

    /// An operation that begins now.
    pub(super) fn work<'w>(&self, state: &'w mut State, wakes: &'w mut Wakes) -> Work<'w> {
        let (now, subsec) = self.instant();
        Work {
            state,
            wakes,
            rules: Rules {
                now,
                subsec,
                fault: self.fault,
            },
        }
    }

    /// The unix second that the clock shows, and the time since that began.
    fn instant(&self) -> (i64, Duration) {
        let host = match self.started {
            Some((at, since_epoch)) => since_epoch + at.elapsed(),
            None => since_epoch(),
        };
        let seconds = i64::try_from(host.as_secs()).unwrap_or(i64::MAX);
        let subsec = Duration::from_nanos(host.subsec_nanos().into());
        let ahead = self.ahead.load(Ordering::SeqCst);
        (seconds.saturating_add(ahead), subsec)
    }
}

fn since_epoch() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}
