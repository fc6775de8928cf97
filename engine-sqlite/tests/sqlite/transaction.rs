//! Who holds the writer, and what an application's own transaction meets.

use std::time::{Duration, Instant};

use alkstore::engine::{At, NewJob, Queues as _, Ready, Stamps};
use alkstore::{EnqueueOpts, QueueOpts, Store};
use alkstore_sqlite::{Sqlite, SqliteOptions};
use sqlx::{Connection as _, Executor as _, SqliteConnection};

use crate::support::{Files, PATIENCE, chain, impatient};

const PLAIN: fn() -> EnqueueOpts = EnqueueOpts::default;

#[tokio::test]
async fn a_write_beside_an_own_tx_ends_in_a_transient_error() {
    let files = Files::new();
    let store = files.open_with(impatient()).await;
    let queue = store.queue("q", QueueOpts::default()).expect("a queue");
    let tx = store.begin_tx().await.expect("a transaction");
    let started = Instant::now();
    let error = queue
        .enqueue("x", PLAIN())
        .await
        .expect_err("the writer is held");
    assert!(error.is_transient(), "{error:?}");
    assert!(
        chain(&error).contains("held by the same task"),
        "{}",
        chain(&error)
    );
    let second = store.begin_tx().await.expect_err("the writer is held");
    assert!(second.is_transient(), "{second:?}");
    assert!(started.elapsed() < Duration::from_secs(2));
    drop(tx);
    queue
        .enqueue("x", PLAIN())
        .await
        .expect("the writer is free");
}

#[tokio::test]
async fn a_foreign_writer_is_waited_for_and_named() {
    let files = Files::new();
    let store = files.open_with(impatient()).await;
    let queue = store.queue("q", QueueOpts::default()).expect("a queue");
    let pool = files.pool().await;
    let tx = pool
        .begin_with("BEGIN IMMEDIATE")
        .await
        .expect("a transaction");
    let error = queue
        .enqueue("x", PLAIN())
        .await
        .expect_err("the lock is held");
    assert!(error.is_transient(), "{error:?}");
    assert!(
        chain(&error).contains("another process"),
        "{}",
        chain(&error)
    );
    let error = store.begin_tx().await.expect_err("the lock is held");
    assert!(error.is_transient(), "{error:?}");
    assert!(
        chain(&error).contains("another process"),
        "{}",
        chain(&error)
    );
    let waiting = queue.enqueue("x", PLAIN());
    let (waited, freed) = tokio::join!(waiting, tx.rollback());
    freed.expect("rolled back");
    waited.expect("enqueued once the lock is free");
}

#[tokio::test]
async fn a_stale_deferred_transaction_is_told_to_begin_again() {
    let files = Files::new();
    let store = files.open().await;
    let pool = files.pool().await;
    let mut tx = pool.begin().await.expect("a transaction");
    (&mut *tx)
        .execute("SELECT count(*) FROM __alkstore_jobs")
        .await
        .expect("a read");
    let queue = store.queue("q", QueueOpts::default()).expect("a queue");
    queue.enqueue("other", PLAIN()).await.expect("enqueued");
    let started = Instant::now();
    let error = store
        .join_tx(&mut tx)
        .enqueue_tx("q", PLAIN(), "mine")
        .await;
    let error = error.expect_err("what it read is stale");
    assert!(
        started.elapsed() < Duration::from_millis(50),
        "{:?}",
        started.elapsed()
    );
    assert!(error.is_transient(), "{error:?}");
    assert!(
        chain(&error).contains("whole transaction"),
        "{}",
        chain(&error)
    );
    tx.rollback().await.expect("rolled back");
    let mut tx = pool.begin().await.expect("a transaction");
    store
        .join_tx(&mut tx)
        .enqueue_tx("q", PLAIN(), "mine")
        .await
        .expect("enqueued");
    tx.commit().await.expect("committed");
    assert_eq!(queue.claim_batch("w", 10).await.expect("claimed").len(), 2);
}

fn job(queue: &str) -> NewJob<'_> {
    NewJob {
        queue,
        payload: b"1",
        ready: Ready::Now,
        priority: 0,
        expires: None,
        stamps: Stamps {
            visibility_timeout_s: 30,
            max_attempts: 3,
            backoff_base_s: 5,
            dead_letter_retention_s: None,
        },
    }
}

