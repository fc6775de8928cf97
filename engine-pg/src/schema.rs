//! The schema: its name, its versions, and the statements that work on it.

use alkstore::{Error, Result};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Row as _};

use crate::error::{self, failed};
use crate::tx::BEGIN;
use crate::{lock, notify, queue, scheduler, stream};

/// The steps from one version to the next, from an empty database on.
const MIGRATIONS: [&str; 1] = [include_str!("schema/v1.sql")];

/// The indexes of pending jobs; databases of the same version were made with another one.
const LINES: &str = include_str!("schema/lines.sql");

/// The oldest server whose SQL has what the statements use (materialized subqueries).
const OLDEST_SERVER: u32 = 120_000;

/// The longest name that a server keeps whole, in bytes.
pub(crate) const LONGEST_NAME: usize = 63;

const OPENING: &str = "bringing the schema up to date";

/// Every statement of the engine, by mechanism.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) queue: queue::Statements,
    pub(crate) stream: stream::Statements,
    pub(crate) lock: lock::Statements,
    pub(crate) notify: notify::Statements,
    pub(crate) schedule: scheduler::Statements,
}

/// The schema's name, checked.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    name: String,
}

impl Schema {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let reason = if name.is_empty() {
            "it must not be empty"
        } else if name.len() > LONGEST_NAME {
            "it must not be longer than 63 bytes"
        } else if name.contains('\0') {
            "it must not contain a NUL character"
        } else {
            return Ok(Self {
                name: name.to_owned(),
            });
        };
        Err(Error::InvalidArgument {
            argument: "schema",
            value: name.to_owned(),
            reason: reason.into(),
        })
    }

    /// The name as it stands in SQL.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.name.replace('"', "\"\""))
    }

    /// A number that stands for the schema, the same in every process.
    pub(crate) fn number(&self) -> u64 {
        // FNV-1a: the standard library's hashes differ from one version to the next.
        self.name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    pub(crate) fn statements(&self) -> Statements {
        let (schema, channel) = (&self.quoted(), &notify::internal_channel(self));
        Statements {
            queue: queue::Statements::new(schema, channel),
            stream: stream::Statements::new(schema, channel),
            lock: lock::Statements::new(schema),
            notify: notify::Statements::new(channel),
            schedule: scheduler::Statements::new(schema, channel),
        }
    }

    /// Brings the schema up to date, whoever else does so at the same time.
    pub(crate) async fn migrate(&self, connection: &mut PgConnection) -> Result<()> {
        check_server(connection)?;
        match self.version(connection).await? {
            version if version > newest() => Err(too_new(version)),
            version if version == newest() && self.has_lines(connection).await? => Ok(()),
            _ => self.migrate_in_line(connection).await,
        }
    }

    /// Migrates when nobody else does. If it fails the connection has to be closed.
    async fn migrate_in_line(&self, connection: &mut PgConnection) -> Result<()> {
        let opening = |error| failed(OPENING, error);
        connection.execute(BEGIN).await.map_err(opening)?;
        // Held to the end of the transaction, so that a pooler does not have to know of it.
        let line = i64::from_ne_bytes(self.number().to_ne_bytes());
        let in_line = sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .persistent(false)
            .bind(line);
        in_line.execute(&mut *connection).await.map_err(opening)?;
        let version = self.version(connection).await?;
        if version > newest() {
            return Err(too_new(version));
        }
        if version < newest() {
            self.apply(connection, version).await.map_err(opening)?;
        } else if !self.has_lines(connection).await? {
            let text = LINES.replace("{schema}", &self.quoted());
            let made = sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *connection);
            made.await.map_err(opening)?;
        }
        connection.execute("COMMIT").await.map_err(opening)?;
        Ok(())
    }

    async fn apply(&self, connection: &mut PgConnection, version: i64) -> sqlx::Result<()> {
        let schema = self.quoted();
        // To create a schema that exists takes a right that a plain role has not.
        let exists = sqlx::query("SELECT FROM pg_namespace WHERE nspname = $1")
            .persistent(false)
            .bind(&self.name)
            .fetch_optional(&mut *connection)
            .await?;
        if exists.is_none() {
            connection
                .execute(AssertSqlSafe(format!("CREATE SCHEMA {schema}")))
                .await?;
        }
        let done = usize::try_from(version).unwrap_or(0);
        for step in MIGRATIONS.iter().skip(done).chain([&LINES]) {
            let text = step.replace("{schema}", &schema);
            sqlx::raw_sql(AssertSqlSafe(text))
                .execute(&mut *connection)
                .await?;
        }
        let text = format!(
            "CREATE TABLE IF NOT EXISTS {schema}.schema_version (version bigint NOT NULL);
             DELETE FROM {schema}.schema_version;
             INSERT INTO {schema}.schema_version VALUES ({});",
            newest()
        );
        sqlx::raw_sql(AssertSqlSafe(text))
            .execute(&mut *connection)
            .await?;
        Ok(())
    }

    /// Whether the indexes of pending jobs are today's.
    async fn has_lines(&self, connection: &mut PgConnection) -> Result<bool> {
        let old = sqlx::query(
            "SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
             WHERE nspname = $1 AND relname = 'jobs_pending'",
        );
        let old = old.persistent(false).bind(&self.name);
        let old = old.fetch_optional(&mut *connection).await;
        Ok(old.map_err(|error| failed(OPENING, error))?.is_none())
    }

    /// The version that the database has, 0 if it has none.
    async fn version(&self, connection: &mut PgConnection) -> Result<i64> {
        // Asked of the catalog's tables: its functions may know less than has been committed.
        let exists = sqlx::query(
            "SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
             WHERE nspname = $1 AND relname = 'schema_version'",
        );
        let exists = exists
            .persistent(false)
            .bind(&self.name)
            .fetch_optional(&mut *connection);
        if exists
            .await
            .map_err(|error| failed(OPENING, error))?
            .is_none()
        {
            return Ok(0);
        }
        let table = format!("{}.schema_version", self.quoted());
        let text = AssertSqlSafe(format!("SELECT version FROM {table}"));
        let row = sqlx::query(text)
            .persistent(false)
            .fetch_optional(&mut *connection)
            .await;
        match row {
            Ok(row) => {
                let version = row.map_or(Ok(0), |row| row.try_get(0));
                version.map_err(|error| failed(OPENING, error))
            }
            Err(error) if error::is_missing(&error) => Ok(0),
            Err(error) => Err(failed(OPENING, error)),
        }
    }
}

fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

fn check_server(connection: &PgConnection) -> Result<()> {
    match connection.server_version_num() {
        Some(version) if version < OLDEST_SERVER => Err(Error::database(
            "the server is too old",
            format!("version {} is the oldest supported", OLDEST_SERVER / 10_000),
        )),
        _ => Ok(()),
    }
}

fn too_new(version: i64) -> Error {
    Error::database(
        "the schema is newer than this library",
        format!(
            "it has version {version} and the newest known one is {}",
            newest()
        ),
    )
}

/// A text as it stands in SQL.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// SQL for the server's time in unix seconds when the statement began, moved by the argument `$1`.
pub(crate) const NOW: &str = "(floor(date_part('epoch', statement_timestamp()))::bigint \
     + least($1::bigint, 9223372036854775807 \
         - floor(date_part('epoch', statement_timestamp()))::bigint))";

/// SQL for the time as it is read, moved in the same way: for what has waited for others before.
pub(crate) const CLOCK: &str = "least(floor(date_part('epoch', clock_timestamp()))::numeric \
     + $1::bigint, 9223372036854775807)::bigint";

/// SQL for a sum of two numbers that stays at the end of the range.
pub(crate) fn sum(a: &str, b: &str) -> String {
    const MOST: &str = "9223372036854775807";
    const LEAST: &str = "(-9223372036854775808)::bigint";
    format!(
        "CASE WHEN {b} > 0 AND {a} > {MOST} - {b} THEN {MOST} \
         WHEN {b} < 0 AND {a} < {LEAST} - {b} THEN {LEAST} ELSE {a} + {b} END"
    )
}

/// The same where `b` is not negative, with each of them once or twice.
pub(crate) fn sum_up(a: &str, b: &str) -> String {
    format!("({a} + least({b}, 9223372036854775807 - greatest({a}, 0)))")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_bounded() {
        let odd = Schema::new("My \"odd\" schema").expect("a legal name");
        assert_eq!(odd.quoted(), "\"My \"\"odd\"\" schema\"");
        assert!(Schema::new(&"é".repeat(31)).is_ok());
        for refused in ["", "a\0b", &"é".repeat(32)] {
            let error = Schema::new(refused).expect_err("an illegal name");
            assert!(matches!(
                error,
                Error::InvalidArgument {
                    argument: "schema",
                    ..
                }
            ));
        }
    }

    #[test]
    fn texts_are_quoted() {
        assert_eq!(literal("it's"), "'it''s'");
    }

    #[test]
    fn schemas_have_numbers_of_their_own() {
        let number = |name| Schema::new(name).expect("a legal name").number();
        assert_eq!(number("alkstore"), number("alkstore"));
        assert_ne!(number("alkstore"), number("alkstorf"));
    }
}
