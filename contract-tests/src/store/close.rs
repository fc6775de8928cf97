//! What closing a store means for what it made, and for others.

use alkstore::{
    Engine, EnqueueOpts, Error, EventReceiver, JobHandle, JobState, Lock, Queue, QueueOpts,
    ScheduleOpts, StopToken, Store, Stream,
};

use crate::Harness;
use crate::support::{
    Untouchable, count_rows, error_of, find_job, number, numbers, read_all, refused, says_closed,
    within,
};

/// Closing twice, at once or through a clone is closing.
pub(super) async fn close_is_idempotent<H: Harness>(h: &H) {
    let store = h.open().await;
    let clone = store.clone();
    assert!(!store.is_closed());
    within(h, async { tokio::join!(store.close(), clone.close()) }).await;
    within(h, clone.close()).await;
    assert!(store.is_closed() && clone.is_closed());
    assert!(says_closed(&error_of(clone.begin_tx().await)));
}

/// What a closed store must refuse, with handles made before.
struct Handles<E: Engine> {
    store: Store<E>,
    stream: Stream<E>,
    queue: Queue<E>,
    jobs: Vec<JobHandle<E>>,
    lock: Lock<E>,
    events: EventReceiver<E>,
}

impl<E: Engine> Handles<E> {
    /// Makes handles of every kind, and closes their store.
    async fn closed(store: Store<E>) -> Self {
        let stream = store.stream("stream").unwrap();
        stream.publish(&1).await.unwrap();
        let queue = store.queue("queue", QueueOpts::default()).unwrap();
        queue
            .enqueue_batch(&[1, 2, 3, 4, 5], EnqueueOpts::default())
            .await
            .unwrap();
        let jobs = queue.claim_batch("worker", 5).await.unwrap();
        let lock = store.try_lock("lock", "owner", 60).await.unwrap().unwrap();
        let mut events = stream.subscribe("consumer").await.unwrap();
        events.recv().await.unwrap().unwrap();
        store.close().await;
        Self {
            store,
            stream,
            queue,
            jobs,
            lock,
            events,
        }
    }
}

