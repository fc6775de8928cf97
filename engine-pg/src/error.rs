//! The one place where a driver's error becomes an [`Error`].

use std::time::Duration;

use alkstore::Error;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// Serialization failure and deadlock: the whole transaction may be tried again.
const CONFLICTS: [&str; 2] = ["40001", "40P01"];

/// Lock not available.
const BLOCKED: &str = "55P03";

/// Read-only transaction: for a while a server is, or an address leads to another that is.
const READ_ONLY: &str = "25006";

/// Sessions that the server ends: idle in a transaction, too long a transaction.
const ENDED: [&str; 2] = ["25P03", "25P04"];

/// Connection exceptions, insufficient resources, and operators at work: what is cancelled, and
/// the server on its way down or up.
const TRANSIENT_CLASSES: [&str; 3] = ["08", "53", "57"];

/// Why a notify has no room, and what to look for.
pub(crate) const NOTIFY_QUEUE_FULL: &str = "the server's NOTIFY queue is full: a session that \
     listens and stays in a transaction keeps it from being emptied";

/// The error of an operation that is called `doing`.
pub(crate) fn failed(doing: &str, error: sqlx::Error) -> Error {
    let context = match hint(&error) {
        Some(hint) => format!("{doing} failed, {hint}"),
        None => format!("{doing} failed"),
    };
    if is_transient(&error) {
        Error::transient(context, error)
    } else {
        Error::database(context, error)
    }
}

/// The error of an operation that was not done in time; it may still be.
pub(crate) fn timed_out(doing: &str, most: Duration) -> Error {
    Error::transient(format!("{doing} timed out"), Silent(most))
}

/// The error of an operation that found all connections in use.
pub(crate) fn starved(doing: &str, most: Duration) -> Error {
    Error::transient(format!("{doing} timed out"), Starved(most))
}

/// The error of an operation in a transaction that was not done in time.
pub(crate) fn held_up(doing: &str, most: Duration) -> Error {
    Error::transient(format!("{doing} timed out"), HeldUp(most))
}

#[derive(Debug, thiserror::Error)]
#[error("the server has not answered within {0:?}")]
struct Silent(Duration);

#[derive(Debug, thiserror::Error)]
#[error(
    "the server has not answered within {0:?}: another transaction, perhaps of the same task, \
     may hold what this one waits for; roll this one back"
)]
struct HeldUp(Duration);

#[derive(Debug, thiserror::Error)]
#[error("no connection was free within {0:?}")]
struct Starved(Duration);

/// Whether it failed by meeting other transactions, and did nothing.
pub(crate) fn is_conflict(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| CONFLICTS.contains(&code))
}

/// Whether it gave up waiting for other transactions, and did nothing.
pub(crate) fn is_blocked(error: &sqlx::Error) -> bool {
    code(error) == Some(BLOCKED)
}

/// Whether it did nothing because the server, or the transaction, is read-only.
pub(crate) fn is_read_only(error: &sqlx::Error) -> bool {
    code(error) == Some(READ_ONLY)
}

/// Whether it did nothing because the session's prepared statement is not what it was, or gone.
pub(crate) fn is_stale(error: &sqlx::Error) -> bool {
    server_said(error).is_some_and(|said| match said.code() {
        "26000" => true,
        // The text may be in any language.
        "0A000" => said.routine() == Some("RevalidateCachedQuery"),
        _ => false,
    })
}

/// Whether it did nothing for what the session is like, or because it had ended: another may do
/// better.
pub(crate) fn is_unfit(error: &sqlx::Error) -> bool {
    // A session in a transaction that has failed; one that idled too long.
    let unfit = ["25P02", "57P05"];
    is_stale(error) || is_read_only(error) || code(error).is_some_and(|code| unfit.contains(&code))
}

/// Whether the server has no connection to spare.
pub(crate) fn is_full(error: &sqlx::Error) -> bool {
    code(error) == Some("53300")
}

