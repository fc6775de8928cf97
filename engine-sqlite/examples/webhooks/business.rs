//! The service's own tables and the SQL on them, on the driver's connection.

use alkstore::Store;
use alkstore_sqlite::Sqlite;
use sqlx::{Row, SqliteConnection};

use crate::Failure;

/// The tables that the service would have anyway.
const TABLES: [&str; 5] = [
    "CREATE TABLE IF NOT EXISTS deliveries (
         id TEXT PRIMARY KEY, event TEXT NOT NULL, repository TEXT NOT NULL, job INTEGER)",
    "CREATE TABLE IF NOT EXISTS handled (delivery TEXT PRIMARY KEY, attempt INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS seen (
         stream TEXT, position INTEGER, delivery TEXT NOT NULL, PRIMARY KEY (stream, position))",
    "CREATE TABLE IF NOT EXISTS sent (delivery TEXT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS guarded (step INTEGER PRIMARY KEY, token INTEGER NOT NULL)",
];

pub(crate) async fn create_tables(store: &Store<Sqlite>) -> Result<(), Failure> {
    let mut tx = store.begin_tx().await?;
    for table in TABLES {
        sqlx::query(table).execute(tx.connection()).await?;
    }
    Ok(tx.commit().await?)
}

/// Inserts the business row; `false` if the delivery is there already.
pub(crate) async fn insert_delivery(
    connection: &mut SqliteConnection,
    id: &str,
    event: &str,
    repository: &str,
) -> Result<bool, Failure> {
    let insert = sqlx::query("INSERT INTO deliveries (id, event, repository) VALUES (?, ?, ?)")
        .bind(id)
        .bind(event)
        .bind(repository)
        .execute(connection)
        .await;
    match insert {
        Ok(_) => Ok(true),
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Notes which job does the delivery.
pub(crate) async fn set_job(
    connection: &mut SqliteConnection,
    id: &str,
    job: i64,
) -> Result<(), Failure> {
    let update = sqlx::query("UPDATE deliveries SET job = ? WHERE id = ?");
    update.bind(job).bind(id).execute(connection).await?;
    Ok(())
}

/// The effect of a job.
pub(crate) async fn insert_handled(
    connection: &mut SqliteConnection,
    delivery: &str,
    attempt: i64,
) -> Result<(), Failure> {
    let insert = sqlx::query("INSERT INTO handled VALUES (?, ?)");
    insert
        .bind(delivery)
        .bind(attempt)
        .execute(connection)
        .await?;
    Ok(())
}

/// The effect of an event.
pub(crate) async fn insert_seen(
    connection: &mut SqliteConnection,
    stream: &str,
    offset: i64,
    delivery: &str,
) -> Result<(), Failure> {
    let insert = sqlx::query("INSERT INTO seen VALUES (?, ?, ?)");
    insert
        .bind(stream)
        .bind(offset)
        .bind(delivery)
        .execute(connection)
        .await?;
    Ok(())
}

/// The effect of an outbox message, which may be delivered more than once.
pub(crate) async fn insert_sent(
    connection: &mut SqliteConnection,
    delivery: &str,
) -> Result<(), Failure> {
    let insert = sqlx::query("INSERT OR IGNORE INTO sent VALUES (?)");
    insert.bind(delivery).execute(connection).await?;
    Ok(())
}

/// The next step of the guarded section, which must never carry an older token.
pub(crate) async fn insert_guarded(
    connection: &mut SqliteConnection,
    token: i64,
) -> Result<(), Failure> {
    let insert = sqlx::query(
        "INSERT INTO guarded (token) SELECT ?1
         WHERE ?1 >= (SELECT coalesce(max(token), 0) FROM guarded)",
    );
    match insert
        .bind(token)
        .execute(connection)
        .await?
        .rows_affected()
    {
        0 => Err("an older token wrote into the guarded section".into()),
        _ => Ok(()),
    }
}

/// The repositories that deliveries have come from.
pub(crate) async fn repositories(store: &Store<Sqlite>) -> Result<Vec<String>, Failure> {
    let rows = sqlx::query("SELECT DISTINCT repository FROM deliveries ORDER BY repository")
        .fetch_all(store.engine().pool())
        .await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// One number.
pub(crate) async fn count(store: &Store<Sqlite>, sql: &'static str) -> Result<i64, Failure> {
    Ok(sqlx::query_scalar(sql)
        .fetch_one(store.engine().pool())
        .await?)
}

/// Every delivery with its job, and whether the job's effect is there.
pub(crate) async fn jobs(store: &Store<Sqlite>) -> Result<Vec<(i64, bool)>, Failure> {
    let sql = "SELECT job, id IN (SELECT delivery FROM handled) FROM deliveries";
    let rows = sqlx::query(sql).fetch_all(store.engine().pool()).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