#[tokio::test]
async fn a_failed_operation_leaves_the_applications_transaction_usable() {
    let files = Files::new();
    let store = files.open().await;
    let pool = files.pool().await;
    pool.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON __alkstore_jobs WHEN new.queue = 'refused'
         BEGIN SELECT raise(ABORT, 'refused'); END",
    )
    .await
    .expect("a trigger");
    let mut tx = pool.begin().await.expect("a transaction");
    let mut joined = store.join_tx(&mut tx);
    joined
        .enqueue_tx("kept", PLAIN(), "x")
        .await
        .expect("enqueued");
    // The first of two is inserted by a statement of its own; it goes with the second.
    let both = ["undone", "refused"].map(job);
    let engine = store.engine();
    let refused = engine.insert_jobs(At::In(&mut tx), &both).await;
    refused.expect_err("refused");
    tx.commit().await.expect("committed");
    let count = "SELECT count(*) FROM __alkstore_jobs";
    let count: i64 = sqlx::query_scalar(count)
        .fetch_one(&pool)
        .await
        .expect("a count");
    assert_eq!(count, 1);
}

#[tokio::test]
async fn a_connection_outside_of_a_transaction_commits_whole_operations() {
    let files = Files::new();
    let store = files.open().await;
    let mut plain = SqliteConnection::connect(&files.database())
        .await
        .expect("a connection");
    store
        .join_tx(&mut plain)
        .enqueue_tx("q", PLAIN(), "x")
        .await
        .expect("enqueued");
    store
        .join_tx(&mut plain)
        .publish_tx("s", "x")
        .await
        .expect("published");
    assert_eq!(
        store
            .stream("s")
            .expect("a stream")
            .read_since(0, 9)
            .await
            .expect("read")
            .len(),
        1
    );
    let queue = store.queue("q", QueueOpts::default()).expect("a queue");
    assert!(queue.claim_one("w").await.expect("claimed").is_some());
}

#[tokio::test]
async fn a_commit_that_fails_is_reported_and_rolls_back() {
    let files = Files::new();
    let store = files.open().await;
    files
        .pool()
        .await
        .execute(
            "CREATE TABLE parent (id INTEGER PRIMARY KEY);
             CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
        )
        .await
        .expect("tables");
    let mut tx = store.begin_tx().await.expect("a transaction");
    tx.enqueue_tx("q", PLAIN(), "x").await.expect("enqueued");
    tx.connection()
        .execute("INSERT INTO child VALUES (1)")
        .await
        .expect("inserted");
    tx.commit().await.expect_err("the parent is missing");
    let queue = store.queue("q", QueueOpts::default()).expect("a queue");
    assert!(
        queue
            .claim_one("w")
            .await
            .expect("the writer is free")
            .is_none()
    );
}

#[test]
fn a_tx_dropped_outside_of_its_runtime_frees_the_writer() {
    let files = Files::new();
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let first = runtime();
    let store = first.block_on(files.open());
    let tx = first.block_on(store.begin_tx()).expect("a transaction");
    drop(tx);
    let enqueue = |store: Store<Sqlite>| async move {
        let queue = store.queue("q", QueueOpts::default()).expect("a queue");
        queue
            .enqueue("x", PLAIN())
            .await
            .expect("the writer is free");
    };
    first.block_on(enqueue(store.clone()));
    let tx = first.block_on(store.begin_tx()).expect("a transaction");
    drop(first);
    drop(tx);
    runtime().block_on(enqueue(store));
}

#[tokio::test]
async fn closing_beside_an_open_tx_ends() {
    let files = Files::new();
    let store = files.open_with(impatient()).await;
    let tx = store.begin_tx().await.expect("a transaction");
    let closed = tokio::time::timeout(PATIENCE, store.close()).await;
    closed.expect("it does not wait for what the same task holds");
    drop(tx);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_stand_in_a_fair_line() {
    let files = Files::new();
    let store = files.open_with(SqliteOptions::new()).await;
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                let queue = store.queue("q", QueueOpts::default()).expect("a queue");
                for number in 0..50 {
                    if (task + number) % 4 == 0 {
                        let mut tx = store.begin_tx().await.expect("a transaction");
                        tx.enqueue_tx("q", PLAIN(), "x").await.expect("enqueued");
                        tx.commit().await.expect("committed");
                    } else {
                        queue.enqueue("x", PLAIN()).await.expect("enqueued");
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let queue = store.queue("q", QueueOpts::default()).expect("a queue");
    assert_eq!(
        queue.claim_batch("w", 1000).await.expect("claimed").len(),
        400
    );
}
