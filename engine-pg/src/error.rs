//! The one place where a driver's error becomes an [`Error`].

use std::time::Duration;

use alkstore::Error;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// Serialization failure and deadlock: the whole transaction may be tried again.
const CONFLICTS: [&str; 2] = ["40001", "40P01"];

/// Lock not available, and the server on its way down or up.
const TRANSIENT: [&str; 4] = ["55P03", "57P01", "57P02", "57P03"];

/// Connection exceptions, and insufficient resources.
const TRANSIENT_CLASSES: [&str; 2] = ["08", "53"];

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

#[derive(Debug, thiserror::Error)]
#[error("the server has not answered within {0:?}")]
struct Silent(Duration);

#[derive(Debug, thiserror::Error)]
#[error("no connection was free within {0:?}")]
struct Starved(Duration);

/// Whether it failed by meeting other transactions, and did nothing.
pub(crate) fn is_conflict(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| CONFLICTS.contains(&code))
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
    // The code is that of every limit, and the text may be in any language.
    server_said(error)
        .is_some_and(|said| said.code() == "54000" && said.routine() == Some("PreCommit_Notify"))
}

pub(crate) fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut => true,
        _ if is_notify_queue_full(error) => true,
        _ => code(error).is_some_and(|code| {
            CONFLICTS.contains(&code)
                || TRANSIENT.contains(&code)
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
    Some(match code(error)? {
        "28P01" | "28000" => "the server does not let this role in",
        "3D000" => "there is no such database",
        "42501" => "the role lacks rights: see the crate's documentation for what to grant",
        "25006" => "the server is read-only",
        "42P01" | "3F000" => "the schema is gone",
        "54000" | "54001" => "a limit of the server is exceeded",
        "53100" => "the server's disk is full",
        "53300" => "the server has no connection to spare",
        "40001" | "40P01" => "other transactions were in the way",
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
