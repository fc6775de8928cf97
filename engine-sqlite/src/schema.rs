//! The tables, and bringing a database up to date.

use std::cmp::Ordering;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior};

use crate::error::{Answer, Failure};

/// The steps to today's schema, each with the version that it leads to.
///
/// The version is kept in a table of this crate's own: the application may use SQLite's
/// `user_version` and `application_id` for itself.
const STEPS: [(i64, &str); 1] = [(1, include_str!("schema/v1.sql"))];

/// The version that this crate reads and writes.
pub(crate) const NEWEST: i64 = STEPS[STEPS.len() - 1].0;

/// The indexes of pending jobs; databases of the same version were made with another one.
const LINES: &str = include_str!("schema/lines.sql");

/// How an attempt to bring the schema up to date ended, if it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schema {
    /// It is what this crate knows.
    Current,
    /// It is older, or there is none.
    Older,
    /// It was made by a newer version of this crate.
    Newer(i64),
}

/// What the database holds now.
pub(crate) fn look(connection: &Connection) -> Answer<Schema> {
    Ok(match version(connection)? {
        NEWEST if !has_lines(connection)? => Schema::Older,
        NEWEST => Schema::Current,
        older if older < NEWEST => Schema::Older,
        newer => Schema::Newer(newer),
    })
}

/// Brings the schema up to date, in one transaction; many processes may try at once, and one
/// that is killed leaves nothing half done.
pub(crate) fn bring_up(connection: &mut Connection) -> Answer<Schema> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    let from = version(&transaction)?;
    match from.cmp(&NEWEST) {
        Ordering::Greater => return Ok(Schema::Newer(from)),
        Ordering::Equal if has_lines(&transaction)? => return Ok(Schema::Current),
        Ordering::Equal | Ordering::Less => {}
    }
    for (_, step) in STEPS.iter().filter(|(version, _)| *version > from) {
        transaction.execute_batch(step)?;
    }
    transaction.execute_batch(LINES)?;
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS __alkstore_meta (
            key TEXT PRIMARY KEY, value INTEGER NOT NULL
         ) WITHOUT ROWID",
    )?;
    transaction.execute(
        "INSERT INTO __alkstore_meta (key, value) VALUES ('schema_version', ?1)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [NEWEST],
    )?;
    transaction.commit()?;
    Ok(Schema::Current)
}

/// Whether the indexes of pending jobs are today's.
fn has_lines(connection: &Connection) -> Answer<bool> {
    let old = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'index'
         AND name = '__alkstore_jobs_pending')";
    Ok(connection.query_row(old, [], |row| row.get(0))?)
}

/// The database's version, 0 where there is nothing of this crate's.
fn version(connection: &Connection) -> Answer<i64> {
    let known: i64 = connection.query_row(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '__alkstore_meta'",
        [],
        |row| row.get(0),
    )?;
    if known == 0 {
        return Ok(0);
    }
    let version = connection
        .query_row(
            "SELECT value FROM __alkstore_meta WHERE key = 'schema_version'",
            [],
            |row| row.get(0),
        )
        .optional()?;
    version.ok_or_else(|| Failure::internal("the table __alkstore_meta has no schema version"))
}