fn assert_closed(entries: Vec<(&'static str, Error)>) {
    for (entry, error) in entries {
        assert!(says_closed(&error), "{entry} says {error:?}");
        assert!(
            !error.is_transient(),
            "{entry} says that trying again can help"
        );
    }
}

/// After close every operation of the store and its mechanisms fails with a database error
/// that says so.
pub(super) async fn a_closed_store_refuses_every_operation<H: Harness>(h: &H) {
    let Handles {
        store,
        stream,
        queue,
        ..
    } = Handles::closed(h.open().await).await;
    let opts = EnqueueOpts::default;
    let outbox = store.outbox("outbox").unwrap();
    let hourly = store.schedule(
        "schedule",
        "@every 1h",
        "queue",
        &1,
        ScheduleOpts::default(),
    );
    let deliver = async |_| Ok::<_, Error>(());
    assert_closed(vec![
        ("begin_tx", error_of(store.begin_tx().await)),
        (
            "with_tx",
            error_of(store.with_tx(async |_| Ok::<_, Error>(())).await),
        ),
        ("notify", error_of(store.notify("channel", &1).await)),
        ("listen", error_of(store.listen("channel").await)),
        (
            "try_lock",
            error_of(store.try_lock("another", "owner", 60).await),
        ),
        ("schedule", error_of(hourly.await)),
        ("unschedule", error_of(store.unschedule("schedule").await)),
        (
            "run_schedules",
            error_of(within(h, store.run_schedules(StopToken::new())).await),
        ),
        ("publish", error_of(stream.publish(&1).await)),
        (
            "publish_with_key",
            error_of(stream.publish_with_key(Some("key"), &1).await),
        ),
        (
            "publish_batch",
            error_of(stream.publish_batch(&[(None, 1)]).await),
        ),
        ("read_since", error_of(stream.read_since(0, 1).await)),
        (
            "read_from_consumer",
            error_of(stream.read_from_consumer("consumer", 1).await),
        ),
        (
            "save_offset",
            error_of(stream.save_offset("consumer", 1).await),
        ),
        ("get_offset", error_of(stream.get_offset("consumer").await)),
        ("trim_to", error_of(stream.trim_to(1).await)),
        ("subscribe", error_of(stream.subscribe("consumer").await)),
        ("stream's listen", error_of(stream.listen().await)),
        ("enqueue", error_of(queue.enqueue(&1, opts()).await)),
        (
            "enqueue_batch",
            error_of(queue.enqueue_batch(&[1], opts()).await),
        ),
        ("claim_one", error_of(queue.claim_one("worker").await)),
        (
            "claim_batch",
            error_of(queue.claim_batch("worker", 2).await),
        ),
        ("cancel", error_of(queue.cancel(1).await)),
        ("get_job", error_of(queue.get_job(1).await)),
        ("sweep_expired", error_of(queue.sweep_expired().await)),
        ("queue's listen", error_of(queue.listen().await)),
        (
            "outbox's enqueue",
            error_of(outbox.enqueue(&1, opts()).await),
        ),
        (
            "run_once",
            error_of(outbox.run_once("worker", deliver).await),
        ),
        ("outbox's get_job", error_of(outbox.get_job(1).await)),
        (
            "outbox's sweep_expired",
            error_of(outbox.sweep_expired().await),
        ),
        ("outbox's listen", error_of(outbox.listen().await)),
    ]);
}

/// So does every operation of what was claimed, locked or subscribed before; its rows stay.
pub(super) async fn a_closed_store_refuses_what_its_handles_do<H: Harness>(h: &H) {
    let handles = Handles::closed(h.open().await).await;
    let Handles {
        queue,
        mut jobs,
        lock,
        mut events,
        ..
    } = handles;
    let mut next = || jobs.pop().unwrap();
    let (acked, retried, failed) = (next(), next(), next());
    let ids = [acked.id, retried.id, failed.id];
    assert_closed(vec![
        ("ack", error_of(acked.ack().await)),
        ("retry", error_of(retried.retry("why", None).await)),
        ("fail", error_of(failed.fail(None).await)),
        ("heartbeat", error_of(next().heartbeat(60).await)),
        ("ack_batch", error_of(queue.ack_batch(&jobs).await)),
        ("renew", error_of(lock.renew(60).await)),
        ("release", error_of(lock.release().await)),
        (
            "receiver's read_since",
            error_of(events.read_since(0, 1).await),
        ),
        (
            "receiver's save_offset",
            error_of(events.save_offset().await),
        ),
    ]);
    assert!(within(h, events.recv()).await.is_none());
    assert!(matches!(events.try_recv().await, Err(Error::Closed)));
    let store = h.open().await;
    for id in ids {
        assert_eq!(
            find_job(&store, "queue", id).await.unwrap().state,
            JobState::Processing
        );
    }
    assert!(
        store
            .try_lock("lock", "another", 60)
            .await
            .unwrap()
            .is_none()
    );
    let stream = store.stream("stream").unwrap();
    assert_eq!(stream.get_offset("consumer").await.unwrap(), 0);
}

/// A handle is a name: a closed store still makes one, and still judges its name.
pub(super) async fn names_are_judged_alike_after_close<H: Harness>(h: &H) {
    let store = h.open().await;
    store.close().await;
    assert_eq!(store.stream("stream").unwrap().name(), "stream");
    assert!(matches!(
        error_of(store.stream("")),
        Error::InvalidName { .. }
    ));
    let queue = store.queue("__alkstore_x", QueueOpts::default());
    assert!(matches!(error_of(queue), Error::ReservedName { .. }));
}

/// Every operation checks its names, then its other arguments, then its payload, and only then
/// whether the store is open.
pub(super) async fn what_is_wrong_with_a_call_is_told_before_what_is_closed<H: Harness>(h: &H) {
    let Handles {
        store,
        stream,
        queue,
        mut jobs,
        lock,
        ..
    } = Handles::closed(h.open().await).await;
    let outbox = store.outbox("outbox").unwrap();
    let none = || EnqueueOpts::default().max_attempts(0);
    let keyed = [(Some(""), Untouchable)];
    let schedule = |name, spec, queue| {
        let opts = ScheduleOpts::default();
        store.schedule(name, spec, queue, &Untouchable, opts)
    };
    let deliver = outbox.run_once("", async |_| -> alkstore::Result<()> {
        panic!("a message was delivered")
    });
    for (entry, error) in [
        ("notify", refused(store.notify("", &Untouchable))),
        ("listen", refused(store.listen(""))),
        ("try_lock", refused(store.try_lock("", "owner", 0))),
        ("its owner", refused(store.try_lock("lock", "", 0))),
        ("schedule", refused(schedule("", "", ""))),
        ("its queue", refused(schedule("name", "", ""))),
        ("unschedule", refused(store.unschedule(""))),
        (
            "publish_with_key",
            refused(stream.publish_with_key(Some(""), &Untouchable)),
        ),
        ("publish_batch", refused(stream.publish_batch(&keyed))),
        (
            "read_from_consumer",
            refused(stream.read_from_consumer("", 0)),
        ),
        ("save_offset", refused(stream.save_offset("", 0))),
        ("get_offset", refused(stream.get_offset(""))),
        ("subscribe", refused(stream.subscribe(""))),
        ("claim_one", refused(queue.claim_one(""))),
        ("claim_batch", refused(queue.claim_batch("", 0))),
        ("run_once", refused(deliver)),
    ] {
        assert!(
            matches!(error, Error::InvalidName { .. }),
            "{entry}: {error:?}"
        );
    }
    let batch = [Untouchable];
    for (entry, error) in [
        ("try_lock", refused(store.try_lock("lock", "owner", 0))),
        ("renew", refused(lock.renew(0))),
        ("heartbeat", refused(jobs.remove(0).heartbeat(0))),
        ("enqueue", refused(queue.enqueue(&Untouchable, none()))),
        (
            "enqueue_batch",
            refused(queue.enqueue_batch(&batch, none())),
        ),
        ("outbox", refused(outbox.enqueue(&Untouchable, none()))),
    ] {
        assert!(
            matches!(error, Error::InvalidArgument { .. }),
            "{entry}: {error:?}"
        );
    }
    let spec = refused(schedule("name", "", "queue"));
    assert!(matches!(spec, Error::InvalidSpec { .. }), "{spec:?}");
    // A payload that JSON cannot express.
    let bad = std::collections::BTreeMap::from([((1, 2), 3)]);
    let hourly = store.schedule("name", "@every 1h", "queue", &bad, ScheduleOpts::default());
    for (entry, error) in [
        ("notify", refused(store.notify("channel", &bad))),
        ("schedule", refused(hourly)),
        ("publish", refused(stream.publish(&bad))),
        (
            "publish_batch",
            refused(stream.publish_batch(&[(None, &bad)])),
        ),
        (
            "enqueue",
            refused(queue.enqueue(&bad, EnqueueOpts::default())),
        ),
        (
            "enqueue_batch",
            refused(queue.enqueue_batch(&[&bad], EnqueueOpts::default())),
        ),
        (
            "outbox",
            refused(outbox.enqueue(&bad, EnqueueOpts::default())),
        ),
    ] {
        assert!(matches!(error, Error::Codec(_)), "{entry}: {error:?}");
    }
}

/// The methods of a transaction check in the same order.
pub(super) async fn a_transaction_of_a_closed_store_tells_first_what_is_wrong_with_a_call<H>(h: &H)
where
    H: Harness,
{
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    // Closed at its first poll, though an engine may wait for the transaction.
    let mut closing = Box::pin(store.close());
    let closed = futures::poll!(&mut closing).is_ready();
    assert!(store.is_closed());
    let opts = EnqueueOpts::default;
    let none = || opts().max_attempts(0);
    for (entry, error) in [
        ("publish_tx", refused(tx.publish_tx("", &Untouchable))),
        (
            "keyed",
            refused(tx.publish_with_key_tx("stream", Some(""), &Untouchable)),
        ),
        ("notify_tx", refused(tx.notify_tx("", &Untouchable))),
        (
            "enqueue_tx",
            refused(tx.enqueue_tx("", none(), &Untouchable)),
        ),
        (
            "outbox_enqueue_tx",
            refused(tx.outbox_enqueue_tx("", none(), &Untouchable)),
        ),
        (
            "save_offset_tx",
            refused(tx.save_offset_tx("stream", "", 1)),
        ),
        ("get_offset_tx", refused(tx.get_offset_tx("", "consumer"))),
        ("read_since_tx", refused(tx.read_since_tx("", 0, 0))),
        (
            "read_from_consumer_tx",
            refused(tx.read_from_consumer_tx("stream", "", 0)),
        ),
        ("get_job_tx", refused(tx.get_job_tx("", 1))),
    ] {
        assert!(
            matches!(error, Error::InvalidName { .. }),
            "{entry}: {error:?}"
        );
    }
    let error = refused(tx.enqueue_tx("queue", none(), &Untouchable));
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
    drop(tx);
    if !closed {
        within(h, closing).await;
    }
}

/// A second store lives on when the first is closed, its receivers included.
pub(super) async fn closing_a_store_leaves_others_alone<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut wakes = other.listen("channel").await.unwrap();
    let mut events = other
        .stream("stream")
        .unwrap()
        .subscribe("consumer")
        .await
        .unwrap();
    store.stream("stream").unwrap().publish(&1).await.unwrap();
    store.close().await;
    assert!(!other.is_closed());
    assert_eq!(number(&within(h, events.recv()).await.unwrap().unwrap()), 1);
    other.stream("stream").unwrap().publish(&2).await.unwrap();
    assert_eq!(number(&within(h, events.recv()).await.unwrap().unwrap()), 2);
    other.notify("channel", &1).await.unwrap();
    assert!(within(h, wakes.recv()).await.is_some());
}

