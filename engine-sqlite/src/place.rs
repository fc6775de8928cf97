//! Where the database is, and how its connections are opened.

mod diagnosis;
mod target;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteConnectOptions;

use crate::error::{Answer, Failure};
use crate::presence::Presence;

/// How many prepared statements a connection keeps; more than this crate has.
const STATEMENTS: usize = 64;

/// The WAL is cut back to this size once it was copied into the database.
const MOST_WAL_BYTES: i64 = 64 << 20;

/// A database, and how to open it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The name in SQLite's terms: an absolute path, or a URI that starts with `file:`.
    name: PathBuf,
    vfs: Option<String>,
    /// The database lives in this process's memory.
    pub(crate) memory: bool,
    create: bool,
    read_only: bool,
    /// Known once the database is open.
    presence: Option<Presence>,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The one that opens the database, and writes.
    Writer,
    /// One of those that only read.
    Reader,
}

impl Place {
    fn in_memory() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let key = fastrand::u64(..);
        Self {
            memory: true,
            ..Self::named(format!("file:/alkstore-{number}-{key:016x}?vfs=memdb").into())
        }
    }

    fn named(name: PathBuf) -> Self {
        Self {
            name,
            vfs: None,
            memory: false,
            create: true,
            read_only: false,
            presence: None,
        }
    }

    /// Keeps the absolute name, links followed, that the first connection has: every later one
    /// is to the same file, wherever the process and the links go meanwhile.
    pub(crate) fn opened(&mut self, writer: &Connection) {
        let path = writer
            .path()
            .filter(|path| !self.memory && !path.is_empty());
        let path = path.map(PathBuf::from);
        self.presence = Some(Presence::of(path.clone()));
        if let Some(path) = path {
            self.name = path;
        }
    }

    /// Fails in a child of the process that opened the database.
    pub(crate) fn check_process(&self) -> Answer<()> {
        self.presence
            .as_ref()
            .map_or(Ok(()), Presence::check_process)
    }

    /// Fails where the database's files are no longer those that were opened, so that nothing
    /// is acknowledged that nobody can read. To be called before a commit is acknowledged.
    pub(crate) fn check_still_there(&self) -> Answer<()> {
        self.presence.as_ref().map_or(Ok(()), Presence::check)
    }

    /// The same before a write; see [`Presence::check_before`].
    pub(crate) fn check_before_write(&self) -> Answer<()> {
        self.presence
            .as_ref()
            .map_or(Ok(()), Presence::check_before)
    }

    /// The same after a write; see [`Presence::check_after`].
    pub(crate) fn check_after_write(&self) -> Answer<()> {
        self.presence.as_ref().map_or(Ok(()), Presence::check_after)
    }

    /// As a child of the process would have it after a fork.
    #[cfg(test)]
    pub(crate) fn fork(&mut self) {
        self.presence.as_mut().expect("it is open").fork();
    }

    /// Whether the database's files are still those that were opened.
    pub(crate) fn is_still_there(&self) -> bool {
        self.presence.as_ref().is_none_or(Presence::is_whole)
    }

    /// The database's file, once it is open and unless it lives in memory.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.presence.as_ref()?.database()
    }

    /// Opens a connection that never sleeps when it finds the database busy.
    pub(crate) fn connect(&self, role: Role) -> Answer<Connection> {
        self.check_process()?;
        // The name is read as sqlx reads it, so that both open the same file.
        let mut flags = OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // Readers could write, too, but for a pragma: whichever connection closes last can then
        // copy the log into the database and remove it.
        flags |= match role {
            Role::Writer if self.read_only => OpenFlags::SQLITE_OPEN_READ_ONLY,
            Role::Writer if self.create => {
                OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
            }
            Role::Writer | Role::Reader => OpenFlags::SQLITE_OPEN_READ_WRITE,
        };
        let connection = match &self.vfs {
            Some(vfs) => Connection::open_with_flags_and_vfs(&self.name, flags, vfs.as_str()),
            None => Connection::open_with_flags(&self.name, flags),
        };
        let connection = connection.map_err(|error| self.unopened(error.into()))?;
        // What was opened by that name may be another file by now.
        self.check_still_there()?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        // Without this SQLite prepares a statement anew whenever a limit, or a bound of an
        // index that was analyzed, has another value: that costs more than the statement.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        if role == Role::Writer {
            connection.pragma_update(None, "journal_size_limit", MOST_WAL_BYTES)?;
        } else {
            connection.pragma_update(None, "query_only", true)?;
            // The log is opened with the first read: where it cannot be, that shows now.
            let read = connection.query_row("PRAGMA data_version", [], |_| Ok(()));
            if let Err(error) = read {
                let failure = self.unopened(error.into());
                if failure.is_unopened() {
                    return Err(failure);
                }
            }
        }
        Ok(connection)
    }

    /// How sqlx opens the same database, which exists by now: a file that was removed is
    /// not made again, empty.
    pub(crate) fn options(&self) -> SqliteConnectOptions {
        let options = SqliteConnectOptions::new()
            .filename(&self.name)
            .create_if_missing(self.memory)
            .pragma("journal_size_limit", MOST_WAL_BYTES.to_string());
        match &self.vfs {
            Some(vfs) => options.vfs(vfs.clone()),
            None => options,
        }
    }

    /// Fails where a connection of the driver is to another database: a pool's relative name
    /// may lead elsewhere than it did when the store was opened.
    pub(crate) async fn check_connection(&self, connection: &mut SqliteConnection) -> Answer<()> {
        const FILE: &str = "SELECT file FROM pragma_database_list WHERE name = 'main'";
        if let Some(own) = self.file() {
            let found: Option<String> = sqlx::query_scalar(FILE).fetch_one(connection).await?;
            if found.as_deref().map(Path::new) != Some(own) {
                return Err(Failure::stated(Elsewhere {
                    found: found.unwrap_or_default().into(),
                    own: own.to_owned(),
                }));
            }
        }
        self.check_still_there()
    }

    /// The name for messages.
    pub(crate) fn shown(&self) -> String {
        self.name.display().to_string()
    }
}

/// A connection of the application's pool leads to another file.
#[derive(Debug, thiserror::Error)]
#[error(
    "a new connection of the pool opened {found:?}, and the store is open on {own:?}: give the \
     pool an absolute path"
)]
struct Elsewhere {
    found: PathBuf,
    own: PathBuf,
}
