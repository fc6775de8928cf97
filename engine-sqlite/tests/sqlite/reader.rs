//! A statement of the application's that reads a database in memory, and has not ended.

use std::time::{Duration, Instant};

use alkstore::{EnqueueOpts, QueueOpts, Store};
use alkstore_sqlite::SqliteOptions;
use futures::TryStreamExt as _;
use tokio::time::sleep;

use crate::support::chain;

const JOBS: usize = 500;

#[tokio::test]
async fn a_reader_in_memory_is_waited_for_without_blocking_and_named() {
    let limit = Duration::from_millis(600);
    let engine = SqliteOptions::new().busy_timeout(limit).open(":memory:");
    let store = Store::new(engine.await.expect("it opens"));
    let queue = store.queue("q", QueueOpts::default()).expect("a queue");
    let jobs = queue.enqueue_batch(&[0; JOBS], EnqueueOpts::default());
    jobs.await.expect("enqueued");
    let pool = store.engine().pool().clone();
    let mut rows = sqlx::query("SELECT * FROM __alkstore_jobs").fetch(&pool);
    rows.try_next().await.expect("read").expect("a row");
    // How late a timer of this thread's is tells how long the thread was blocked.
    let timer = tokio::spawn(async {
        let mut latest = Duration::ZERO;
        for _ in 0..100 {
            let started = Instant::now();
            sleep(Duration::from_millis(5)).await;
            latest = latest.max(started.elapsed());
        }
        latest
    });
    let started = Instant::now();
    let error = queue.enqueue("x", EnqueueOpts::default()).await;
    let error = error.expect_err("the reader has not ended");
    assert!(started.elapsed() >= limit / 2, "{:?}", started.elapsed());
    assert!(error.is_transient(), "{error:?}");
    let told = chain(&error);
    assert!(told.contains("a statement that reads"), "{told}");
    let latest = timer.await.expect("no panic");
    assert!(latest < limit / 2, "the thread was blocked for {latest:?}");
    let mut read = 1;
    while rows.try_next().await.expect("the reader goes on").is_some() {
        read += 1;
    }
    assert_eq!(read, JOBS);
    drop(rows);
    let enqueued = queue.enqueue("x", EnqueueOpts::default()).await;
    enqueued.expect("enqueued");
}
