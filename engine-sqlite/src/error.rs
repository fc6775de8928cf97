//! The one place where a driver's error becomes an [`Error`].

use std::borrow::Cow;
use std::error::Error as StdError;

use alkstore::Error;
use rusqlite::ffi;

type Source = Box<dyn StdError + Send + Sync>;

/// What an operation's SQL came back with, before anyone decided whether to try again.
#[derive(Debug)]
pub(crate) struct Failure {
    /// SQLite's extended result code, where SQLite was reached.
    code: Option<i32>,
    /// Something was used up: the connections of a pool, or file handles.
    starved: bool,
    /// What is known beyond the code.
    why: Option<String>,
    /// The transaction that the operation was a part of was rolled back as a whole.
    ended: bool,
    source: Source,
}

/// The transaction of a `Tx` is gone before its commit.
#[derive(Debug, thiserror::Error)]
#[error(
    "the transaction has ended already and nothing of it remains: SQLite rolled it back (a full \
     disk, RAISE(ROLLBACK), ON CONFLICT ROLLBACK), or SQL of the application ended it; begin a \
     new one"
)]
pub(crate) struct TransactionGone;

/// The result of a statement.
pub(crate) type Answer<T> = Result<T, Failure>;

/// Why an operation that found the database busy gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Busy {
    /// A `Tx` holds the writer.
    #[error("the writer is held by a transaction of this process; is a Tx held by the same task?")]
    OwnTransaction,
    /// Another process, or a transaction that the application began itself.
    #[error(
        "another process, or a transaction that the application began itself, holds the write \
         lock"
    )]
    OtherProcess,
    /// A statement of this process that reads a database in memory.
    #[error("a statement that reads this database in memory has not ended")]
    OwnReader,
    /// The application uses all connections of the pool.
    #[error("no connection of the pool is free")]
    Pool,
    /// All connections that read are in use.
    #[error("all read connections are in use")]
    Readers,
}

impl Busy {
    /// The transient error of an operation that waited as long as it may.
    pub(crate) fn into_error(self, doing: &str) -> Error {
        Error::transient(format!("{doing} timed out"), self)
    }
}

impl Failure {
    /// A failure of this crate's own logic, not of SQLite.
    pub(crate) fn internal(what: &'static str) -> Self {
        Self::stated(what)
    }

    /// A failure that this crate found itself and that its source says.
    pub(crate) fn stated(source: impl Into<Source>) -> Self {
        Self {
            code: None,
            starved: false,
            why: None,
            ended: false,
            source: source.into(),
        }
    }

    /// Whether SQLite could not open a file.
    pub(crate) fn is_unopened(&self) -> bool {
        self.primary() == Some(ffi::SQLITE_CANTOPEN)
    }

    /// Adds what is known beyond SQLite's code.
    pub(crate) fn explained(mut self, why: String) -> Self {
        self.why = Some(why);
        self
    }

    /// Says that something was used up that may be free again later.
    pub(crate) fn starved(mut self) -> Self {
        self.starved = true;
        self
    }

    /// Says that the operation's transaction was rolled back as a whole.
    pub(crate) fn ended(mut self) -> Self {
        self.ended = true;
        self
    }

    /// Whether waiting for other connections can help.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.primary(), Some(ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED))
    }

    /// The error of an operation on a connection of this crate's.
    pub(crate) fn into_error(self, doing: &str) -> Error {
        let context: Cow<'static, str> = match (self.hint(), &self.why) {
            (Some(hint), Some(why)) => format!("{doing} failed, {hint}: {why}").into(),
            (Some(hint), None) => format!("{doing} failed, {hint}").into(),
            (None, _) => format!("{doing} failed").into(),
        };
        if self.is_transient() {
            Error::transient(context, self.source)
        } else {
            Error::database(context, self.source)
        }
    }

    /// The error of an operation in a transaction that somebody else commits.
    pub(crate) fn into_joined_error(self, doing: &str) -> Error {
        if self.code == Some(ffi::SQLITE_CONSTRAINT_COMMITHOOK) {
            return Error::database(format!("{doing} failed"), TransactionGone);
        }
        if self.ended {
            let context = format!("{doing} failed: SQLite has rolled back the whole transaction");
            return Error::database(context, self.source);
        }
        if !self.is_busy() {
            return self.into_error(doing);
        }
        let why = if self.code == Some(ffi::SQLITE_BUSY_SNAPSHOT) {
            "what it has read is no longer the newest"
        } else {
            "another connection holds the write lock"
        };
        let context =
            format!("{doing} failed: {why}; roll back and try the whole transaction again");
        Error::transient(context, self.source)
    }

    fn primary(&self) -> Option<i32> {
        self.code.map(|code| code & 0xff)
    }

    fn is_transient(&self) -> bool {
        /// Input and output errors of taking or giving back a file lock.
        const LOCKS: [i32; 7] = [
            ffi::SQLITE_IOERR_LOCK,
            ffi::SQLITE_IOERR_UNLOCK,
            ffi::SQLITE_IOERR_RDLOCK,
            ffi::SQLITE_IOERR_BLOCKED,
            ffi::SQLITE_IOERR_CHECKRESERVEDLOCK,
            ffi::SQLITE_IOERR_SHMLOCK,
            ffi::SQLITE_IOERR_SHMOPEN,
        ];
        self.starved
            || self.is_busy()
            || self.primary() == Some(ffi::SQLITE_PROTOCOL)
            || self.code.is_some_and(|code| LOCKS.contains(&code))
    }

    fn hint(&self) -> Option<&'static str> {
        Some(match self.primary()? {
            ffi::SQLITE_FULL => "there is no space left",
            ffi::SQLITE_READONLY => "the database cannot be written",
            ffi::SQLITE_CORRUPT => "the database is damaged",
            ffi::SQLITE_NOTADB => "the file is not a SQLite database",
            ffi::SQLITE_CANTOPEN => "the file cannot be opened or created",
            ffi::SQLITE_IOERR => "the file cannot be read or written",
            ffi::SQLITE_TOOBIG => "a value is larger than SQLite stores",
            _ => return None,
        })
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        let code = match &error {
            rusqlite::Error::SqliteFailure(failure, _) => Some(failure.extended_code),
            rusqlite::Error::SqlInputError { error, .. } => Some(error.extended_code),
            _ => None,
        };
        Self {
            code,
            ..Self::stated(error)
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        let code = error
            .as_database_error()
            .and_then(|error| error.code())
            .and_then(|code| code.parse().ok());
        let starved = matches!(error, sqlx::Error::PoolTimedOut);
        Self {
            code,
            starved,
            ..Self::stated(error)
        }
    }
}
