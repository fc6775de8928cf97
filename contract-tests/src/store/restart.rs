//! What outlives every process.

use alkstore::{Delivery, EnqueueOpts, Error, JobState, QueueOpts, ScheduleOpts, Store};

use crate::Harness;
use crate::support::{count_rows, find_job, numbers, offsets, read_all};

/// One of everything, in every state that outlives a process.
async fn fill<H: Harness>(store: &Store<H::Engine>) -> [i64; 3] {
    let stream = store.stream("stream").unwrap();
    stream
        .publish_batch(&[(None, 1), (Some("key"), 2)])
        .await
        .unwrap();
    stream.save_offset("consumer", 1).await.unwrap();
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    let ids = queue
        .enqueue_batch(&[1, 2, 3], EnqueueOpts::default())
        .await
        .unwrap();
    assert!(
        queue
            .claim_one("dead")
            .await
            .unwrap()
            .unwrap()
            .fail(Some("why"))
            .await
            .unwrap()
    );
    assert!(queue.claim_one("worker").await.unwrap().is_some());
    store
        .outbox("outbox")
        .unwrap()
        .enqueue(&7, EnqueueOpts::default())
        .await
        .unwrap();
    assert!(
        store
            .try_lock("lock", "owner", 600)
            .await
            .unwrap()
            .is_some()
    );
    store
        .schedule(
            "schedule",
            "@every 1h",
            "queue",
            &1,
            ScheduleOpts::default(),
        )
        .await
        .unwrap();
    store
        .with_tx(async |tx| H::insert_row(tx.connection(), "row").await)
        .await
        .unwrap();
    [ids[0], ids[1], ids[2]]
}

/// Asserts that a store finds what [`fill`] left.
async fn assert_filled<H: Harness>(store: &Store<H::Engine>, ids: [i64; 3]) {
    let events = read_all(store, "stream").await;
    assert_eq!(
        (numbers(&events), offsets(&events)),
        (vec![1, 2], vec![1, 2])
    );
    assert_eq!(events[1].key.as_deref(), Some("key"));
    let stream = store.stream("stream").unwrap();
    assert_eq!(stream.get_offset("consumer").await.unwrap(), 1);
    let mut jobs = Vec::new();
    for id in ids {
        jobs.push(find_job(store, "queue", id).await.unwrap());
    }
    let states: Vec<_> = jobs.iter().map(|job| job.state).collect();
    assert_eq!(
        states,
        [JobState::Dead, JobState::Processing, JobState::Pending]
    );
    assert_eq!(jobs[0].last_error.as_deref(), Some("why"));
    assert_eq!(jobs[1].worker_id.as_deref(), Some("worker"));
    assert!(
        store
            .try_lock("lock", "another", 60)
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(count_rows::<H>(store).await, 1);
    let deliver = async |message: Delivery<H::Engine>| {
        assert_eq!(message.payload_as::<i64>()?, 7);
        Ok::<_, Error>(())
    };
    assert!(
        store
            .outbox("outbox")
            .unwrap()
            .run_once("worker", deliver)
            .await
            .unwrap()
    );
    assert!(store.unschedule("schedule").await.unwrap());
}

/// What was committed is there after the store is closed and the database opened again.
pub(super) async fn everything_survives_close_and_reopen<H: Harness>(h: &H) {
    let store = h.open().await;
    let ids = fill::<H>(&store).await;
    store.close().await;
    assert_filled::<H>(&h.open().await, ids).await;
}

/// A store that is dropped without being closed loses nothing either.
pub(super) async fn everything_survives_a_drop<H: Harness>(h: &H) {
    let store = h.open().await;
    let ids = fill::<H>(&store).await;
    drop(store);
    assert_filled::<H>(&h.open().await, ids).await;
}

/// A job's id, an event's offset and a lock's token are never used twice, also when all rows
/// that carried them are gone and every process has restarted.
pub(super) async fn ids_and_tokens_are_not_used_again_after_a_restart<H: Harness>(h: &H) {
    let mut last = (0, 0, 0);
    for _ in 0..3 {
        let store = h.open().await;
        let stream = store.stream("stream").unwrap();
        let queue = store.queue("queue", QueueOpts::default()).unwrap();
        let offset = stream.publish(&1).await.unwrap();
        assert_eq!(offset, last.0 + 1);
        assert_eq!(stream.trim_to(offset).await.unwrap(), 1);
        let id = queue.enqueue(&1, EnqueueOpts::default()).await.unwrap();
        assert!(queue.cancel(id).await.unwrap());
        let lock = store.try_lock("lock", "owner", 60).await.unwrap().unwrap();
        let token = lock.token();
        assert!(lock.release().await.unwrap());
        assert!(
            id > last.1 && token > last.2,
            "{id} or {token} was used before: {last:?}"
        );
        last = (offset, id, token);
        store.close().await;
    }
}
