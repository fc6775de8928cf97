//! Opening: what the database must be, and how its schema is made and brought up to date.

use alkstore::{Error, Result};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, Row as _};

use super::Schema;
use crate::error::failed;
use crate::tx::BEGIN;

/// The steps from one version to the next, from an empty database on. Each says its version.
const MIGRATIONS: [&str; 1] = [include_str!("v1.sql")];

/// The indexes of pending jobs; databases of the same version were made with another one.
const LINES: &str = include_str!("lines.sql");

/// That other index.
const OLD_LINE: &str = "jobs_pending";

/// The oldest server that the suite runs on.
const OLDEST_SERVER: u32 = 140_000;

/// The table of the version, and the comment on it that says whose it is.
const VERSION_TABLE: &str = "schema_version";
const MARK: &str = "alkstore";

/// The other tables that every version has had.
const TABLES: [&str; 7] = [
    "jobs",
    "dead_jobs",
    "streams",
    "events",
    "offsets",
    "locks",
    "schedules",
];

/// What a table's identity would take another name for, if somebody else's has this one.
const SEQUENCES: [&str; 2] = ["jobs_id_seq", "streams_id_seq"];

/// How long the repair of an older schema waits for whoever reads it. The next open tries again.
const REPAIR_TIMEOUT: &str = "SET LOCAL lock_timeout = '500ms'";

const OPENING: &str = "bringing the schema up to date";

/// The state of a database's schema.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// 0 if there is none.
    version: i64,
    /// Whether it was made before the version's table had a primary key, and this role may add it.
    to_repair: bool,
    /// Whether it has another index of pending jobs than today's.
    old_line: bool,
}

