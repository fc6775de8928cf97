//! How transactions end, and what is there then.

use std::future::pending;

use alkstore::{EnqueueOpts, Error, QueueOpts, Result, Tx};
use tokio::sync::oneshot;

use crate::Harness;
use crate::support::{count_rows, deliver_one, error_of, numbers, offsets, read_all, within};

use super::witness::{Witness, write_everything};

/// A commit keeps everything, for every process, and wakes everybody; not before.
pub(super) async fn commit_keeps_everything<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut witness = Witness::new(h, &store).await;
    let mut tx = store.begin_tx().await.unwrap();
    let written = write_everything::<H, _>(&mut tx).await.unwrap();
    witness.hears_nothing(h).await;
    tx.commit().await.unwrap();
    witness.sees_everything(h, written).await;
}

/// A rollback leaves no job, message, event, wake, saved offset or business row.
pub(super) async fn rollback_leaves_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut witness = Witness::new(h, &store).await;
    let mut tx = store.begin_tx().await.unwrap();
    write_everything::<H, _>(&mut tx).await.unwrap();
    tx.rollback().await.unwrap();
    witness.sees_nothing(h).await;
}

/// Dropping a transaction is a rollback.
pub(super) async fn drop_leaves_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut witness = Witness::new(h, &store).await;
    let mut tx = store.begin_tx().await.unwrap();
    write_everything::<H, _>(&mut tx).await.unwrap();
    drop(tx);
    witness.sees_nothing(h).await;
}

/// Aborting the task that holds a transaction is a rollback.
pub(super) async fn an_aborted_task_leaves_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut witness = Witness::new(h, &store).await;
    let (written, when_written) = oneshot::channel();
    let task = tokio::spawn(async move {
        let mut tx = store.begin_tx().await.unwrap();
        write_everything::<H, _>(&mut tx).await.unwrap();
        written.send(()).unwrap();
        pending::<()>().await;
        tx.commit().await
    });
    within(h, when_written).await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    witness.sees_nothing(h).await;
}

/// A panic while a transaction is held is a rollback.
pub(super) async fn a_panic_leaves_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut witness = Witness::new(h, &store).await;
    let task = tokio::spawn(async move {
        let mut tx = store.begin_tx().await.unwrap();
        write_everything::<H, _>(&mut tx).await.unwrap();
        panic!("on purpose, with the transaction held");
    });
    assert!(task.await.unwrap_err().is_panic());
    witness.sees_nothing(h).await;
}

/// `with_tx` commits what returns `Ok`, and gives its value back.
pub(super) async fn with_tx_commits_what_returns_ok<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut witness = Witness::new(h, &store).await;
    let written = store
        .with_tx(async |tx| write_everything::<H, _>(tx).await)
        .await
        .unwrap();
    witness.sees_everything(h, written).await;
}

/// `with_tx` rolls back what returns an error, and gives that error back.
pub(super) async fn with_tx_rolls_back_what_returns_an_error<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut witness = Witness::new(h, &store).await;
    let result = store.with_tx(async |tx| -> Result<()> {
        write_everything::<H, _>(tx).await?;
        tx.publish_tx("", &1).await.map(drop)
    });
    assert!(matches!(result.await, Err(Error::InvalidName { .. })));
    witness.sees_nothing(h).await;
}

/// `with_tx` rolls back what panics.
pub(super) async fn with_tx_rolls_back_what_panics<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut witness = Witness::new(h, &store).await;
    let task = tokio::spawn(async move {
        let body = async |tx: &mut Tx<H::Engine>| -> Result<()> {
            write_everything::<H, _>(tx).await?;
            panic!("on purpose, in the body");
        };
        store.with_tx(body).await
    });
    assert!(task.await.unwrap_err().is_panic());
    witness.sees_nothing(h).await;
}

/// `with_tx` rolls back what is dropped before its end.
pub(super) async fn with_tx_rolls_back_what_is_dropped<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut witness = Witness::new(h, &store).await;
    let (written, when_written) = oneshot::channel();
    let all = store.with_tx(async |tx| -> Result<()> {
        write_everything::<H, _>(tx).await?;
        written.send(()).unwrap();
        pending().await
    });
    tokio::select! {
        _ = all => panic!("the body does not end"),
        sent = within(h, when_written) => sent.unwrap(),
    }
    witness.sees_nothing(h).await;
}

/// The body of `with_tx` may fail with a type of the caller's own.
pub(super) async fn with_tx_returns_the_callers_own_error<H: Harness>(h: &H) {
    #[derive(Debug)]
    enum Mine {
        Refused(u8),
        Store(Error),
    }
    impl From<Error> for Mine {
        fn from(error: Error) -> Self {
            Self::Store(error)
        }
    }
    let store = h.open().await;
    let result = store.with_tx(async |tx| -> Result<(), Mine> {
        tx.publish_tx("stream", &1).await?;
        Err(Mine::Refused(7))
    });
    assert!(matches!(result.await, Err(Mine::Refused(7))));
    let result =
        store.with_tx(async |tx| -> Result<i64, Mine> { Ok(tx.publish_tx("", &1).await?) });
    assert!(matches!(
        result.await,
        Err(Mine::Store(Error::InvalidName { .. }))
    ));
    assert!(read_all(&store, "stream").await.is_empty());
}

