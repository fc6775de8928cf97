//! Transactions that the application begins and ends itself.

use std::sync::{Arc, Mutex};

use alkstore::{EnqueueOpts, Error, JobState, QueueOpts};

use crate::Harness;
use crate::support::{count_rows, error_of, find_job, numbers, offsets, read_all};

use super::witness::{Witness, write_everything};

/// What joined an application's transaction commits with it and wakes everybody then.
pub(super) async fn an_applications_commit_keeps_everything<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut witness = Witness::new(h, &store).await;
    let written = Arc::new(Mutex::new(None));
    let (joining, report) = (store.clone(), Arc::clone(&written));
    let body = h.with_own_tx(
        true,
        Box::new(|connection| {
            Box::pin(async move {
                let all = write_everything::<H, _>(&mut joining.join_tx(connection)).await?;
                report.lock().unwrap().replace(all);
                Ok(())
            })
        }),
    );
    body.await.unwrap();
    let written = written.lock().unwrap().take().unwrap();
    witness.sees_everything(h, written).await;
}

/// What joined an application's transaction is gone when the application rolls back.
pub(super) async fn an_applications_rollback_leaves_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut witness = Witness::new(h, &store).await;
    let joining = store.clone();
    let body = h.with_own_tx(
        false,
        Box::new(|connection| {
            Box::pin(async move {
                write_everything::<H, _>(&mut joining.join_tx(connection))
                    .await
                    .map(drop)
            })
        }),
    );
    body.await.unwrap();
    witness.sees_nothing(h).await;
}

/// An application whose own write fails rolls back what joined.
pub(super) async fn an_applications_error_leaves_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut witness = Witness::new(h, &store).await;
    let joining = store.clone();
    let body = h.with_own_tx(
        true,
        Box::new(|connection| {
            Box::pin(async move {
                write_everything::<H, _>(&mut joining.join_tx(connection)).await?;
                H::insert_row(connection, "row").await
            })
        }),
    );
    assert!(
        matches!(body.await, Err(Error::Database(_))),
        "the row was there already"
    );
    witness.sees_nothing(h).await;
}

/// Reads that join an application's transaction see what it wrote, its plain writes too.
pub(super) async fn an_applications_transaction_reads_its_own_writes<H: Harness>(h: &H) {
    let store = h.open().await;
    let joining = store.clone();
    let body = h.with_own_tx(
        false,
        Box::new(|connection| {
            Box::pin(async move {
                H::insert_row(connection, "row").await?;
                let mut tx = joining.join_tx(connection);
                assert_eq!(H::count_rows(tx.connection()).await?, 1);
                let id = tx.enqueue_tx("queue", EnqueueOpts::default(), &1).await?;
                let job = tx.get_job_tx("queue", id).await?.unwrap();
                assert_eq!((job.id, job.state), (id, JobState::Pending));
                assert_eq!(tx.publish_tx("stream", &1).await?, 1);
                assert_eq!(tx.publish_with_key_tx("stream", Some("key"), &2).await?, 2);
                assert_eq!(offsets(&tx.read_since_tx("stream", 0, 10).await?), [1, 2]);
                tx.save_offset_tx("stream", "consumer", 1).await?;
                assert_eq!(tx.get_offset_tx("stream", "consumer").await?, 1);
                let rest = tx.read_from_consumer_tx("stream", "consumer", 10).await?;
                assert_eq!(
                    (offsets(&rest), rest[0].key.as_deref()),
                    (vec![2], Some("key"))
                );
                Ok(())
            })
        }),
    );
    body.await.unwrap();
    assert!(read_all(&store, "stream").await.is_empty());
}

/// A claim is acked in an application's transaction, and only if that commits.
pub(super) async fn an_applications_transaction_acks_a_claim<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    let id = queue.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let job = Arc::new(queue.claim_one("worker").await.unwrap().unwrap());
    for (commit, left) in [(false, true), (true, false)] {
        let (joining, job) = (store.clone(), Arc::clone(&job));
        let body = h.with_own_tx(
            commit,
            Box::new(|connection| {
                Box::pin(async move {
                    H::insert_row(connection, "effect").await?;
                    assert!(joining.join_tx(connection).ack_tx(&job).await?);
                    Ok(())
                })
            }),
        );
        body.await.unwrap();
        assert_eq!(find_job(&store, "queue", id).await.is_some(), left);
        assert_eq!(count_rows::<H>(&store).await, i64::from(commit));
    }
}

/// An application may join, write itself and join again, in one transaction.
pub(super) async fn an_application_joins_its_transaction_more_than_once<H: Harness>(h: &H) {
    let store = h.open().await;
    let joining = store.clone();
    let body = h.with_own_tx(
        true,
        Box::new(|connection| {
            Box::pin(async move {
                for round in 0..3 {
                    joining
                        .join_tx(connection)
                        .publish_tx("stream", &round)
                        .await?;
                    H::insert_row(connection, &round.to_string()).await?;
                }
                Ok(())
            })
        }),
    );
    body.await.unwrap();
    assert_eq!(numbers(&read_all(&store, "stream").await), [0, 1, 2]);
    assert_eq!(count_rows::<H>(&store).await, 3);
}

/// A boxed store joins what the driver calls a transaction, not its connection alone.
pub(super) async fn a_drivers_own_transaction_is_joined<H: Harness>(h: &H) {
    let store = h.open().await.boxed();
    let joining = store.clone();
    let body = h.with_driver_tx(Box::new(|transaction| {
        Box::pin(async move {
            let mut tx = joining.join_tx(transaction);
            assert_eq!(tx.publish_tx("stream", &1).await?, 1);
            tx.enqueue_tx("queue", EnqueueOpts::default(), &1).await?;
            assert_eq!(numbers(&tx.read_since_tx("stream", 0, 10).await?), [1]);
            Ok(())
        })
    }));
    body.await.unwrap();
    assert_eq!(numbers(&read_all(&store, "stream").await), [1]);
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    assert!(queue.claim_one("worker").await.unwrap().is_some());
}

/// A boxed store that is given something else than its driver's connection says so.
pub(super) async fn a_foreign_connection_is_an_error<H: Harness>(h: &H) {
    let store = h.open().await.boxed();
    let mut foreign = String::from("no connection");
    let mut tx = store.join_tx(&mut foreign);
    let errors = [
        error_of(tx.publish_tx("stream", &1).await),
        error_of(tx.enqueue_tx("queue", EnqueueOpts::default(), &1).await),
        error_of(tx.notify_tx("channel", &1).await),
        error_of(tx.save_offset_tx("stream", "consumer", 1).await),
        error_of(tx.get_job_tx("queue", 1).await),
        error_of(tx.read_since_tx("stream", 0, 1).await),
    ];
    for error in errors {
        let named = matches!(
            error,
            Error::InvalidArgument {
                argument: "connection",
                ..
            }
        );
        assert!(named, "{error:?}");
    }
    assert!(read_all(&store, "stream").await.is_empty());
}
