//! Checks that the handles of a store are still good: the process is the one that opened them,
//! and the files are the ones that everybody else finds by their names.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Answer, Failure};

/// A file that was found so lately is taken to be there still, before a write: when the write is
/// acknowledged it is looked for again.
const JUST_NOW: Duration = Duration::from_millis(2);
/// How often the log is looked for while others write again and again.
const NOW_AND_THEN: Duration = Duration::from_millis(20);

/// The process and the files that a store was opened with.
#[derive(Debug, Clone)]
pub(crate) struct Presence {
    /// When all was last found to be there, in microseconds after `opened`.
    checked: Arc<AtomicU64>,
    opened: Instant,
    process: u32,
    /// The absolute name, unless the database is in memory.
    database: Option<PathBuf>,
    /// The database and its log, as far as the file system knows them.
    files: Vec<(PathBuf, Identity)>,
}

/// The process that opened the store has forked, and this is the child.
#[derive(Debug, thiserror::Error)]
#[error(
    "the store was opened by process {opener} and cannot be used by process {user}: after a \
     fork, open a store of the child's own"
)]
struct Forked {
    opener: u32,
    user: u32,
}

/// A file of the database is gone, or there is another one of its name.
#[derive(Debug, thiserror::Error)]
#[error(
    "the file {path:?} was removed or replaced while the store was open: what is written now \
     would be lost; close the store and open it anew"
)]
struct Gone {
    path: PathBuf,
}

impl Presence {
    /// Takes down who opened the database of this absolute name, and its files. The log exists
    /// once the database was read or written in WAL mode, and lives as long as a connection.
    pub(crate) fn of(database: Option<PathBuf>) -> Self {
        let files = database.iter().flat_map(|path| {
            let mut log = path.as_os_str().to_owned();
            log.push("-wal");
            [path.to_owned(), PathBuf::from(log)]
        });
        let files = files.filter_map(|path| Identity::of(&path).map(|identity| (path, identity)));
        Self {
            checked: Arc::default(),
            opened: Instant::now(),
            process: std::process::id(),
            files: files.collect(),
            database,
        }
    }

    /// Fails in a child of the process that opened the store: it shares the parent's file
    /// handles, and has none of its threads and locks.
    pub(crate) fn check_process(&self) -> Answer<()> {
        let user = std::process::id();
        if user == self.process {
            return Ok(());
        }
        Err(Failure::stated(Forked {
            opener: self.process,
            user,
        }))
    }

    /// Fails where what is written could be read by nobody else. Costs two
    /// calls of `stat`, some microseconds together.
    pub(crate) fn check(&self) -> Answer<()> {
        self.check_process()?;
        match self.missing() {
            Some(path) => Err(Failure::stated(Gone { path: path.into() })),
            None => Ok(()),
        }
    }

    /// The same before a write, unless it was checked just now, by the write before.
    pub(crate) fn check_before(&self) -> Answer<()> {
        if self.since_check() < JUST_NOW {
            return Ok(());
        }
        self.check()?;
        self.note();
        Ok(())
    }

    /// The same before a write is acknowledged, in one call of `stat` as a rule: the log is
    /// looked at now and then.
    pub(crate) fn check_after(&self) -> Answer<()> {
        if self.since_check() > NOW_AND_THEN {
            return self.check_before();
        }
        self.check_process()?;
        match self.files.first() {
            Some((path, identity)) if Identity::of(path) != Some(*identity) => {
                Err(Failure::stated(Gone { path: path.clone() }))
            }
            _ => Ok(()),
        }
    }

    fn since_check(&self) -> Duration {
        let checked = Duration::from_micros(self.checked.load(Ordering::Relaxed));
        self.opened.elapsed().saturating_sub(checked)
    }

    fn note(&self) {
        let now = u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.checked.store(now, Ordering::Relaxed);
    }

    /// Whether all files are where they were.
    pub(crate) fn is_whole(&self) -> bool {
        self.missing().is_none()
    }

    fn missing(&self) -> Option<&Path> {
        let mut files = self.files.iter();
        let missing = files.find(|(path, identity)| Identity::of(path) != Some(*identity));
        missing.map(|(path, _)| path.as_path())
    }

    /// As a child of the process would have it after a fork.
    #[cfg(test)]
    pub(crate) fn fork(&mut self) {
        self.process += 1;
    }

    /// The database's file, unless it lives in memory.
    pub(crate) fn database(&self) -> Option<&Path> {
        self.database.as_deref()
    }
}

/// The file that a path leads to, told without opening it: closing a file that SQLite has open
/// would drop the locks of this process on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    #[cfg(unix)]
    file: (u64, u64),
    #[cfg(not(unix))]
    created: Option<std::time::SystemTime>,
}

impl Identity {
    /// The file's identity; `None` if there is none.
    fn of(path: &Path) -> Option<Self> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let (database, log) = (
            folder.path().join("app.db"),
            folder.path().join("app.db-wal"),
        );
        for path in [&database, &log] {
            std::fs::write(path, "x").expect("a file");
        }
        (folder, database, log)
    }

    fn said(presence: &Presence) -> String {
        let failure = presence.check().expect_err("it fails");
        let error = failure.into_error("writing");
        assert!(!error.is_transient());
        std::error::Error::source(&error)
            .map(ToString::to_string)
            .unwrap_or_default()
    }

    #[test]
    fn a_removed_or_replaced_file_is_named() {
        let (_folder, database, log) = files();
        for (gone, replace) in [
            (&database, false),
            (&log, false),
            (&database, true),
            (&log, true),
        ] {
            std::fs::write(gone, "x").expect("a file");
            let presence = Presence::of(Some(database.clone()));
            presence.check().expect("all is there");
            if replace {
                let new = gone.with_extension("new");
                std::fs::write(&new, "y").expect("a file");
                std::fs::rename(new, gone).expect("replaced");
            } else {
                std::fs::remove_file(gone).expect("removed");
            }
            assert!(!presence.is_whole());
            let said = said(&presence);
            assert!(said.contains(&format!("{gone:?}")), "{said}");
        }
    }

    #[tokio::test]
    async fn every_operation_in_a_forked_process_says_so() {
        use alkstore::{EnqueueOpts, QueueOpts, Store};
        let engine = crate::SqliteOptions::new().open(":memory:").await;
        let mut engine = engine.expect("it opens");
        let inner = std::sync::Arc::get_mut(&mut engine.0).expect("the only handle");
        inner.place.fork();
        let store = Store::new(engine);
        let queue = store.queue("q", QueueOpts::default()).expect("a queue");
        for error in [
            queue.enqueue("x", EnqueueOpts::default()).await.map(drop),
            queue.claim_one("w").await.map(drop),
            queue.get_job(1).await.map(drop),
            store.listen("c").await.map(drop),
            store.begin_tx().await.map(drop),
        ] {
            let error = error.expect_err("it is another process");
            let source = std::error::Error::source(&error).map(ToString::to_string);
            assert!(
                source.is_some_and(|said| said.contains("after a fork")),
                "{error:?}"
            );
        }
    }

    #[test]
    fn a_database_in_memory_has_no_files_to_miss() {
        Presence::of(None).check().expect("nothing can be missing");
    }
}