impl Schema {
    /// Brings the schema up to date, whoever else does so at the same time.
    pub(crate) async fn migrate(&self, connection: &mut PgConnection) -> Result<()> {
        check_server(connection.server_version_num())?;
        check_encoding(connection).await?;
        let found = self.find(connection).await?;
        if found.version < newest() || found.old_line {
            self.migrate_in_line(connection).await?;
        }
        if found.to_repair {
            self.repair(connection).await?;
        }
        Ok(())
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
        let found = self.find(connection).await?;
        if found.version < newest() {
            let applied = self.apply(connection, found.version).await;
            applied.map_err(opening)?;
        } else if found.old_line {
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
        Ok(())
    }

    /// Gives the version's table of an older schema its primary key: without one its rows cannot
    /// be changed where all tables are published. If that fails the schema works as it did.
    async fn repair(&self, connection: &mut PgConnection) -> Result<()> {
        let table = format!("{}.{VERSION_TABLE}", self.quoted());
        let text = format!(
            "{BEGIN}; {REPAIR_TIMEOUT};
             ALTER TABLE {table} ADD PRIMARY KEY (version);
             COMMENT ON TABLE {table} IS '{MARK}';
             COMMIT"
        );
        let repaired = sqlx::raw_sql(AssertSqlSafe(text))
            .execute(&mut *connection)
            .await;
        if let Err(error) = repaired {
            tracing::debug!(%error, "the table of the schema's version has no primary key yet");
            let ended = connection.execute("ROLLBACK").await;
            ended.map_err(|error| failed(OPENING, error))?;
        }
        Ok(())
    }

    /// What there is. Nothing that this library did not make is taken for its own.
    async fn find(&self, connection: &mut PgConnection) -> Result<Found> {
        let opening = |error| failed(OPENING, error);
        let relations = self.relations(connection).await.map_err(opening)?;
        let Some(first) = relations.first() else {
            return Ok(Found {
                version: 0,
                to_repair: false,
                old_line: false,
            });
        };
        let is_there = |name: &str| relations.iter().any(|relation| relation.name == name);
        let version_table = relations.iter().find(|found| found.name == VERSION_TABLE);
        let all = TABLES.iter().all(|name| is_there(name));
        let Some(version_table) = version_table.filter(|table| table.marked || all) else {
            return Err(self.occupied(&first.name));
        };
        let table = format!("{}.{VERSION_TABLE}", self.quoted());
        let text = AssertSqlSafe(format!("SELECT version FROM {table}"));
        let row = sqlx::query(text)
            .persistent(false)
            .fetch_optional(&mut *connection);
        let row = row.await.map_err(opening)?;
        let version = row.map_or(Ok(0), |row| row.try_get(0)).map_err(opening)?;
        match version {
            0 => Err(self.occupied(VERSION_TABLE)),
            version if version > newest() => Err(too_new(version)),
            version => Ok(Found {
                version,
                to_repair: version_table.to_repair,
                old_line: is_there(OLD_LINE),
            }),
        }
    }

    /// The relations of the schema with the names of this library's.
    async fn relations(&self, connection: &mut PgConnection) -> sqlx::Result<Vec<Relation>> {
        // Asked of the catalog's tables: its functions may know less than has been committed.
        let text = "SELECT relname::text, coalesce(description, ''),
                 relkind = 'r' AND pg_has_role(relowner, 'USAGE')
                 AND NOT EXISTS (
                     SELECT FROM pg_constraint WHERE conrelid = pg_class.oid AND contype = 'p'
                 )
                 AND current_setting('transaction_read_only') = 'off'
             FROM pg_class
             JOIN pg_namespace ON pg_namespace.oid = relnamespace
             LEFT JOIN pg_description ON objoid = pg_class.oid AND objsubid = 0
                 AND classoid = 'pg_catalog.pg_class'::regclass
             WHERE nspname = $1 AND relname = ANY ($2)
                 -- An index of that name may be somebody else's.
                 AND (relname <> $3 OR EXISTS (
                     SELECT FROM pg_index JOIN pg_class AS jobs ON jobs.oid = indrelid
                     WHERE indexrelid = pg_class.oid AND jobs.relname = 'jobs'
                         AND jobs.relnamespace = pg_class.relnamespace
                 ))
             ORDER BY relname";
        let names: Vec<_> = [&[VERSION_TABLE, OLD_LINE][..], &TABLES, &SEQUENCES].concat();
        let rows = sqlx::query(text)
            .persistent(false)
            .bind(&self.name)
            .bind(names)
            .bind(OLD_LINE)
            .fetch_all(connection);
        rows.await?.iter().map(Relation::decode).collect()
    }

    fn occupied(&self, relation: &str) -> Error {
        Error::database(
            "the schema belongs to something else",
            format!(
                "{}.{relation} was not made by this library, which changes nothing there: give it \
                 a schema of its own with `PostgresOptions::schema`",
                self.quoted()
            ),
        )
    }
}

/// A relation with a name of this library's.
#[derive(Debug)]
struct Relation {
    name: String,
    /// Whether it says that it is this library's.
    marked: bool,
    to_repair: bool,
}

impl Relation {
    fn decode(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Self {
            name: row.try_get(0)?,
            marked: row.try_get::<&str, _>(1)? == MARK,
            to_repair: row.try_get(2)?,
        })
    }
}

fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

fn check_server(version: Option<u32>) -> Result<()> {
    match version {
        Some(version) if version < OLDEST_SERVER => Err(Error::database(
            "the server is too old",
            format!(
                "it has version {}, and {} is the oldest supported",
                version / 10_000,
                OLDEST_SERVER / 10_000
            ),
        )),
        _ => Ok(()),
    }
}

/// Refuses what cannot hold every text. `SQL_ASCII` takes the bytes as they come.
async fn check_encoding(connection: &mut PgConnection) -> Result<()> {
    let encoding = sqlx::query("SELECT current_setting('server_encoding')")
        .persistent(false)
        .fetch_one(connection)
        .await
        .and_then(|row| row.try_get::<String, _>(0))
        .map_err(|error| failed(OPENING, error))?;
    if ["UTF8", "SQL_ASCII"].contains(&encoding.as_str()) {
        return Ok(());
    }
    Err(Error::database(
        "the database's encoding cannot hold every text",
        format!("it is {encoding}: create the database with ENCODING 'UTF8'"),
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_the_suite_does_not_run_on_are_refused() {
        let error = check_server(Some(130_023)).expect_err("13 is too old");
        let reason = std::error::Error::source(&error).map(ToString::to_string);
        let reason = reason.expect("it says why");
        assert!(reason.contains("version 13, and 14"), "{reason}");
        assert!(check_server(Some(140_000)).is_ok());
        // Some poolers do not say.
        assert!(check_server(None).is_ok());
    }
}
