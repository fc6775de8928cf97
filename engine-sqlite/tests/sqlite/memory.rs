//! Databases in memory.

use alkstore::{EnqueueOpts, QueueOpts, Store};
use alkstore_sqlite::{Sqlite, SqliteOptions};
use sqlx::Executor as _;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

use crate::support::PATIENCE;

#[tokio::test]
async fn each_is_its_own_and_all_connections_share_it() {
    let one = Store::<Sqlite>::open(":memory:").await.expect("it opens");
    let two = Store::<Sqlite>::open("sqlite::memory:")
        .await
        .expect("it opens");
    let mut tx = one.begin_tx().await.expect("a transaction");
    let id = tx
        .enqueue_tx("q", EnqueueOpts::default(), "x")
        .await
        .expect("enqueued");
    tx.commit().await.expect("committed");
    let of = |store: &Store<Sqlite>| store.queue("q", QueueOpts::default()).expect("a queue");
    assert!(of(&one).get_job(id).await.expect("read").is_some());
    assert!(of(&two).get_job(id).await.expect("read").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_and_writers_get_along() {
    let store = Store::<Sqlite>::open(":memory:").await.expect("it opens");
    let stream = store.stream("s").expect("a stream");
    let writer = {
        let stream = stream.clone();
        tokio::spawn(async move {
            for number in 0..300 {
                stream.publish(&number).await.expect("published");
            }
        })
    };
    let mut last = 0;
    while last < 300 {
        for event in stream.read_since(last, 50).await.expect("read") {
            assert_eq!(event.offset, last + 1);
            last = event.offset;
        }
        tokio::task::yield_now().await;
    }
    writer.await.expect("no panic");
}

#[tokio::test]
async fn a_shared_pool_is_heard() {
    let options = SqliteConnectOptions::new().filename("file:/heard?vfs=memdb");
    let pool = SqlitePoolOptions::new()
        .connect_with(options)
        .await
        .expect("a pool");
    pool.execute("CREATE TABLE business (key TEXT)")
        .await
        .expect("a table");
    let engine = SqliteOptions::new()
        .over_pool(pool.clone())
        .await
        .expect("it opens");
    let store = Store::new(engine);
    let mut wakes = store.listen("prices").await.expect("a receiver");
    let mut tx = pool
        .begin_with("BEGIN IMMEDIATE")
        .await
        .expect("a transaction");
    store
        .join_tx(&mut tx)
        .notify_tx("prices", "up")
        .await
        .expect("notified");
    tx.commit().await.expect("committed");
    assert!(wakes.recv_timeout(PATIENCE).await.expect("open").is_some());
}