/// Whether a pooler does not take the settings that a session is to begin with.
pub(crate) fn is_startup_refused(error: &sqlx::Error) -> bool {
    server_said(error)
        .is_some_and(|said| said.code() == "08P01" && said.message().contains("startup parameter"))
}

/// Whether nothing more can be asked on the connection that said this.
pub(crate) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(_) => {
            let fatal = [PgSeverity::Fatal, PgSeverity::Panic];
            server_said(error).is_none_or(|said| fatal.contains(&said.severity()))
        }
        // What the driver refuses to send, or does not understand of an answer that is whole.
        sqlx::Error::Encode(_)
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::RowNotFound => false,
        _ => true,
    }
}

/// Whether the server's queue of notifies, which all its databases share, had no room: the
/// whole transaction was rolled back for it.
pub(crate) fn is_notify_queue_full(error: &sqlx::Error) -> bool {
    server_said(error).is_some_and(is_full_of_notifies)
}

fn is_full_of_notifies(said: &PgDatabaseError) -> bool {
    // The code is that of every limit, and the text may be in any language.
    said.code() == "54000" && said.routine() == Some("PreCommit_Notify")
}

/// Whether an error of this engine says that others were in the way and nothing was done.
pub(crate) fn says_blocked(error: &Error) -> bool {
    reported(error).is_some_and(|said| {
        let code = said.code();
        code == BLOCKED || CONFLICTS.contains(&code)
    })
}

/// Whether an error of this engine says that a notify found no room in the server.
pub(crate) fn says_notify_queue_full(error: &Error) -> bool {
    reported(error).is_some_and(is_full_of_notifies)
}

/// The server's own error in one of this engine's. What stands between them is left out of a
/// chain where it has nothing of its own to say, so each form of it is looked for.
fn reported(error: &Error) -> Option<&PgDatabaseError> {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<sqlx::Error>() {
            return server_said(error);
        }
        if let Some(said) = error.downcast_ref::<Box<dyn sqlx::error::DatabaseError>>() {
            return said.try_downcast_ref();
        }
        if let Some(said) = error.downcast_ref() {
            return Some(said);
        }
        source = error.source();
    }
    None
}

pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut => true,
        _ if is_notify_queue_full(error) => true,
        _ if is_startup_refused(error) => false,
        _ => code(error).is_some_and(|code| {
            CONFLICTS.contains(&code)
                || ENDED.contains(&code)
                || [BLOCKED, READ_ONLY].contains(&code)
                || is_stale(error)
                || TRANSIENT_CLASSES
                    .iter()
                    .any(|class| code.starts_with(class))
        }),
    }
}

fn hint(error: &sqlx::Error) -> Option<&'static str> {
    if is_notify_queue_full(error) {
        return Some(NOTIFY_QUEUE_FULL);
    }
    if is_startup_refused(error) {
        return Some(
            "a pooler is in between that does not take this setting: leave it out of the URL, \
             or let the pooler ignore it (pgbouncer's ignore_startup_parameters)",
        );
    }
    Some(match code(error)? {
        "28P01" | "28000" => "the server does not let this role in",
        "3D000" => "there is no such database",
        "42501" => "the role lacks rights: see the crate's documentation for what to grant",
        READ_ONLY => "the server or the transaction is read-only",
        "42P01" | "3F000" => "the schema is gone",
        "54000" | "54001" => "a limit of the server is exceeded",
        "53100" => "the server's disk is full",
        "53300" => "the server has no connection to spare",
        "40001" | "40P01" => "other transactions were in the way",
        BLOCKED => "another transaction, perhaps of the same task, holds what this one waits for",
        "57014" => {
            "the server cancelled it: statement_timeout is too short for it, or somebody did"
        }
        "25P02" => "an earlier statement of the transaction has failed",
        _ => return None,
    })
}

fn code(error: &sqlx::Error) -> Option<&str> {
    server_said(error).map(PgDatabaseError::code)
}

fn server_said(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}
