//! The engine under the suite of the contract.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use alkstore::engine::Backend as _;
use alkstore::{Error, Result, Store};
use alkstore_contract_tests::postgres_server::{Database, PostgresServer};
use alkstore_contract_tests::{Body, Harness};
use alkstore_postgres::{Postgres, PostgresOptions};
use sqlx::{Connection as _, PgConnection, PgPool, Row as _};

/// Unset, the suite runs on the engine's own connections. `pool`: over an application's pool;
/// `uncached`: with nothing kept in the sessions, as behind a pooler.
const MODE: &str = "ALKSTORE_TEST_POSTGRES_MODE";

/// A database on the server that all tests share.
pub(crate) struct PostgresHarness {
    database: Database<'static>,
    clock_offset: Arc<AtomicI64>,
}

impl PostgresHarness {
    async fn open_with(&self, options: PostgresOptions) -> Store<Postgres> {
        let options = options.clock_offset(Arc::clone(&self.clock_offset));
        let url = self.database.url();
        let engine = match std::env::var(MODE).as_deref() {
            Err(_) => options.open(&url).await,
            Ok("uncached") => options.statement_cache(false).open(&url).await,
            Ok("pool") => {
                let pool = PgPool::connect(&url).await.expect("the database is there");
                options.over_pool(pool).await
            }
            Ok(other) => panic!("{MODE} is `pool` or `uncached`, not `{other}`"),
        };
        Store::new(engine.expect("the database opens"))
    }

    fn database(error: sqlx::Error) -> Error {
        Error::database("business SQL failed", error)
    }
}

impl Harness for PostgresHarness {
    type Engine = Postgres;

    async fn new() -> Self {
        let database = PostgresServer::shared().create_database();
        database.sql("CREATE TABLE business (key text PRIMARY KEY)");
        Self {
            database,
            clock_offset: Arc::default(),
        }
    }

    async fn open(&self) -> Store<Postgres> {
        self.open_with(PostgresOptions::new()).await
    }

    async fn open_impatient(&self) -> Store<Postgres> {
        // Making the schema takes longer than that.
        self.open().await.close().await;
        let options = PostgresOptions::new().operation_timeout(Duration::from_millis(800));
        self.open_with(options).await
    }

    fn advance(&self, seconds: i64) {
        let add = |offset: i64| Some(offset.saturating_add(seconds));
        self.clock_offset
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, add)
            .ok();
    }

    async fn insert_row(connection: &mut PgConnection, key: &str) -> Result<()> {
        let insert = sqlx::query("INSERT INTO business VALUES ($1)").bind(key);
        insert.execute(connection).await.map_err(Self::database)?;
        Ok(())
    }

    async fn count_rows(connection: &mut PgConnection) -> Result<i64> {
        let count = sqlx::query("SELECT count(*) FROM business")
            .fetch_one(connection)
            .await;
        count.and_then(|row| row.try_get(0)).map_err(Self::database)
    }

    async fn with_own_tx(&self, commit: bool, body: Body<'_, PgConnection>) -> Result<()> {
        let connection = PgConnection::connect(&self.database.url()).await;
        let mut connection = connection.map_err(Self::database)?;
        let mut tx = connection.begin().await.map_err(Self::database)?;
        body(&mut tx).await?;
        let ended = if commit {
            tx.commit().await
        } else {
            tx.rollback().await
        };
        ended.map_err(Self::database)
    }

    async fn with_driver_tx(&self, body: Body<'_, dyn Any + Send>) -> Result<()> {
        let pool = PgPool::connect(&self.database.url())
            .await
            .map_err(Self::database)?;
        let mut tx = pool.begin().await.map_err(Self::database)?;
        body(&mut tx).await?;
        tx.commit().await.map_err(Self::database)?;
        pool.close().await;
        Ok(())
    }

    async fn remove_source(&self) -> bool {
        false
    }

    fn notify_limit(&self) -> Option<usize> {
        Some(8000)
    }

    fn concurrent_writers(&self) -> bool {
        true
    }
}

/// The driver's objects that a boxed store takes for the connection that they are around.
#[tokio::test]
async fn the_drivers_objects_are_taken_for_their_connection() {
    let database = PostgresServer::shared().create_database();
    let pool = PgPool::connect(&database.url())
        .await
        .expect("the database is there");
    let mut tx = pool.begin().await.expect("a transaction begins");
    assert!(Postgres::downcast(&mut tx).is_some());
    assert!(Postgres::downcast(&mut *tx).is_some());
    let mut pooled = pool.acquire().await.expect("a connection is free");
    assert!(Postgres::downcast(&mut pooled).is_some());
    assert!(Postgres::downcast(&mut 1).is_none());
}
