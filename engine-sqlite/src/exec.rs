//! One way to run a statement, for two drivers.
//!
//! Operations are written once, over [`Exec`]. On a connection of this crate's own,
//! [`Inline`] runs a statement where it stands and its futures are ready at once, so that
//! [`ready`] drives a whole operation without a runtime. On a connection of sqlx,
//! [`Awaiting`] hands the statement to that connection's thread and waits.

use std::future::{Future, ready as done};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments as _, Executor as _, Row as _, SqliteConnection};

use crate::error::{Answer, Failure};

/// A value for a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Null,
    Int(i64),
    Text(&'a str),
    Blob(&'a [u8]),
}

impl Value<'_> {
    /// The number, or null.
    pub(crate) fn maybe(number: Option<i64>) -> Self {
        number.map_or(Self::Null, Self::Int)
    }
}

impl<'a> Value<'a> {
    /// The text, or null.
    pub(crate) fn maybe_text(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }
}

/// What a statement that returns no rows did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    /// How many rows it changed; those of its triggers do not count.
    pub(crate) changes: u64,
    /// The last row id that an insert on this connection gave.
    pub(crate) last_id: i64,
}

/// Runs statements.
pub(crate) trait Exec: Send {
    /// Runs a statement that returns no rows.
    fn execute(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = Answer<Done>> + Send;

    /// Runs a statement to its end and reads every row.
    fn rows<T: Send>(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
        read: impl Fn(&Row<'_>) -> Answer<T> + Send,
    ) -> impl Future<Output = Answer<Vec<T>>> + Send;
}

/// The result of an operation whose futures are all ready at once.
pub(crate) fn ready<T>(operation: impl Future<Output = Answer<T>>) -> Answer<T> {
    match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(Failure::internal("an inline operation had to wait")),
    }
}

/// A row, in either driver's shape.
#[derive(Clone, Copy)]
pub(crate) enum Row<'a> {
    Inline(&'a rusqlite::Row<'a>),
    Awaiting(&'a SqliteRow),
}

macro_rules! column {
    ($row:expr, $index:expr) => {
        match $row {
            Row::Inline(row) => Ok(row.get($index)?),
            Row::Awaiting(row) => Ok(row.try_get($index)?),
        }
    };
}

impl Row<'_> {
    pub(crate) fn int(&self, index: usize) -> Answer<i64> {
        column!(self, index)
    }

    pub(crate) fn maybe_int(&self, index: usize) -> Answer<Option<i64>> {
        column!(self, index)
    }

    pub(crate) fn text(&self, index: usize) -> Answer<String> {
        column!(self, index)
    }

    pub(crate) fn maybe_text(&self, index: usize) -> Answer<Option<String>> {
        column!(self, index)
    }

    pub(crate) fn blob(&self, index: usize) -> Answer<Vec<u8>> {
        column!(self, index)
    }
}

/// Statements on a connection of this crate's own, run by the caller's thread.
pub(crate) struct Inline<'c>(pub(crate) &'c mut rusqlite::Connection);

