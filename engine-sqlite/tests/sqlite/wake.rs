//! Wakes from other connections, as from other processes.

use std::time::Duration;

use alkstore::{EnqueueOpts, QueueOpts, Store, WakeReceiver};
use alkstore_sqlite::{Sqlite, SqliteOptions};
use sqlx::Executor as _;

use crate::support::{Files, PATIENCE};

/// How long a test watches that something does not happen.
const QUIET: Duration = Duration::from_millis(60);

/// A store that hears of others by its watcher, in the time of a test, or not at all.
async fn deaf_to_polls(files: &Files) -> Store<Sqlite> {
    let slow = SqliteOptions::new().reread_interval(Duration::from_secs(3600));
    files.open_with(slow).await
}

async fn woken(wakes: &mut WakeReceiver) -> bool {
    wakes
        .recv_timeout(PATIENCE)
        .await
        .expect("the receiver is open")
        .is_some()
}

async fn quiet(wakes: &mut WakeReceiver) -> bool {
    wakes
        .recv_timeout(QUIET)
        .await
        .expect("the receiver is open")
        .is_none()
}

#[tokio::test]
async fn every_kind_of_topic_is_heard_from_another_connection() {
    let files = Files::new();
    let (here, there) = (deaf_to_polls(&files).await, files.open().await);
    let mut channel = here.listen("one").await.expect("a receiver");
    let mut other = here.listen("other").await.expect("a receiver");
    let queue = here.queue("one", QueueOpts::default()).expect("a queue");
    let mut queue = queue.listen().await.expect("a receiver");
    let mut stream = here
        .stream("one")
        .expect("a stream")
        .listen()
        .await
        .expect("a receiver");
    for _ in 0..20 {
        there.notify("one", "x").await.expect("notified");
        assert!(woken(&mut channel).await);
        there
            .queue("one", QueueOpts::default())
            .expect("a queue")
            .enqueue("x", EnqueueOpts::default())
            .await
            .expect("enqueued");
        assert!(woken(&mut queue).await);
        there
            .stream("one")
            .expect("a stream")
            .publish("x")
            .await
            .expect("published");
        assert!(woken(&mut stream).await);
    }
    assert!(
        quiet(&mut other).await,
        "a receiver hears its own channel only"
    );
    for mut receiver in [channel, queue, stream] {
        assert!(quiet(&mut receiver).await, "one change wakes once");
    }
}

#[tokio::test]
async fn an_own_commit_wakes_once() {
    let files = Files::new();
    let store = deaf_to_polls(&files).await;
    let mut wakes = store.listen("c").await.expect("a receiver");
    for _ in 0..20 {
        store.notify("c", "x").await.expect("notified");
        assert!(
            wakes.try_recv().expect("open").is_some(),
            "it wakes before it returns"
        );
        let mut tx = store.begin_tx().await.expect("a transaction");
        tx.notify_tx("c", "x").await.expect("notified");
        assert!(
            wakes.try_recv().expect("open").is_none(),
            "nothing before the commit"
        );
        tx.commit().await.expect("committed");
        assert!(wakes.try_recv().expect("open").is_some());
    }
    assert!(quiet(&mut wakes).await, "the watcher does not say it again");
}

#[tokio::test]
async fn an_applications_own_transaction_is_heard_after_its_commit() {
    let files = Files::new();
    let store = deaf_to_polls(&files).await;
    let pool = files.pool().await;
    let mut wakes = store.listen("c").await.expect("a receiver");
    let mut tx = pool.begin().await.expect("a transaction");
    store
        .join_tx(&mut tx)
        .notify_tx("c", "x")
        .await
        .expect("notified");
    assert!(quiet(&mut wakes).await, "nothing before the commit");
    tx.commit().await.expect("committed");
    assert!(woken(&mut wakes).await);
    let mut tx = pool.begin().await.expect("a transaction");
    store
        .join_tx(&mut tx)
        .notify_tx("c", "x")
        .await
        .expect("notified");
    tx.rollback().await.expect("rolled back");
    assert!(quiet(&mut wakes).await, "a rollback wakes nobody");
}

#[tokio::test]
async fn a_new_receiver_hears_nothing_earlier() {
    let files = Files::new();
    let (here, there) = (deaf_to_polls(&files).await, files.open().await);
    let mut old = here.listen("c").await.expect("a receiver");
    for _ in 0..20 {
        there.notify("c", "x").await.expect("notified");
        let mut new = here.listen("c").await.expect("a receiver");
        assert!(new.try_recv().expect("open").is_none());
        assert!(
            woken(&mut old).await,
            "the older receiver hears it all the same"
        );
        assert!(new.try_recv().expect("open").is_none());
    }
}

