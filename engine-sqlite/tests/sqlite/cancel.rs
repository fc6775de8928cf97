//! Futures dropped half-way leave nothing behind.

use alkstore::{EnqueueOpts, QueueOpts};
use sqlx::Executor as _;

use crate::support::{Files, PATIENCE, polled};

const POLLS: std::ops::Range<usize> = 0..16;

#[tokio::test]
async fn a_begin_dropped_anywhere_leaves_no_transaction() {
    let files = Files::new();
    let store = files.open().await;
    let queue = store.queue("q", QueueOpts::default()).expect("a queue");
    for polls in POLLS {
        drop(polled(polls, store.begin_tx()).await);
        queue
            .enqueue("x", EnqueueOpts::default())
            .await
            .expect("the writer is free");
        let pool = files.pool().await;
        let rows = "SELECT count(*) FROM __alkstore_jobs";
        let rows: i64 = sqlx::query_scalar(rows)
            .fetch_one(&pool)
            .await
            .expect("a count");
        assert_eq!(
            rows,
            i64::try_from(polls).expect("a number") + 1,
            "what was enqueued is committed"
        );
    }
}

#[tokio::test]
async fn a_commit_dropped_anywhere_is_whole() {
    let files = Files::new();
    let store = files.open().await;
    let pool = files.pool().await;
    pool.execute("CREATE TABLE business (key INTEGER PRIMARY KEY)")
        .await
        .expect("a table");
    for polls in POLLS {
        let mut tx = store.begin_tx().await.expect("a transaction");
        let key = sqlx::query("INSERT INTO business VALUES (?)")
            .bind(i64::try_from(polls).expect("a number"));
        tx.connection().execute(key).await.expect("inserted");
        tx.enqueue_tx("q", EnqueueOpts::default(), "x")
            .await
            .expect("enqueued");
        drop(polled(polls, tx.commit()).await);
        // The next writer gets its turn only once the outcome is decided.
        drop(store.begin_tx().await.expect("the writer is free"));
        let rows: i64 = sqlx::query_scalar(
            "SELECT (SELECT count(*) FROM business) - (SELECT count(*) FROM __alkstore_jobs)",
        )
        .fetch_one(&pool)
        .await
        .expect("a count");
        assert_eq!(rows, 0, "both or neither");
    }
}

#[tokio::test]
async fn an_operation_in_a_tx_dropped_anywhere_rolls_back_with_it() {
    let files = Files::new();
    let store = files.open().await;
    let stream = store.stream("s").expect("a stream");
    for polls in POLLS {
        let mut tx = store.begin_tx().await.expect("a transaction");
        drop(polled(polls, tx.publish_tx("s", "lost")).await);
        tx.rollback().await.expect("rolled back");
        let offset = stream.publish("kept").await.expect("published");
        assert_eq!(
            offset,
            i64::try_from(polls).expect("a number") + 1,
            "no hole and no ghost"
        );
    }
}

#[tokio::test]
async fn an_enqueue_dropped_while_it_waits_does_nothing() {
    let files = Files::new();
    let store = files.open().await;
    let queue = store.queue("q", QueueOpts::default()).expect("a queue");
    let tx = store.begin_tx().await.expect("a transaction");
    for polls in 1..8 {
        let waited = polled(polls, queue.enqueue("x", EnqueueOpts::default())).await;
        assert!(waited.is_none(), "the writer is held");
    }
    drop(tx);
    queue
        .enqueue("y", EnqueueOpts::default())
        .await
        .expect("the writer is free");
    assert_eq!(queue.claim_batch("w", 10).await.expect("claimed").len(), 1);
}

#[tokio::test]
async fn receivers_live_on_after_a_dropped_listen() {
    let files = Files::new();
    let store = files.open().await;
    for polls in 0..4 {
        drop(polled(polls, store.listen("c")).await);
    }
    let mut wakes = store.listen("c").await.expect("a receiver");
    store.notify("c", "x").await.expect("notified");
    assert!(wakes.recv_timeout(PATIENCE).await.expect("open").is_some());
}