impl Inline<'_> {
    fn execute_now(&mut self, sql: &str, values: &[Value<'_>]) -> Answer<Done> {
        let mut statement = self.0.prepare_cached(sql)?;
        let changes = statement.execute(rusqlite::params_from_iter(values))?;
        drop(statement);
        let changes = u64::try_from(changes).unwrap_or(u64::MAX);
        Ok(Done {
            changes,
            last_id: self.0.last_insert_rowid(),
        })
    }

    /// Runs a statement that only reads and reads its rows up to the first that is refused.
    pub(crate) fn rows_while<T>(
        &mut self,
        sql: &str,
        values: &[Value<'_>],
        mut read: impl FnMut(&Row<'_>) -> Answer<Option<T>>,
    ) -> Answer<Vec<T>> {
        let mut statement = self.0.prepare_cached(sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        let mut all = Vec::new();
        while let Some(row) = rows.next()? {
            match read(&Row::Inline(row))? {
                Some(row) => all.push(row),
                None => break,
            }
        }
        Ok(all)
    }
}

impl Exec for Inline<'_> {
    fn execute(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = Answer<Done>> + Send {
        done(self.execute_now(sql, values))
    }

    fn rows<T: Send>(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
        read: impl Fn(&Row<'_>) -> Answer<T> + Send,
    ) -> impl Future<Output = Answer<Vec<T>>> + Send {
        done(self.rows_while(sql, values, |row| read(row).map(Some)))
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// Statements on a connection of sqlx.
pub(crate) struct Awaiting<'c>(pub(crate) &'c mut SqliteConnection);

impl Awaiting<'_> {
    /// Marks where [`Awaiting::settle`] goes back to.
    pub(crate) async fn mark(&mut self) -> Answer<()> {
        self.execute("SAVEPOINT __alkstore", &[]).await.map(|_| ())
    }

    /// Keeps what was done since the mark, or undoes it after a failure: that leaves the
    /// caller's transaction as it was, and usable.
    pub(crate) async fn settle<T>(&mut self, result: Answer<T>) -> Answer<T> {
        let value = match result {
            Ok(value) => value,
            Err(failure) => {
                // Where SQLite has rolled back everything by itself the mark is gone, too.
                let undone = self.execute("ROLLBACK TO __alkstore", &[]).await;
                self.execute("RELEASE __alkstore", &[]).await.ok();
                return Err(match undone {
                    Ok(_) => failure,
                    Err(_) => failure.ended(),
                });
            }
        };
        self.execute("RELEASE __alkstore", &[]).await?;
        Ok(value)
    }
}

fn arguments(values: &[Value<'_>]) -> Answer<SqliteArguments> {
    let mut arguments = SqliteArguments::default();
    for value in values {
        match value {
            Value::Null => arguments.add(None::<i64>),
            Value::Int(number) => arguments.add(*number),
            Value::Text(text) => arguments.add(*text),
            Value::Blob(bytes) => arguments.add(*bytes),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(arguments)
}

impl Exec for Awaiting<'_> {
    async fn execute(&mut self, sql: &'static str, values: &[Value<'_>]) -> Answer<Done> {
        let query = sqlx::query_with(sql, arguments(values)?);
        let result = (&mut *self.0).execute(query).await?;
        Ok(Done {
            changes: result.rows_affected(),
            last_id: result.last_insert_rowid(),
        })
    }

    async fn rows<T: Send>(
        &mut self,
        sql: &'static str,
        values: &[Value<'_>],
        read: impl Fn(&Row<'_>) -> Answer<T> + Send,
    ) -> Answer<Vec<T>> {
        // Never the driver's shortcuts for one row: they stop before the statement's end and
        // report success where an auto-commit then fails.
        let query = sqlx::query_with(sql, arguments(values)?);
        let rows = (&mut *self.0).fetch_all(query).await?;
        rows.iter().map(|row| read(&Row::Awaiting(row))).collect()
    }
}

/// How many rows one `INSERT` of many takes at most; fewer go in the next smaller size, so
/// that only a handful of statements is ever prepared.
pub(crate) const CHUNKS: [usize; 4] = [64, 16, 4, 1];

/// One statement for each of [`CHUNKS`]: `head`, then so many times `row`, then `tail`.
pub(crate) fn chunked(head: &str, row: impl Fn(usize) -> String, tail: &str) -> [String; 4] {
    CHUNKS.map(|rows| {
        let rows: Vec<_> = (0..rows).map(&row).collect();
        format!("{head}{}{tail}", rows.join(", "))
    })
}

/// The statement for the largest chunk of at most `rows` rows, and that chunk's size.
pub(crate) fn chunk(statements: &'static [String; 4], rows: usize) -> (&'static str, usize) {
    let fits = CHUNKS
        .iter()
        .position(|chunk| *chunk <= rows)
        .unwrap_or(CHUNKS.len() - 1);
    (&statements[fits], CHUNKS[fits])
}
