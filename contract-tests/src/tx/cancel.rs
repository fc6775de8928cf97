//! Futures that are dropped half-way: the outcome is whole or nothing, and everything works
//! afterwards.

use alkstore::{Engine, EnqueueOpts, QueueOpts, Result, Store, Tx};

use crate::Harness;
use crate::support::{Dropped, count_rows, numbers, offsets, read_all, within};

/// Asserts that what is written next is really there, for another process.
async fn assert_writes_land<H: Harness>(
    h: &H,
    store: &Store<H::Engine>,
    other: &Store<H::Engine>,
    when: Dropped,
) {
    let stream = store.stream("probe").unwrap();
    let offset = within(h, stream.publish(&0)).await.unwrap();
    let seen = other
        .stream("probe")
        .unwrap()
        .read_since(offset - 1, 1)
        .await
        .unwrap();
    assert_eq!(offsets(&seen), [offset], "a write was lost {when:?}");
}

/// A dropped `begin_tx` leaves no transaction open: later writes are committed and seen.
pub(super) async fn a_dropped_begin_leaves_no_transaction_open<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    for when in Dropped::points() {
        drop(when.run(store.begin_tx()).await);
        assert_writes_land(h, &store, &other, when).await;
        let mut tx = within(h, store.begin_tx()).await.unwrap();
        tx.publish_tx("stream", &0).await.unwrap();
        tx.commit().await.unwrap();
    }
    let begun = Dropped::points().count();
    assert_eq!(read_all(&other, "stream").await.len(), begun);
}

/// The operations that write in a transaction, by number.
const WRITES: usize = 6;

async fn write<E: Engine>(tx: &mut Tx<E>, number: usize) -> Result<()> {
    let opts = EnqueueOpts::default();
    match number {
        0 => tx.enqueue_tx("queue", opts, &1).await.map(drop),
        1 => tx.outbox_enqueue_tx("outbox", opts, &1).await.map(drop),
        2 => tx.publish_tx("stream", &1).await.map(drop),
        3 => tx
            .publish_with_key_tx("stream", Some("key"), &1)
            .await
            .map(drop),
        4 => tx.notify_tx("channel", &1).await,
        _ => tx.save_offset_tx("stream", "consumer", 1).await.map(drop),
    }
}

/// A transaction with a dropped operation commits wholly, that operation included if it came
/// to its end, or not at all.
pub(super) async fn a_dropped_operation_leaves_all_or_nothing<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut committed = 0;
    for number in 0..WRITES {
        for when in Dropped::points() {
            let mut tx = store.begin_tx().await.unwrap();
            tx.publish_tx("before", &0).await.unwrap();
            H::insert_row(tx.connection(), &format!("{number} {when:?}"))
                .await
                .unwrap();
            let ended = when.run(write(&mut tx, number)).await;
            let all = async {
                tx.publish_tx("after", &0).await?;
                tx.commit().await
            };
            match within(h, all).await {
                Ok(()) => {
                    // Never polled, it never began; else it has to have ended.
                    let begun = !matches!(when, Dropped::AfterPolls(0));
                    assert!(ended.is_some() || !begun, "{number} {when:?} is half-done");
                    committed += 1;
                }
                Err(error) => assert!(ended.is_none(), "{number} {when:?}: {error:?}"),
            }
            assert_writes_land(h, &store, &other, when).await;
        }
    }
    assert_eq!(read_all(&other, "before").await.len(), committed);
    assert_eq!(read_all(&other, "after").await.len(), committed);
    assert_eq!(
        count_rows::<H>(&other).await,
        i64::try_from(committed).unwrap()
    );
}

/// The same for the reads and the ack.
pub(super) async fn a_dropped_read_leaves_all_or_nothing<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    queue.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let job = queue.claim_one("worker").await.unwrap().unwrap();
    let mut committed = 0;
    for number in 0..5 {
        for when in Dropped::points() {
            let mut tx = store.begin_tx().await.unwrap();
            tx.publish_tx("stream", &0).await.unwrap();
            let read = async {
                match number {
                    0 => tx.get_job_tx("queue", 1).await.map(drop),
                    1 => tx.get_offset_tx("stream", "consumer").await.map(drop),
                    2 => tx.read_since_tx("stream", 0, 1).await.map(drop),
                    3 => tx
                        .read_from_consumer_tx("stream", "consumer", 1)
                        .await
                        .map(drop),
                    _ => tx.ack_tx(&job).await.map(drop),
                }
            };
            let ended = when.run(read).await;
            match within(h, tx.commit()).await {
                Ok(()) => committed += 1,
                Err(error) => assert!(ended.is_none(), "{number} {when:?}: {error:?}"),
            }
            assert_writes_land(h, &store, &other, when).await;
        }
    }
    assert_eq!(read_all(&other, "stream").await.len(), committed);
}

