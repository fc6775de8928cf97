//! Futures dropped anywhere leave nothing behind.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use alkstore::{EnqueueOpts, Store};
use alkstore_postgres::{Postgres, PostgresOptions};

use crate::support::{database, enqueue, open_transactions, open_with, queue, soon};

/// Polls a future so many times, with time for the server between, and drops it.
async fn drop_after<F: Future>(polls: usize, pause: Duration, future: F) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let done = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await;
        if done {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

/// On one connection: whatever was dropped, the next operation works and stays.
async fn survives(store: &Store<Postgres>, dropped: &str, committed: &mut i64) {
    enqueue(&queue(store, "kept"), 1).await;
    *committed += 1;
    let mut tx = soon(store.begin_tx()).await.unwrap();
    tx.enqueue_tx("kept", EnqueueOpts::default(), &1)
        .await
        .unwrap();
    soon(tx.commit())
        .await
        .unwrap_or_else(|error| panic!("{dropped}: {error}"));
    *committed += 1;
}

/// Every kind of operation, dropped after every small number of polls, on a pool of one.
#[tokio::test]
async fn a_dropped_future_leaves_no_transaction_and_no_lost_write() {
    let database = database();
    let store = open_with(&database, PostgresOptions::new().pool(1)).await;
    let jobs = queue(&store, "dropped");
    let stream = store.stream("dropped").unwrap();
    let mut committed = 0;
    for polls in 1..9 {
        for pause in [Duration::ZERO, Duration::from_millis(2)] {
            let opts = EnqueueOpts::default;
            drop_after(polls, pause, store.begin_tx()).await;
            survives(&store, "begin", &mut committed).await;
            drop_after(polls, pause, async {
                let mut tx = store.begin_tx().await.unwrap();
                tx.publish_tx("dropped", &1).await.unwrap();
                tx.commit().await.unwrap();
            })
            .await;
            survives(&store, "a transaction", &mut committed).await;
            let mut tx = soon(store.begin_tx()).await.unwrap();
            tx.publish_tx("dropped", &1).await.unwrap();
            drop_after(polls, pause, tx.commit()).await;
            survives(&store, "commit", &mut committed).await;
            let mut tx = soon(store.begin_tx()).await.unwrap();
            drop_after(polls, pause, tx.enqueue_tx("dropped", opts(), &1)).await;
            drop(tx);
            survives(&store, "enqueue_tx", &mut committed).await;
            drop_after(polls, pause, jobs.enqueue(&1, opts())).await;
            survives(&store, "enqueue", &mut committed).await;
            drop_after(polls, pause, jobs.claim_batch("w", 3)).await;
            survives(&store, "claim", &mut committed).await;
            drop_after(polls, pause, stream.publish(&1)).await;
            survives(&store, "publish", &mut committed).await;
            drop_after(polls, pause, store.try_lock("lock", "me", 5)).await;
            drop_after(polls, pause, stream.save_offset("c", 1)).await;
            drop_after(polls, pause, jobs.sweep_expired()).await;
            drop_after(polls, pause, store.listen("channel")).await;
            survives(&store, "the rest", &mut committed).await;
            assert_eq!(open_transactions(&database), "0");
        }
    }
    let kept = database.sql("SELECT count(*) FROM alkstore.jobs WHERE queue = 'kept'");
    assert_eq!(kept, committed.to_string());
    let events = stream.read_since(0, 10_000).await.unwrap();
    let offsets: Vec<_> = events.iter().map(|event| event.offset).collect();
    assert_eq!(
        offsets,
        (1..=i64::try_from(events.len()).unwrap()).collect::<Vec<_>>()
    );
}

/// The connection of a transaction that was dropped is free for the next, once it has been
/// rolled back.
#[tokio::test]
async fn a_dropped_transaction_gives_its_connection_back() {
    let database = database();
    let store = open_with(&database, PostgresOptions::new().pool(1)).await;
    for _ in 0..20 {
        let mut tx = soon(store.begin_tx()).await.unwrap();
        tx.enqueue_tx("work", EnqueueOpts::default(), &1)
            .await
            .unwrap();
        drop(tx);
    }
    assert!(
        soon(queue(&store, "work").claim_one("w"))
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(open_transactions(&database), "0");
}

/// A pool that is in use up to its last connection says so, in time, with a transient error.
#[tokio::test]
async fn an_exhausted_pool_says_so() {
    let database = database();
    let options = PostgresOptions::new()
        .pool(1)
        .acquire_timeout(Duration::from_millis(500));
    let store = open_with(&database, options).await;
    let tx = store.begin_tx().await.unwrap();
    let error = soon(queue(&store, "work").claim_one("w"))
        .await
        .unwrap_err();
    assert!(error.is_transient(), "{error}");
    tx.rollback().await.unwrap();
    assert!(queue(&store, "work").claim_one("w").await.is_ok());
}
