//! Where the database is, and how its connections are opened.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alkstore::{Error, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use crate::error::Answer;

/// How many prepared statements a connection keeps; more than this crate has.
const STATEMENTS: usize = 64;

/// The WAL is cut back to this size once it was copied into the database.
const MOST_WAL_BYTES: i64 = 64 << 20;

/// A database, and how to open it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The name in SQLite's terms: a path, or a URI that starts with `file:`.
    pub(crate) name: PathBuf,
    vfs: Option<String>,
    /// The database lives in this process's memory.
    pub(crate) memory: bool,
    create: bool,
    read_only: bool,
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
    /// From a path, or a URL that starts with `sqlite:`.
    pub(crate) fn parse(target: &str) -> Result<Self> {
        if target == ":memory:" {
            return Ok(Self::in_memory());
        }
        if !target.starts_with("sqlite:") {
            return Self::at(Path::new(target), target);
        }
        let options = SqliteConnectOptions::from_str(target)
            .map_err(|_| refused(target, "a URL such as sqlite://app.db?mode=rwc"))?;
        let query = target.split_once('?').map_or("", |(_, query)| query);
        let mode = query.split('&').find_map(|pair| pair.strip_prefix("mode="));
        let parsed = Parsed::of(&options);
        if parsed.memory && parsed.vfs.is_none() {
            return Ok(Self::in_memory());
        }
        let place = Self::at(options.get_filename(), target)?;
        Ok(Self {
            vfs: parsed.vfs,
            create: matches!(mode, None | Some("rwc")),
            read_only: mode == Some("ro"),
            ..place
        })
    }

    /// The database of a pool that the application has.
    pub(crate) fn of_pool(options: &SqliteConnectOptions) -> Result<Self> {
        const INSTEAD: &str = "a database file, or for a database in memory that several \
                               connections share the filename `file:/name?vfs=memdb`";
        let parsed = Parsed::of(options);
        let name = options.get_filename();
        let shown = name.display().to_string();
        let memdb = shown.contains("vfs=memdb") || parsed.vfs.as_deref() == Some("memdb");
        if (parsed.memory && !memdb) || shown.contains("mode=memory") || shown == ":memory:" {
            return Err(refused_pool(&shown, INSTEAD));
        }
        if memdb && !(shown.starts_with("file:/") || shown.starts_with('/')) {
            return Err(refused_pool(&shown, INSTEAD));
        }
        let place = Self::at(name, &shown).map_err(|_| refused_pool(&shown, INSTEAD))?;
        Ok(Self {
            vfs: parsed.vfs,
            memory: memdb,
            create: parsed.mode == "rwc",
            read_only: parsed.mode == "ro",
            ..place
        })
    }

    fn in_memory() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let key = fastrand::u64(..);
        Self {
            name: format!("file:/alkstore-{number}-{key:016x}?vfs=memdb").into(),
            vfs: None,
            memory: true,
            create: true,
            read_only: false,
        }
    }

    fn at(name: &Path, target: &str) -> Result<Self> {
        // SQLite takes the empty name for a private database that nobody else can open.
        if name.as_os_str().is_empty() {
            return Err(refused(
                target,
                "a path, or a URL that starts with `sqlite:`",
            ));
        }
        let name = name.to_owned();
        Ok(Self {
            name,
            vfs: None,
            memory: false,
            create: true,
            read_only: false,
        })
    }

    /// Opens a connection that never sleeps when it finds the database busy.
    pub(crate) fn connect(&self, role: Role) -> Answer<Connection> {
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
            Some(vfs) => Connection::open_with_flags_and_vfs(&self.name, flags, vfs.as_str())?,
            None => Connection::open_with_flags(&self.name, flags)?,
        };
        connection.busy_timeout(Duration::ZERO)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        // Without this SQLite prepares a statement anew whenever a limit, or a bound of an
        // index that was analyzed, has another value: that costs more than the statement.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        if role == Role::Writer {
            connection.pragma_update(None, "journal_size_limit", MOST_WAL_BYTES)?;
        } else {
            connection.pragma_update(None, "query_only", true)?;
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

    /// The name for messages.
    pub(crate) fn shown(&self) -> String {
        self.name.display().to_string()
    }
}

/// What the options of sqlx tell only through their URL.
struct Parsed {
    memory: bool,
    mode: String,
    vfs: Option<String>,
}

impl Parsed {
    fn of(options: &SqliteConnectOptions) -> Self {
        // Some file names make no URL that parses, and the driver panics then.
        let url = options.clone().filename("/name").to_url_lossy();
        let value = |name: &str| {
            url.query_pairs()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.into_owned())
        };
        let mode = value("mode").unwrap_or_default();
        Self {
            memory: mode == "memory",
            mode,
            vfs: value("vfs"),
        }
    }
}

fn refused(target: &str, accepted: &'static str) -> Error {
    Error::InvalidArgument {
        argument: "target",
        value: target.into(),
        reason: accepted.into(),
    }
}

fn refused_pool(name: &str, accepted: &'static str) -> Error {
    Error::InvalidArgument {
        argument: "pool",
        value: name.into(),
        reason: accepted.into(),
    }
}