/// A dropped commit has committed everything or nothing, and which of them does not change.
pub(super) async fn a_dropped_commit_leaves_all_or_nothing<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut at_least = 0;
    for when in Dropped::points() {
        let mut tx = store.begin_tx().await.unwrap();
        H::insert_row(tx.connection(), &format!("{when:?}"))
            .await
            .unwrap();
        tx.publish_tx("stream", &0).await.unwrap();
        tx.enqueue_tx("queue", EnqueueOpts::default(), &0)
            .await
            .unwrap();
        if let Some(ended) = when.run(tx.commit()).await {
            ended.unwrap();
            at_least += 1;
        }
        assert_writes_land(h, &store, &other, when).await;
    }
    let events = read_all(&other, "stream").await.len();
    assert!(
        events >= at_least,
        "{at_least} commits said that they had landed, {events} had"
    );
    assert_eq!(
        count_rows::<H>(&other).await,
        i64::try_from(events).unwrap()
    );
    let queue = other.queue("queue", QueueOpts::default()).unwrap();
    assert_eq!(
        queue.claim_batch("worker", 100).await.unwrap().len(),
        events
    );
}

/// A dropped rollback rolls back all the same.
pub(super) async fn a_dropped_rollback_rolls_back<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    for when in Dropped::points() {
        let mut tx = store.begin_tx().await.unwrap();
        H::insert_row(tx.connection(), "row").await.unwrap();
        assert_eq!(tx.publish_tx("stream", &0).await.unwrap(), 1);
        if let Some(ended) = when.run(tx.rollback()).await {
            ended.unwrap();
        }
        assert_writes_land(h, &store, &other, when).await;
    }
    assert!(read_all(&other, "stream").await.is_empty());
    assert_eq!(count_rows::<H>(&other).await, 0);
}

/// A dropped `with_tx` has committed everything or nothing.
pub(super) async fn a_dropped_with_tx_leaves_all_or_nothing<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut at_least = 0;
    for when in Dropped::points() {
        let all = store.with_tx(async |tx| -> Result<()> {
            tx.publish_tx("one", &0).await?;
            H::insert_row(tx.connection(), &format!("{when:?}")).await?;
            tx.publish_tx("two", &0).await.map(drop)
        });
        if let Some(ended) = when.run(all).await {
            ended.unwrap();
            at_least += 1;
        }
        assert_writes_land(h, &store, &other, when).await;
    }
    let events = read_all(&other, "one").await.len();
    assert!(
        events >= at_least,
        "{at_least} said that they had landed, {events} had"
    );
    assert_eq!(read_all(&other, "two").await.len(), events);
    assert_eq!(
        count_rows::<H>(&other).await,
        i64::try_from(events).unwrap()
    );
}

/// An application that drops an operation half-way and rolls back leaves nothing.
pub(super) async fn a_dropped_operation_leaves_an_applications_rollback_whole<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    for when in Dropped::points() {
        let joining = store.clone();
        let body = h.with_own_tx(
            false,
            Box::new(move |connection| {
                Box::pin(async move {
                    let mut tx = joining.join_tx(connection);
                    tx.publish_tx("stream", &1).await?;
                    when.run(tx.publish_tx("stream", &2)).await;
                    Ok(())
                })
            }),
        );
        within(h, body).await.unwrap();
        assert_writes_land(h, &store, &other, when).await;
    }
    assert!(read_all(&other, "stream").await.is_empty());
}

/// A plain write that is dropped is done wholly or not at all; those beside it are not lost.
pub(super) async fn a_dropped_plain_write_is_whole<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let stream = store.stream("stream").unwrap();
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    for when in Dropped::points() {
        let batch = [(None, 1), (None, 2), (None, 3)];
        let publish = when.run(stream.publish_batch(&batch));
        let enqueue = when.run(queue.enqueue_batch(&[1, 2], EnqueueOpts::default()));
        let save = when.run(stream.save_offset("consumer", 1));
        let (published, ..) = tokio::join!(publish, enqueue, save);
        if let Some(offsets) = published {
            assert_eq!(offsets.unwrap().len(), 3);
        }
        assert_writes_land(h, &store, &other, when).await;
    }
    let events = read_all(&other, "stream").await;
    assert_eq!(
        offsets(&events),
        (1..).take(events.len()).collect::<Vec<_>>()
    );
    for batch in events.chunks(3) {
        assert_eq!(numbers(batch), [1, 2, 3]);
    }
    let jobs = other.queue("queue", QueueOpts::default()).unwrap();
    assert_eq!(jobs.claim_batch("worker", 1000).await.unwrap().len() % 2, 0);
}
