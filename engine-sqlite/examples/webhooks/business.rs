//! The service's own tables and the SQL on them, on the connection of whichever driver the
//! store's engine is built on.

use std::any::Any;

use alkstore::BoxedStore;
use sqlx::{PgConnection, Row, SqliteConnection};

use crate::Failure;

/// The tables that the service would have anyway.
const TABLES: [&str; 6] = [
    "CREATE TABLE IF NOT EXISTS deliveries (
         id TEXT PRIMARY KEY, event TEXT NOT NULL, repository TEXT NOT NULL, job BIGINT)",
    "CREATE TABLE IF NOT EXISTS handled (delivery TEXT PRIMARY KEY, attempt BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS seen (
         stream TEXT, position BIGINT, delivery TEXT NOT NULL, PRIMARY KEY (stream, position))",
    "CREATE TABLE IF NOT EXISTS sent (delivery TEXT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS swept (job BIGINT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS guarded (token BIGINT NOT NULL)",
];

/// A boxed store's connection.
type Connection = dyn Any + Send;

/// A value of a statement.
#[derive(Clone, Copy)]
pub(crate) enum Value<'v> {
    Text(&'v str),
    Int(i64),
}

/// A statement with its values, for the driver in `$connection`.
macro_rules! on_driver {
    ($connection:expr, $sql:expr, $values:expr, $run:ident) => {{
        let connection: &mut Connection = $connection;
        if let Some(sqlite) = connection.downcast_mut::<SqliteConnection>() {
            on_driver!(@ sqlite, $sql, $values, $run)
        } else if let Some(postgres) = connection.downcast_mut::<PgConnection>() {
            on_driver!(@ postgres, $sql, $values, $run)
        } else {
            Err(sqlx::Error::Configuration("a driver that this program does not know".into()))
        }
    }};
    (@ $driver:ident, $sql:expr, $values:expr, $run:ident) => {{
        let mut query = sqlx::query($sql);
        for value in $values {
            query = match *value {
                Value::Text(text) => query.bind(text),
                Value::Int(number) => query.bind(number),
            };
        }
        $run!(query, $driver)
    }};
}

macro_rules! affected {
    ($query:ident, $driver:ident) => {
        $query
            .execute($driver)
            .await
            .map(|done| done.rows_affected())
    };
}

macro_rules! numbers_and_texts {
    ($query:ident, $driver:ident) => {
        $query.fetch_all($driver).await.and_then(|rows| {
            rows.iter()
                .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
                .collect()
        })
    };
}

