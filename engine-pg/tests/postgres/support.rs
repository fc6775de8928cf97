//! What the tests share.

use std::time::Duration;

use alkstore::{EnqueueOpts, Queue, QueueOpts, Store};
use alkstore_contract_tests::postgres_server::{Database, PostgresServer};
use alkstore_postgres::{Postgres, PostgresOptions};

/// A fresh database on the server that all tests share.
pub(crate) fn database() -> Database<'static> {
    PostgresServer::shared().create_database()
}

pub(crate) async fn open(database: &Database<'_>) -> Store<Postgres> {
    open_with(database, PostgresOptions::new()).await
}

pub(crate) async fn open_with(
    database: &Database<'_>,
    options: PostgresOptions,
) -> Store<Postgres> {
    Store::new(options.open(&database.url()).await.unwrap())
}

pub(crate) fn queue(store: &Store<Postgres>, name: &str) -> Queue<Postgres> {
    store.queue(name, QueueOpts::default()).unwrap()
}

pub(crate) async fn enqueue(queue: &Queue<Postgres>, number: i64) -> i64 {
    queue
        .enqueue(&number, EnqueueOpts::default())
        .await
        .unwrap()
}

/// What must happen soon.
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    within(Duration::from_secs(20), what).await
}

pub(crate) async fn within<F: Future>(most: Duration, what: F) -> F::Output {
    tokio::time::timeout(most, what)
        .await
        .unwrap_or_else(|_| panic!("not within {most:?}"))
}

/// Looks until `done` says so.
pub(crate) async fn eventually<F: AsyncFnMut() -> bool>(mut done: F) {
    soon(async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// How many sessions of the database are in a transaction that nobody works on.
pub(crate) fn open_transactions(database: &Database<'_>) -> String {
    database.sql(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
    )
}
