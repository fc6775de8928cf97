//! Sessions that are not what they were, or that there are too few of.

use std::time::Duration;

use alkstore::{EnqueueOpts, Store};
use alkstore_contract_tests::postgres_server::{Database, PostgresServer, ServerOptions};
use alkstore_postgres::{Postgres, PostgresOptions};
use futures::future::join_all;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor as _, PgPool};

use crate::support::{database, enqueue, open, open_with, queue, soon};

/// Ends all sessions of the engine; they notice when they are used.
fn end_sessions(database: &Database<'_>) {
    database.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'alkstore'",
    );
}

async fn over(pool: PgPool) -> Store<Postgres> {
    let options = PostgresOptions::new().listen(false);
    Store::new(options.over_pool(pool).await.unwrap())
}

/// A statement whose result has another type since it was prepared is prepared again: alone, in
/// a transaction at the next try, and on an application's connections.
#[tokio::test]
async fn a_change_of_a_columns_type_is_lived_through() {
    let database = database();
    let options = PgPoolOptions::new().max_connections(2);
    let pool = options.connect(&database.url()).await.unwrap();
    let mut own = pool.acquire().await.unwrap();
    let stores = [
        open_with(&database, PostgresOptions::new().pool(1).listen(false)).await,
        over(pool).await,
    ];
    let read = async |store: &Store<Postgres>, id| {
        let mut tx = store.begin_tx().await.unwrap();
        let job = tx.get_job_tx("work", id).await;
        tx.rollback().await.unwrap();
        job
    };
    let alter = |kind: &str| {
        database.sql(&format!(
            "ALTER TABLE alkstore.jobs ALTER COLUMN last_error TYPE {kind};
             ALTER TABLE alkstore.dead_jobs ALTER COLUMN last_error TYPE {kind}"
        ));
    };
    for store in &stores {
        let work = queue(store, "work");
        let id = enqueue(&work, 1).await;
        assert!(work.get_job(id).await.unwrap().is_some());
        assert!(read(store, id).await.unwrap().is_some());
        store.join_tx(&mut own).get_job_tx("work", id).await.ok();
        let job = store.join_tx(&mut own).get_job_tx("work", id).await;
        assert!(job.unwrap().is_some());
        alter("varchar");
        let error = read(store, id).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        assert!(read(store, id).await.unwrap().is_some());
        let error = store.join_tx(&mut own).get_job_tx("work", id).await;
        assert!(error.unwrap_err().is_transient());
        let job = store.join_tx(&mut own).get_job_tx("work", id).await;
        assert!(job.unwrap().is_some());
        alter("text");
        assert!(work.get_job(id).await.unwrap().is_some());
        let job = work.claim_one("w").await.unwrap().unwrap();
        assert!(job.retry("again", Some(0)).await.unwrap());
        work.cancel(id).await.unwrap();
    }
}

/// Sessions of a time in which the server was read-only are not used when it no longer is.
#[tokio::test]
async fn a_read_only_server_is_lived_through() {
    let database = database();
    let name = database.name();
    let read_only = |on: &str| {
        let set = format!("ALTER DATABASE \"{name}\" SET default_transaction_read_only = {on}");
        database.server().sql("postgres", &set);
    };
    let store = open(&database).await;
    let work = queue(&store, "work");
    enqueue(&work, 0).await;
    read_only("on");
    end_sessions(&database);
    for n in 0..3 {
        // The first finds that its session has ended.
        let error = work.enqueue(&n, EnqueueOpts::default()).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        let begun = store.begin_tx().await;
        if let Ok(mut tx) = begun {
            let error = tx.publish_tx("stream", &n).await.unwrap_err();
            assert!(error.is_transient(), "{error}");
            drop(tx);
        }
    }
    assert!(work.get_job(1).await.unwrap().is_some());
    read_only("off");
    // A session that was made meanwhile is found out by the first that writes.
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &1).await.unwrap_err();
    tx.rollback().await.unwrap();
    let mut tx = store.begin_tx().await.unwrap();
    let other = store.begin_tx().await.unwrap();
    for n in 0..3 {
        enqueue(&work, n).await;
    }
    tx.publish_tx("stream", &1).await.unwrap();
    tx.commit().await.unwrap();
    other.rollback().await.unwrap();
}