/// A business write that fails takes all coordination of its transaction with it, whether it
/// comes first or last.
pub(super) async fn a_failed_business_write_takes_everything_with_it<H: Harness>(h: &H) {
    let store = h.open().await;
    store
        .with_tx(async |tx| H::insert_row(tx.connection(), "taken").await)
        .await
        .unwrap();
    let result = store.with_tx(async |tx| {
        tx.publish_tx("stream", &1).await?;
        tx.enqueue_tx("queue", EnqueueOpts::default(), &1).await?;
        tx.outbox_enqueue_tx("outbox", EnqueueOpts::default(), &1)
            .await?;
        tx.save_offset_tx("stream", "consumer", 1).await?;
        H::insert_row(tx.connection(), "new").await?;
        H::insert_row(tx.connection(), "taken").await
    });
    error_of(result.await);
    assert_eq!(count_rows::<H>(&store).await, 1);
    assert!(read_all(&store, "stream").await.is_empty());
    let stream = store.stream("stream").unwrap();
    assert_eq!(stream.get_offset("consumer").await.unwrap(), 0);
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    assert!(queue.claim_one("worker").await.unwrap().is_none());
    assert!(!deliver_one(&store, "outbox").await);
    assert_eq!(stream.publish(&1).await.unwrap(), 1);
}

/// A transaction that did nothing commits, rolls back and drops.
pub(super) async fn an_empty_transaction_ends_either_way<H: Harness>(h: &H) {
    let store = h.open().await;
    store.begin_tx().await.unwrap().commit().await.unwrap();
    store.begin_tx().await.unwrap().rollback().await.unwrap();
    drop(store.begin_tx().await.unwrap());
    store.with_tx(async |_| Ok::<_, Error>(())).await.unwrap();
    assert_eq!(
        store.stream("stream").unwrap().publish(&1).await.unwrap(),
        1
    );
}

/// However many transactions are dropped or rolled back, none keeps a connection or a lock.
pub(super) async fn abandoned_transactions_hold_nothing_back<H: Harness>(h: &H) {
    let store = h.open().await;
    for round in 0..60 {
        let mut tx = within(h, store.begin_tx()).await.unwrap();
        assert_eq!(tx.publish_tx("stream", &round).await.unwrap(), 1);
        if round % 2 == 0 {
            drop(tx);
        } else {
            tx.rollback().await.unwrap();
        }
    }
    assert_eq!(
        store.stream("stream").unwrap().publish(&1).await.unwrap(),
        1
    );
}

/// A transaction begins in one task, goes on in a second and commits in a third.
pub(super) async fn a_transaction_moves_between_tasks<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &1).await.unwrap();
    let second = tokio::spawn(async move {
        tx.publish_tx("stream", &2).await.unwrap();
        tx
    });
    let tx = second.await.unwrap();
    tokio::spawn(tx.commit()).await.unwrap().unwrap();
    assert_eq!(numbers(&read_all(&store, "stream").await), [1, 2]);
}

/// Transactions that are begun at once, in several processes, all commit, each whole.
pub(super) async fn concurrent_transactions_all_commit<H: Harness>(h: &H) {
    const EACH: usize = 8;
    let mut tasks = Vec::new();
    for process in 0..4 {
        let store = h.open().await;
        tasks.push(tokio::spawn(async move {
            for round in 0..EACH {
                let key = format!("{process}/{round}");
                let all = store.with_tx(async |tx| -> Result<()> {
                    tx.publish_with_key_tx("stream", Some(&key), &0).await?;
                    H::insert_row(tx.connection(), &key).await?;
                    tx.publish_with_key_tx("stream", Some(&key), &1).await?;
                    tx.enqueue_tx("queue", EnqueueOpts::default(), &key)
                        .await
                        .map(drop)
                });
                all.await.unwrap();
            }
        }));
    }
    for task in tasks {
        within(h, task).await.unwrap();
    }
    let store = h.open().await;
    let all = 4 * EACH;
    assert_eq!(count_rows::<H>(&store).await, i64::try_from(all).unwrap());
    let events = read_all(&store, "stream").await;
    assert_eq!(offsets(&events), (1..).take(2 * all).collect::<Vec<_>>());
    for pair in events.chunks(2) {
        assert_eq!((numbers(pair), &pair[0].key), (vec![0, 1], &pair[1].key));
    }
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    assert_eq!(queue.claim_batch("worker", 100).await.unwrap().len(), all);
}
