//! Options at the ends of their ranges.

use std::time::Duration;

use alkstore::{EnqueueOpts, Error, QueueOpts, Store};
use alkstore_sqlite::{Sqlite, SqliteOptions};
use tokio::runtime::Builder;

use crate::support::{Files, PATIENCE, chain};

/// Every kind of operation works.
async fn works(options: SqliteOptions) {
    let files = Files::new();
    let store = files.open_with(options.clone()).await;
    let over_pool = options.over_pool(files.pool().await).await;
    let over_pool = Store::new(over_pool.expect("it opens"));
    let mut wakes = over_pool.listen("c").await.expect("a receiver");
    for store in [&store, &over_pool] {
        let queue = store.queue("q", QueueOpts::default()).expect("a queue");
        let id = queue
            .enqueue("x", EnqueueOpts::default())
            .await
            .expect("enqueued");
        assert!(queue.get_job(id).await.expect("read").is_some());
        assert!(queue.claim_one("w").await.expect("claimed").is_some());
        for _ in 0..3 {
            let mut tx = store.begin_tx().await.expect("a transaction");
            tx.notify_tx("c", "x").await.expect("notified");
            tx.commit().await.expect("committed");
        }
    }
    assert!(wakes.recv_timeout(PATIENCE).await.expect("open").is_some());
    let count = "SELECT count(*) FROM __alkstore_jobs";
    let pool = store.engine().pool();
    sqlx::query_scalar::<_, i64>(count)
        .fetch_one(pool)
        .await
        .expect("the pool works");
    let closed = tokio::time::timeout(PATIENCE, async {
        over_pool.close().await;
        store.close().await;
    });
    closed.await.expect("in time");
}

#[tokio::test]
async fn every_value_of_every_option_works() {
    const DAYS: Duration = Duration::from_secs(100 * 24 * 60 * 60);
    for time in [Duration::ZERO, Duration::from_nanos(1), DAYS, Duration::MAX] {
        works(SqliteOptions::new().busy_timeout(time)).await;
        works(SqliteOptions::new().reread_interval(time)).await;
        works(SqliteOptions::new().wake_debounce(time)).await;
    }
    for readers in [0, 1, usize::MAX] {
        works(SqliteOptions::new().readers(readers)).await;
    }
    let all = SqliteOptions::new()
        .busy_timeout(Duration::MAX)
        .reread_interval(Duration::MAX)
        .wake_debounce(Duration::MAX)
        .readers(usize::MAX);
    works(all).await;
}

#[tokio::test]
async fn a_busy_timeout_of_zero_does_not_wait() {
    let files = Files::new();
    let store = files
        .open_with(SqliteOptions::new().busy_timeout(Duration::ZERO))
        .await;
    let held = store.begin_tx().await.expect("a transaction");
    let error = store.begin_tx().await.expect_err("the writer is held");
    assert!(error.is_transient(), "{error:?}");
    held.rollback().await.expect("rolled back");
    let pool = files.pool().await;
    let held = pool
        .begin_with("BEGIN IMMEDIATE")
        .await
        .expect("a transaction");
    let error = store.begin_tx().await.expect_err("the lock is held");
    assert!(error.is_transient(), "{error:?}");
    held.rollback().await.expect("rolled back");
    store.begin_tx().await.expect("a transaction");
}

#[tokio::test]
async fn the_watcher_stops_however_long_it_gathers() {
    let files = Files::new();
    let slow = SqliteOptions::new()
        .reread_interval(Duration::MAX)
        .wake_debounce(Duration::MAX);
    let store = files.open_with(slow).await;
    let there = files.open().await;
    let mut wakes = store.listen("c").await.expect("a receiver");
    there.notify("c", "x").await.expect("notified");
    assert!(wakes.recv_timeout(PATIENCE).await.expect("open").is_some());
    drop((store, there));
    let log = files.path("app.db-wal");
    let gone = async {
        while log.exists() {
            tokio::task::yield_now().await;
        }
    };
    let gone = tokio::time::timeout(PATIENCE, gone).await;
    gone.expect("every connection is closed");
}

#[test]
fn a_store_needs_a_runtime_with_a_time_driver() {
    let files = Files::new();
    let refused = |error: Error, why: &str| {
        assert!(matches!(error, Error::Database(_)), "{error:?}");
        assert!(chain(&error).contains(why), "{}", chain(&error));
    };
    let path = files.database();
    let opening = futures::FutureExt::now_or_never(Store::<Sqlite>::open(&path));
    let opened = opening.expect("nothing is waited for");
    refused(opened.expect_err("there is no runtime"), "no Tokio runtime");
    let bare = Builder::new_current_thread().build().expect("a runtime");
    let opened = bare.block_on(Store::<Sqlite>::open(&path));
    refused(opened.expect_err("there is no timer"), "no time driver");
    assert!(!files.path("app.db").exists());
}
