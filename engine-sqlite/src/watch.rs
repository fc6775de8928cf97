//! Hearing of what other processes commit.
//!
//! A file watcher on the database and its log says that something was written; `PRAGMA
//! data_version` on a connection of its own says whether that was a commit; then each topic
//! that someone waits for is looked at once. Between events the thread sleeps. A poll at the
//! re-read interval stands in where the watcher is missing or silent.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use alkstore::{Error, Result};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _, WatcherKind};
use rusqlite::Connection;

use crate::backend::Inner;
use crate::error::Answer;
use crate::notify::Hearing;
use crate::place::{Place, Role};

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

/// A rest between looks is cut into pieces of this length, so that a stop is noticed.
const NAP: Duration = Duration::from_millis(50);

impl Inner {
    /// Starts the watcher, unless it runs. Without a connection and a thread nothing can be
    /// heard, so that fails; without a file watcher the thread polls and tries again.
    pub(crate) fn start_watching(&self) -> Result<()> {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.is_some() || self.is_closed() {
            return Ok(());
        }
        let poll = self.settings.reread_interval;
        let poll = if self.place.memory {
            poll.min(MEMORY_POLL)
        } else {
            poll
        };
        let connection = self.place.connect(Role::Reader);
        let connection = connection.map_err(|failure| failure.into_error("listening"))?;
        let debounce = self.settings.wake_debounce.min(poll);
        let hearing = Arc::clone(&self.hearing);
        let started = Watch::start(connection, self.place.clone(), hearing, poll, debounce);
        *watch = Some(started.map_err(|error| {
            Error::transient("listening failed: there is no thread for it", error)
        })?);
        Ok(())
    }
}

/// The thread that watches. Dropping this stops it.
#[derive(Debug)]
pub(crate) struct Watch {
    signals: SyncSender<()>,
    stopped: Arc<AtomicBool>,
}

impl Watch {
    fn start(
        connection: Connection,
        place: Place,
        hearing: Arc<Hearing>,
        poll: Duration,
        debounce: Duration,
    ) -> std::io::Result<Self> {
        // Room for one: an event that finds another one waiting has nothing to add.
        let (signals, receiver) = sync_channel(1);
        let stopped = Arc::new(AtomicBool::new(false));
        let mut watching = Watching {
            connection,
            place,
            hearing,
            files: Files::Missing,
            events: signals.clone(),
            signals: receiver,
            stopped: Arc::clone(&stopped),
            debounce,
            seen: None,
        };
        // The baseline is taken before any receiver attaches; by then the log exists.
        watching.changed().ok();
        watching.watch_files(true);
        thread::Builder::new()
            .name("alkstore-sqlite-watch".into())
            .spawn(move || watching.run(poll))?;
        Ok(Self { signals, stopped })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        // With an event in the channel the thread is awake.
        self.signals.try_send(()).ok();
    }
}

/// The watcher of the database's files.
enum Files {
    /// There is nothing to watch, or no way to.
    Unwatchable,
    /// There was no room for one more watcher.
    Missing,
    Watched {
        _watcher: RecommendedWatcher,
    },
}

/// Watches the database and its write-ahead log.
fn watch_file(path: &Path, signals: SyncSender<()>) -> notify::Result<Files> {
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
            signals.try_send(()).ok();
        }
    };
    let targets: &[PathBuf] = match RecommendedWatcher::kind() {
        // The two files alone: whatever else is written in their folder costs nothing. An open
        // file keeps its watch, and is told of its removal.
        WatcherKind::Inotify => &watched,
        WatcherKind::Fsevent | WatcherKind::ReadDirectoryChangesWatcher => {
            &[path.parent().unwrap_or(path).to_owned()]
        }
        // Others open and close what they watch, which drops the locks of this process, or
        // only poll.
        _ => return Ok(Files::Unwatchable),
    };
    let mut watcher = notify::recommended_watcher(on_event)?;
    for target in targets {
        watcher.watch(target, RecursiveMode::NonRecursive)?;
    }
    Ok(Files::Watched { _watcher: watcher })
}

struct Watching {
    /// Never in a transaction: within one the data version stands still.
    connection: Connection,
    place: Place,
    hearing: Arc<Hearing>,
    files: Files,
    /// What a file watcher sends its events to.
    events: SyncSender<()>,
    signals: Receiver<()>,
    stopped: Arc<AtomicBool>,
    debounce: Duration,
    seen: Option<i64>,
}

impl Watching {
    fn run(mut self, poll: Duration) {
        // The next of the late looks; past their end nothing is expected.
        let mut late = LATE.len();
        loop {
            let pause = LATE.get(late).copied().unwrap_or(poll);
            late = match self.signals.recv_timeout(pause) {
                Ok(()) => 0,
                Err(RecvTimeoutError::Timeout) => (late + 1).min(LATE.len()),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if self.is_stopped() {
                return;
            }
            if !self.place.is_still_there() {
                self.hearing.hub().close();
                return;
            }
            if late == LATE.len() {
                // What was missed until now is looked at below.
                self.watch_files(false);
            }
            let started = Instant::now();
            if self.hear() {
                // Leading edge: the first commit of a burst wakes at once, the rest together.
                // With so many topics that a look takes long, most of the time is still idle.
                self.rest(self.debounce.max(started.elapsed() * 4));
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn rest(&self, most: Duration) {
        let started = Instant::now();
        while let Some(left) = most.checked_sub(started.elapsed())
            && !left.is_zero()
            && !self.is_stopped()
        {
            thread::sleep(left.min(NAP));
        }
    }

    /// Starts the file watcher, if there is none where there could be one.
    fn watch_files(&mut self, first: bool) {
        if !matches!(self.files, Files::Missing) {
            return;
        }
        let Some(path) = self.place.file() else {
            self.files = Files::Unwatchable;
            return;
        };
        match watch_file(path, self.events.clone()) {
            Ok(files) => self.files = files,
            Err(error) if first => tracing::warn!(
                %error,
                path = %path.display(),
                "the database file cannot be watched: until it can, wakes from other processes \
                 come at the re-read interval",
            ),
            Err(_) => {}
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
