//! Hearing of what other processes commit.
//!
//! A file watcher on the database and its log says that something was written; `PRAGMA
//! data_version` on a connection of its own says whether that was a commit; then each topic
//! that someone waits for is looked at once. Between events the thread sleeps. A poll at the
//! re-read interval stands in where the watcher is missing or silent.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _, WatcherKind};
use rusqlite::Connection;

use crate::backend::Inner;
use crate::error::Answer;
use crate::notify::Hearing;
use crate::place::Role;

/// When to look again after an event, whether or not it showed a commit: the bytes are written
/// before the index that makes them visible, by microseconds as a rule.
const LATE: [Duration; 5] = [
    Duration::from_micros(100),
    Duration::from_micros(500),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(20),
];

/// How often an in-memory database is looked at, which has no file to watch. Only commits of
/// the application's own transactions need that.
const MEMORY_POLL: Duration = Duration::from_millis(25);

impl Inner {
    /// Starts the watcher, unless it runs.
    pub(crate) fn start_watching(&self) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.is_some() || self.is_closed() {
            return;
        }
        let poll = self.settings.reread_interval;
        let poll = if self.place.memory {
            poll.min(MEMORY_POLL)
        } else {
            poll
        };
        // Without a connection or a thread there is nothing to hear with now; the next
        // listen tries again, and waits end at the re-read interval.
        let Ok(connection) = self.place.connect(Role::Reader) else {
            return;
        };
        let hearing = Arc::clone(&self.hearing);
        *watch = Watch::start(connection, hearing, poll, self.settings.wake_debounce).ok();
    }
}

/// The thread that watches. Dropping this stops it.
#[derive(Debug)]
pub(crate) struct Watch {
    signals: SyncSender<Signal>,
    /// Gone where the platform has none, or no room for one more.
    _files: Option<RecommendedWatcher>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    /// Something was written.
    Written,
    /// Nobody needs this any more.
    Stop,
}

impl Watch {
    fn start(
        connection: Connection,
        hearing: Arc<Hearing>,
        poll: Duration,
        debounce: Duration,
    ) -> std::io::Result<Self> {
        // Room for one: an event that finds another one waiting has nothing to add.
        let (signals, receiver) = sync_channel(1);
        let path = hearing.path().map(Path::to_owned);
        let mut watching = Watching {
            connection,
            hearing,
            signals: receiver,
            debounce,
            seen: None,
        };
        // The baseline is taken before any receiver attaches; by then the log exists.
        watching.changed().ok();
        let files = path.and_then(|path| watch_file(&path, signals.clone()));
        thread::Builder::new()
            .name("alkstore-sqlite-watch".into())
            .spawn(move || watching.run(poll))?;
        Ok(Self {
            signals,
            _files: files,
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // With an event in the channel the thread is awake; it then finds the channel closed.
        match self.signals.try_send(Signal::Stop) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

/// Watches the database and its write-ahead log.
fn watch_file(path: &Path, signals: SyncSender<Signal>) -> Option<RecommendedWatcher> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let watched = [path.to_owned(), PathBuf::from(log)];
    let names = watched
        .clone()
        .map(|path| path.file_name().map(ToOwned::to_owned));
    let on_event = move |event: notify::Result<notify::Event>| {
        // An event that cannot be told is one that may matter.
        let matters = event.map_or(true, |event| {
            let ours =
                |path: &PathBuf| names.iter().any(|name| name.as_deref() == path.file_name());
            !matches!(event.kind, EventKind::Access(_))
                && (event.need_rescan() || event.paths.iter().any(ours))
        });
        if matters {
            signals.try_send(Signal::Written).ok();
        }
    };
    let targets: &[PathBuf] = match RecommendedWatcher::kind() {
        // The two files alone: whatever else is written in their folder costs nothing. An open
        // file keeps its watch, and is told of its removal.
        WatcherKind::Inotify => &watched,
        WatcherKind::Fsevent | WatcherKind::ReadDirectoryChangesWatcher => {
            &[path.parent()?.to_owned()]
        }
        // Others open and close what they watch, which drops the locks of this process, or
        // only poll.
        _ => return None,
    };
    let mut files = notify::recommended_watcher(on_event).ok()?;
    for target in targets {
        files.watch(target, RecursiveMode::NonRecursive).ok()?;
    }
    Some(files)
}

struct Watching {
    /// Never in a transaction: within one the data version stands still.
    connection: Connection,
    hearing: Arc<Hearing>,
    signals: Receiver<Signal>,
    debounce: Duration,
    seen: Option<i64>,
}

impl Watching {
    fn run(mut self, poll: Duration) {
        // The next of the late looks; past their end nothing is expected.
        let mut late = LATE.len();
        loop {
            let pause = LATE.get(late).copied().unwrap_or(poll);
            match self.signals.recv_timeout(pause) {
                Ok(Signal::Written) => late = 0,
                Err(RecvTimeoutError::Timeout) => late = (late + 1).min(LATE.len()),
                Ok(Signal::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
            if !self.hearing.is_in_place() {
                self.hearing.hub().close();
                return;
            }
            let started = Instant::now();
            if self.hear() {
                // Leading edge: the first commit of a burst wakes at once, the rest together.
                // With so many topics that a look takes long, most of the time is still idle.
                thread::sleep(self.debounce.max(started.elapsed() * 4));
            }
        }
    }

    /// Wakes who waits for what was committed since the last call; `false` if nothing was.
    fn hear(&mut self) -> bool {
        match self.changed() {
            Ok(false) => false,
            // What could not be read is looked at again.
            Err(_) => {
                self.seen = None;
                false
            }
            Ok(true) => {
                if self.hearing.look(&mut self.connection).is_err() {
                    self.seen = None;
                }
                true
            }
        }
    }

    fn changed(&mut self) -> Answer<bool> {
        let version = self
            .connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        let before = self.seen.replace(version);
        Ok(before != Some(version))
    }
}

/// Which file a path leads to, told without opening it: closing a file that SQLite has open
/// would drop the locks of this process on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    #[cfg(unix)]
    file: (u64, u64),
    #[cfg(not(unix))]
    created: Option<std::time::SystemTime>,
}

impl Identity {
    /// The file's identity; `None` if there is none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt as _;
            Some(Self {
                file: (metadata.dev(), metadata.ino()),
            })
        }
        #[cfg(not(unix))]
        Some(Self {
            created: metadata.created().ok(),
        })
    }
}