async fn execute(
    connection: &mut Connection,
    sql: &'static str,
    values: &[Value<'_>],
) -> Result<u64, sqlx::Error> {
    on_driver!(connection, sql, values, affected)
}

/// Rows of a number and a text.
async fn rows(store: &BoxedStore, sql: &'static str) -> Result<Vec<(i64, String)>, Failure> {
    let mut tx = store.begin_tx().await?;
    let none: &[Value<'_>] = &[];
    let rows: Result<_, sqlx::Error> = on_driver!(tx.connection(), sql, none, numbers_and_texts);
    tx.rollback().await?;
    Ok(rows?)
}

/// Creates the tables; one process at a time, since Postgres lets only one create a name.
pub(crate) async fn create_tables(store: &BoxedStore) -> Result<(), Failure> {
    let owner = format!("process {}", std::process::id());
    let lock = loop {
        match store.try_lock("create tables", &owner, 10).await? {
            Some(lock) => break lock,
            None => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
    };
    let mut tx = store.begin_tx().await?;
    for table in TABLES {
        execute(tx.connection(), table, &[]).await?;
    }
    tx.commit().await?;
    lock.release().await?;
    Ok(())
}

/// Inserts the business row; `false` if the delivery is there already.
pub(crate) async fn insert_delivery(
    connection: &mut Connection,
    id: &str,
    event: &str,
    repository: &str,
) -> Result<bool, Failure> {
    let sql = "INSERT INTO deliveries (id, event, repository) VALUES ($1, $2, $3)";
    let values = [Value::Text(id), Value::Text(event), Value::Text(repository)];
    match execute(connection, sql, &values).await {
        Ok(_) => Ok(true),
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Notes which job does the delivery.
pub(crate) async fn set_job(
    connection: &mut Connection,
    id: &str,
    job: i64,
) -> Result<(), Failure> {
    let sql = "UPDATE deliveries SET job = $1 WHERE id = $2";
    execute(connection, sql, &[Value::Int(job), Value::Text(id)]).await?;
    Ok(())
}

/// The effect of a job; a second one would break the key.
pub(crate) async fn insert_handled(
    connection: &mut Connection,
    delivery: &str,
    attempt: i64,
) -> Result<(), Failure> {
    let sql = "INSERT INTO handled VALUES ($1, $2)";
    execute(
        connection,
        sql,
        &[Value::Text(delivery), Value::Int(attempt)],
    )
    .await?;
    Ok(())
}

/// The effect of an event; another process may have been faster.
pub(crate) async fn insert_seen(
    connection: &mut Connection,
    stream: &str,
    offset: i64,
    delivery: &str,
) -> Result<(), Failure> {
    let sql = "INSERT INTO seen VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    let values = [
        Value::Text(stream),
        Value::Int(offset),
        Value::Text(delivery),
    ];
    execute(connection, sql, &values).await?;
    Ok(())
}

/// The effect of an outbox message, which may be delivered more than once.
pub(crate) async fn insert_sent(
    connection: &mut Connection,
    delivery: &str,
) -> Result<(), Failure> {
    let sql = "INSERT INTO sent VALUES ($1) ON CONFLICT DO NOTHING";
    execute(connection, sql, &[Value::Text(delivery)]).await?;
    Ok(())
}

/// The effect of a job that the schedule fired.
pub(crate) async fn insert_swept(connection: &mut Connection, job: i64) -> Result<(), Failure> {
    execute(
        connection,
        "INSERT INTO swept VALUES ($1)",
        &[Value::Int(job)],
    )
    .await?;
    Ok(())
}

/// The next step of the guarded section, which must never carry an older token.
pub(crate) async fn insert_guarded(connection: &mut Connection, token: i64) -> Result<(), Failure> {
    let sql = "INSERT INTO guarded (token) SELECT CAST($1 AS BIGINT)
               WHERE $1 >= (SELECT coalesce(max(token), 0) FROM guarded)";
    match execute(connection, sql, &[Value::Int(token)]).await? {
        0 => Err("an older token wrote into the guarded section".into()),
        _ => Ok(()),
    }
}

/// The repositories that deliveries have come from.
pub(crate) async fn repositories(store: &BoxedStore) -> Result<Vec<String>, Failure> {
    let sql = "SELECT count(*), repository FROM deliveries GROUP BY repository";
    Ok(rows(store, sql)
        .await?
        .into_iter()
        .map(|(_, name)| name)
        .collect())
}

/// Every delivery's job, and whether the job's effect is there.
pub(crate) async fn jobs(store: &BoxedStore) -> Result<Vec<(i64, bool)>, Failure> {
    let sql = "SELECT job, CASE WHEN id IN (SELECT delivery FROM handled) THEN 'yes' ELSE 'no' END
               FROM deliveries";
    Ok(rows(store, sql)
        .await?
        .into_iter()
        .map(|(job, is)| (job, is == "yes"))
        .collect())
}

/// The counts that a report needs, by name.
pub(crate) async fn counts(store: &BoxedStore) -> Result<Vec<(i64, String)>, Failure> {
    let sql = "
        SELECT count(*), 'deliveries' FROM deliveries
        UNION ALL SELECT count(*), 'seen' FROM seen
        UNION ALL SELECT count(*), 'sent' FROM sent
        UNION ALL SELECT count(*), 'swept' FROM swept
        UNION ALL SELECT count(*), 'guarded' FROM guarded
        UNION ALL SELECT count(*), 'lost' FROM deliveries
            WHERE id NOT IN (SELECT delivery FROM seen) OR id NOT IN (SELECT delivery FROM sent)
        UNION ALL SELECT count(*), 'ghosts' FROM (
            SELECT delivery FROM handled UNION ALL SELECT delivery FROM seen
            UNION ALL SELECT delivery FROM sent) AS effects
            WHERE delivery NOT IN (SELECT id FROM deliveries)";
    rows(store, sql).await
}