/// Sessions that the server ends because they idle: a read and a write are done on another, and
/// a transaction is to be tried again.
#[tokio::test]
async fn sessions_that_idle_too_long_are_replaced() {
    let database = database();
    let name = database.name();
    let set = |setting: &str| {
        let server = database.server();
        server.sql(
            "postgres",
            &format!("ALTER DATABASE \"{name}\" SET {setting}"),
        );
    };
    set("idle_session_timeout = 50");
    set("idle_in_transaction_session_timeout = 50");
    let store = open_with(&database, PostgresOptions::new().listen(false)).await;
    let work = queue(&store, "work");
    let id = enqueue(&work, 1).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(work.get_job(id).await.unwrap().is_some());
    tokio::time::sleep(Duration::from_millis(150)).await;
    enqueue(&work, 2).await;
    let mut tx = store.begin_tx().await.unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await;
    let error = tx.publish_tx("stream", &1).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    drop(tx);
    assert_eq!(work.claim_batch("w", 9).await.unwrap().len(), 2);
}

/// A server with fewer connections than the pool may have: who finds none waits for one.
#[tokio::test]
async fn a_full_server_is_waited_for() {
    let server = PostgresServer::start(&ServerOptions::new().setting("max_connections", "8"));
    let database = server.create_database();
    let options = PostgresOptions::new().pool(40).listen(false);
    let store = open_with(&database, options).await;
    let transactions = (0..40).map(|n| {
        let store = store.clone();
        async move {
            let mut tx = store.begin_tx().await?;
            tx.enqueue_tx("work", EnqueueOpts::default(), &n).await?;
            tx.commit().await
        }
    });
    for committed in soon(join_all(transactions)).await {
        committed.unwrap();
    }
    let claimed = queue(&store, "work").claim_batch("w", 50).await;
    assert_eq!(claimed.unwrap().len(), 40);
}

/// A session that the application gave back in a transaction, failed or not, is not worked on:
/// what it began is rolled back.
#[tokio::test]
async fn sessions_that_are_given_back_in_a_transaction_are_closed() {
    let database = database();
    let options = PgPoolOptions::new().max_connections(3);
    let pool = options.connect(&database.url()).await.unwrap();
    let store = over(pool.clone()).await;
    let work = queue(&store, "work");
    for spoilt in ["BEGIN", "BEGIN; SELECT 1 / 0"] {
        let spoil = async || {
            let mut sessions = Vec::new();
            for _ in 0..3 {
                let mut session = pool.acquire().await.unwrap();
                session.execute(spoilt).await.ok();
                sessions.push(session);
            }
        };
        spoil().await;
        for n in 0..5 {
            enqueue(&work, n).await;
        }
        spoil().await;
        let tx = store.begin_tx().await.unwrap();
        tx.commit().await.unwrap();
        spoil().await;
        for _ in 0..4 {
            assert!(work.get_job(1).await.unwrap().is_some());
        }
        let stream = store.stream("stream").unwrap();
        spoil().await;
        stream.publish(&1).await.unwrap();
    }
    assert_eq!(database.sql("SELECT count(*) FROM alkstore.jobs"), "10");
    assert_eq!(database.sql("SELECT count(*) FROM alkstore.events"), "2");
}

/// Connections belong to the runtime that made them: many short-lived ones share a store.
#[test]
fn runtimes_that_end_leave_the_store_to_others() {
    let database = database();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    // Never driven while the others are: what it made would not answer.
    let first = runtime();
    let store = first.block_on(async {
        let options = PostgresOptions::new().pool(3).listen(false);
        let store = open_with(&database, options).await;
        enqueue(&queue(&store, "work"), 0).await;
        store
    });
    for n in 0..50 {
        runtime().block_on(async {
            let work = queue(&store, "background");
            let background = tokio::spawn(async move {
                loop {
                    enqueue(&work, n).await;
                }
            });
            for _ in 0..3 {
                enqueue(&queue(&store, "work"), n).await;
            }
            assert!(!background.is_finished());
        });
    }
    first.block_on(enqueue(&queue(&store, "work"), 1));
    let kept = database.sql("SELECT count(*) FROM alkstore.jobs WHERE queue = 'work'");
    assert_eq!(kept, "152");
}
