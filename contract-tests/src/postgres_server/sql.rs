//! SQL for tests that block: no program of the server's is needed for it.

use std::fmt;
use std::str::FromStr as _;
use std::thread;

use futures::TryStreamExt as _;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Either, Row as _, ValueRef as _};

/// Why SQL failed, as the server said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError(String);

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SqlError {}

/// Runs a text of SQL on a connection of its own and returns its rows, a line for each.
pub(super) fn run(url: &str, text: &str) -> Result<String, SqlError> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let ran = runtime.expect("a runtime starts").block_on(ask(url, text));
        ran.map_err(|error| SqlError(format!("{text}: {error}")))
    };
    // A thread of its own: the caller's may be a runtime's, which must not block on another.
    thread::scope(|scope| scope.spawn(run).join()).expect("the thread does not panic")
}

async fn ask(url: &str, text: &str) -> sqlx::Result<String> {
    let options = PgConnectOptions::from_str(url)?.disable_statement_logging();
    let mut connection = options.connect().await?;
    let mut lines = Vec::new();
    let mut results = sqlx::raw_sql(AssertSqlSafe(text)).fetch_many(&mut connection);
    while let Some(result) = results.try_next().await? {
        if let Either::Right(row) = result {
            lines.push(line(&row)?);
        }
    }
    drop(results);
    connection.close().await?;
    Ok(lines.join("\n"))
}

/// The columns of a row as the server prints them, `NULL` as nothing.
fn line(row: &PgRow) -> sqlx::Result<String> {
    let column = |index| {
        let value = row.try_get_raw(index)?;
        let text = if value.is_null() {
            Ok("")
        } else {
            value.as_str()
        };
        text.map(str::to_owned).map_err(sqlx::Error::Decode)
    };
    let columns: Vec<_> = (0..row.len()).map(column).collect::<sqlx::Result<_>>()?;
    Ok(columns.join("|"))
}