/// A transaction that is open when its store is closed commits wholly or not at all.
pub(super) async fn a_transaction_that_is_open_at_close_is_whole<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &1).await.unwrap();
    H::insert_row(tx.connection(), "row").await.unwrap();
    let both = async { tokio::join!(store.close(), tx.commit()).1 };
    let committed = within(h, both).await.is_ok();
    let other = h.open().await;
    assert_eq!(
        read_all(&other, "stream").await.len(),
        usize::from(committed)
    );
    assert_eq!(count_rows::<H>(&other).await, i64::from(committed));
    assert!(other.stream("stream").unwrap().publish(&2).await.is_ok());
}

/// An operation that waits when its store is closed ends, and says whether it was done.
pub(super) async fn what_waits_at_close_finishes_or_fails<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &1).await.unwrap();
    let stream = other.stream("stream").unwrap();
    let waiting = tokio::spawn(async move { stream.publish(&2).await });
    tokio::time::sleep(h.quiet()).await;
    let closing = tokio::spawn(async move { other.close().await });
    tokio::time::sleep(h.quiet()).await;
    tx.commit().await.unwrap();
    let published = within(h, waiting).await.unwrap().is_ok();
    within(h, closing).await.unwrap();
    let expected = if published { vec![1, 2] } else { vec![1] };
    assert_eq!(numbers(&read_all(&store, "stream").await), expected);
}

/// Handles, transactions and receivers of a store work on when the store itself is dropped.
pub(super) async fn handles_keep_a_dropped_store_alive<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let mut tx = store.begin_tx().await.unwrap();
    let mut events = stream.subscribe("consumer").await.unwrap();
    drop(store);
    tx.publish_tx("stream", &1).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(number(&within(h, events.recv()).await.unwrap().unwrap()), 1);
    assert_eq!(stream.publish(&2).await.unwrap(), 2);
    drop(stream);
    assert_eq!(number(&within(h, events.recv()).await.unwrap().unwrap()), 2);
    let other = h.open().await;
    other.stream("stream").unwrap().publish(&3).await.unwrap();
    assert_eq!(number(&within(h, events.recv()).await.unwrap().unwrap()), 3);
}
