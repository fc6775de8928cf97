//! SQLite for the contract matrix: a file in a folder of its own.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use alkstore::{Error, Result, Store};
use alkstore_contract_tests::{Body, Harness};
use alkstore_sqlite::{Sqlite, SqliteOptions};
use sqlx::{Connection as _, SqliteConnection, SqlitePool};

use crate::support::{Files, impatient};

/// A database file and the application's own pool on it.
pub(crate) struct SqliteHarness {
    files: Files,
    clock: Arc<AtomicI64>,
    pool: SqlitePool,
}

impl SqliteHarness {
    async fn open_with(&self, options: SqliteOptions) -> Store<Sqlite> {
        self.files
            .open_with(options.clock_offset(Arc::clone(&self.clock)))
            .await
    }
}

impl Harness for SqliteHarness {
    type Engine = Sqlite;

    async fn new() -> Self {
        let files = Files::new();
        let pool = files.pool().await;
        sqlx::raw_sql("PRAGMA journal_mode = WAL; CREATE TABLE business (key TEXT PRIMARY KEY)")
            .execute(&pool)
            .await
            .expect("a business table");
        Self {
            files,
            clock: Arc::default(),
            pool,
        }
    }

    async fn open(&self) -> Store<Sqlite> {
        self.open_with(SqliteOptions::new()).await
    }

    async fn open_impatient(&self) -> Store<Sqlite> {
        self.open_with(impatient()).await
    }

    fn advance(&self, seconds: i64) {
        self.clock.fetch_add(seconds, Ordering::SeqCst);
    }

    async fn insert_row(connection: &mut SqliteConnection, key: &str) -> Result<()> {
        sqlx::query("INSERT INTO business (key) VALUES (?)")
            .bind(key)
            .execute(connection)
            .await
            .map(|_| ())
            .map_err(failed)
    }

    async fn count_rows(connection: &mut SqliteConnection) -> Result<i64> {
        sqlx::query_scalar("SELECT count(*) FROM business")
            .fetch_one(connection)
            .await
            .map_err(failed)
    }

    async fn with_own_tx(&self, commit: bool, body: Body<'_, SqliteConnection>) -> Result<()> {
        let mut connection = self.pool.acquire().await.map_err(failed)?;
        let mut tx = connection
            .begin_with("BEGIN IMMEDIATE")
            .await
            .map_err(failed)?;
        body(&mut tx).await?;
        let ended = if commit {
            tx.commit().await
        } else {
            tx.rollback().await
        };
        ended.map_err(failed)
    }

    async fn with_driver_tx(&self, body: Body<'_, dyn Any + Send>) -> Result<()> {
        let mut tx = self
            .pool
            .begin_with("BEGIN IMMEDIATE")
            .await
            .map_err(failed)?;
        body(&mut tx).await?;
        tx.commit().await.map_err(failed)
    }

    async fn remove_source(&self) -> bool {
        std::fs::remove_file(self.files.database()).expect("the file is removed");
        true
    }
}

fn failed(error: sqlx::Error) -> Error {
    Error::database("a business statement failed", error)
}