#[tokio::test]
async fn commits_after_a_checkpoint_are_heard() {
    let files = Files::new();
    let (here, there) = (deaf_to_polls(&files).await, files.open().await);
    let pool = files.pool().await;
    let mut wakes = here.listen("c").await.expect("a receiver");
    for _ in 0..10 {
        there.notify("c", "x").await.expect("notified");
        assert!(woken(&mut wakes).await);
        pool.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            .await
            .expect("a checkpoint");
    }
}

#[tokio::test]
async fn polls_stand_in_for_a_watcher() {
    let files = Files::new();
    let fast = SqliteOptions::new().reread_interval(Duration::from_millis(20));
    let here = files.open_with(fast).await;
    let mut wakes = here.listen("c").await.expect("a receiver");
    let there = files.open().await;
    there.notify("c", "x").await.expect("notified");
    assert!(woken(&mut wakes).await);
}

#[tokio::test]
async fn receivers_close_when_the_file_is_removed() {
    let files = Files::new();
    let store = deaf_to_polls(&files).await;
    let mut wakes = store.listen("c").await.expect("a receiver");
    std::fs::remove_file(files.database()).expect("removed");
    let closed = tokio::time::timeout(PATIENCE, wakes.recv())
        .await
        .expect("in time");
    assert!(closed.is_none());
    let late = tokio::time::timeout(PATIENCE, async {
        store.listen("c").await.expect("a receiver").recv().await
    });
    assert!(
        late.await.expect("in time").is_none(),
        "a later receiver is closed, too"
    );
}

#[tokio::test]
async fn receivers_close_when_the_file_is_replaced() {
    let files = Files::new();
    let store = deaf_to_polls(&files).await;
    let mut wakes = store.listen("c").await.expect("a receiver");
    let new = files.path("new.db");
    std::fs::write(&new, "").expect("another file");
    std::fs::rename(&new, files.database()).expect("replaced");
    let closed = tokio::time::timeout(PATIENCE, wakes.recv())
        .await
        .expect("in time");
    assert!(closed.is_none());
}

#[tokio::test]
async fn dropping_the_last_clone_ends_the_watch() {
    let files = Files::new();
    let store = deaf_to_polls(&files).await;
    let wakes = store.listen("c").await.expect("a receiver");
    drop(wakes);
    drop(store);
    // The last connection to a database removes its log when it closes.
    let log = files.path("app.db-wal");
    let gone = async {
        while log.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone)
        .await
        .expect("every connection is closed");
}

#[tokio::test]
async fn receivers_hear_on_after_the_database_was_put_back() {
    let files = Files::new();
    let (here, there) = (deaf_to_polls(&files).await, files.open().await);
    let queue = here.queue("one", QueueOpts::default()).expect("a queue");
    let mut jobs = queue.listen().await.expect("a receiver");
    let stream = here.stream("one").expect("a stream");
    let mut events = stream.listen().await.expect("a receiver");
    let there_queue = there.queue("one", QueueOpts::default()).expect("a queue");
    let there_stream = there.stream("one").expect("a stream");
    for _ in 0..5 {
        let enqueued = there_queue.enqueue("x", EnqueueOpts::default()).await;
        enqueued.expect("enqueued");
        assert!(woken(&mut jobs).await);
        there_stream.publish("x").await.expect("published");
        assert!(woken(&mut events).await);
    }
    // As a restore in place leaves it: ids and offsets are lower than before.
    let earlier = "BEGIN IMMEDIATE; DELETE FROM __alkstore_jobs; DELETE FROM __alkstore_events;
        UPDATE __alkstore_last_job SET id = 0; UPDATE __alkstore_streams SET head = 0; COMMIT";
    files.pool().await.execute(earlier).await.expect("put back");
    assert!(woken(&mut jobs).await, "there may be other jobs now");
    assert!(woken(&mut events).await, "there may be other events now");
    for _ in 0..3 {
        let enqueued = there_queue.enqueue("x", EnqueueOpts::default()).await;
        enqueued.expect("enqueued");
        assert!(woken(&mut jobs).await);
        there_stream.publish("x").await.expect("published");
        assert!(woken(&mut events).await);
    }
    assert!(quiet(&mut jobs).await, "one change wakes once");
}
