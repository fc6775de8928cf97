use std::time::Duration;

use alkstore::{Error, QueueOpts, ScheduleOpts};

use super::*;
use crate::Harness;
use crate::support::{error_of, never, within};

/// A message enqueued in a transaction is there from the commit on, with an outbox's options
/// and its own, or never.
pub(super) async fn outbox_enqueue_tx_commits_with_the_transaction<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let (outbox, reader) = (outbox(&store), outbox(&other));
    let mut tx = store.begin_tx().await.unwrap();
    let ghost = tx
        .outbox_enqueue_tx("post", EnqueueOpts::default(), &0)
        .await
        .unwrap();
    assert_eq!(reader.get_job(ghost).await.unwrap(), None);
    tx.rollback().await.unwrap();
    assert_eq!(reader.get_job(ghost).await.unwrap(), None);
    assert!(!outbox.run_once("w", unreachable_delivery).await.unwrap());

    let mut tx = store.begin_tx().await.unwrap();
    let plain = tx
        .outbox_enqueue_tx("post", EnqueueOpts::default(), &1)
        .await
        .unwrap();
    let opts = EnqueueOpts::default()
        .priority(2)
        .max_attempts(9)
        .run_at(77);
    let opts = opts.expires(Duration::from_secs(500));
    let own = tx.outbox_enqueue_tx("post", opts, &2).await.unwrap();
    assert_eq!(reader.get_job(plain).await.unwrap(), None);
    tx.commit().await.unwrap();
    let plain = job(&reader, plain).await;
    assert_outbox_stamps(&plain);
    assert_eq!(
        (plain.priority, plain.run_at, plain.expires_at),
        (0, plain.created_at, None)
    );
    let own = job(&reader, own).await;
    assert_eq!((own.priority, own.run_at, own.max_attempts), (2, 77, 9));
    assert_eq!(own.expires_at, Some(own.created_at + 500));
    assert_eq!((own.visibility_timeout_s, own.backoff_base_s), (60, 5));

    let mut delivered = Vec::new();
    for _ in 0..2 {
        let delivery = async |message: Delivery<_>| {
            delivered.push(message.payload_as::<i32>()?);
            Ok::<_, Error>(())
        };
        assert!(reader.run_once("w", delivery).await.unwrap());
    }
    assert_eq!(delivered, [2, 1]);
}

/// Outboxes share no messages with each other, nor with a queue of their name.
pub(super) async fn outboxes_and_queues_of_one_name_are_apart<H: Harness>(h: &H) {
    let store = h.open().await;
    let (outbox, other) = (outbox(&store), store.outbox("other").unwrap());
    let queue = store.queue("post", QueueOpts::default()).unwrap();
    let message = outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    assert!(queue.claim_one("w").await.unwrap().is_none());
    assert_eq!(queue.get_job(message).await.unwrap(), None);
    assert!(!queue.cancel(message).await.unwrap());
    assert!(!other.run_once("w", unreachable_delivery).await.unwrap());
    assert_eq!(other.get_job(message).await.unwrap(), None);

    let id = queue.enqueue(&2, EnqueueOpts::default()).await.unwrap();
    assert_eq!(outbox.get_job(id).await.unwrap(), None);
    let mut delivered = Vec::new();
    loop {
        let delivery = async |message: Delivery<_>| {
            delivered.push(message.id);
            Ok::<_, Infallible>(())
        };
        if !outbox.run_once("w", delivery).await.unwrap() {
            break;
        }
    }
    assert_eq!(delivered, [message]);
    assert_eq!(
        queue.claim_one("w").await.unwrap().map(|job| job.id),
        Some(id)
    );
}

/// The queue behind an outbox has a reserved name: no queue, transaction or schedule takes it.
pub(super) async fn only_the_outbox_reaches_its_messages<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = outbox(&store);
    let id = outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let backing = "__alkstore_outbox:post";
    let reserved = |error: Error| assert!(matches!(error, Error::ReservedName { .. }), "{error:?}");
    reserved(error_of(store.queue(backing, QueueOpts::default())));
    reserved(error_of(store.outbox(backing)));
    let opts = ScheduleOpts::default();
    reserved(error_of(
        store.schedule("s", "@every 1s", backing, &2, opts).await,
    ));
    let mut tx = store.begin_tx().await.unwrap();
    reserved(error_of(
        tx.enqueue_tx(backing, EnqueueOpts::default(), &2).await,
    ));
    reserved(error_of(
        tx.outbox_enqueue_tx(backing, EnqueueOpts::default(), &2)
            .await,
    ));
    reserved(error_of(tx.get_job_tx(backing, id).await));
    tx.commit().await.unwrap();
    assert!(
        outbox
            .run_once("w", async |_| Ok::<_, Infallible>(()))
            .await
            .unwrap()
    );
    assert!(!outbox.run_once("w", unreachable_delivery).await.unwrap());
}

/// A message wakes who waits on its outbox, from a transaction at the commit, and nobody
/// else.
pub(super) async fn an_outbox_hears_of_its_messages<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut wakes = outbox(&other).listen().await.unwrap();
    let queue = store.queue("post", QueueOpts::default()).unwrap();
    store
        .outbox("other")
        .unwrap()
        .enqueue(&1, EnqueueOpts::default())
        .await
        .unwrap();
    queue.enqueue(&2, EnqueueOpts::default()).await.unwrap();
    let mut tx = store.begin_tx().await.unwrap();
    tx.outbox_enqueue_tx("post", EnqueueOpts::default(), &3)
        .await
        .unwrap();
    never(h, wakes.recv()).await;
    tx.commit().await.unwrap();
    let wake = within(h, wakes.recv()).await.expect("the receiver is open");
    assert_eq!(wake.channel(), "post");

    // Wakes may repeat: what comes now is not the first one once more.
    let mut wakes = outbox(&other).listen().await.unwrap();
    let mut queue_wakes = queue.listen().await.unwrap();
    outbox(&store)
        .enqueue(&4, EnqueueOpts::default())
        .await
        .unwrap();
    assert!(within(h, wakes.recv()).await.is_some());
    never(h, queue_wakes.recv()).await;
}

/// A message that was enqueued in a transaction is read in it, by the outbox's name.
pub(super) async fn a_transaction_reads_its_own_messages<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    let id = tx
        .outbox_enqueue_tx("post", EnqueueOpts::default().priority(3), &"hello")
        .await
        .unwrap();
    let message = tx.outbox_get_job_tx("post", id).await.unwrap();
    let message = message.expect("the transaction sees what it wrote");
    assert_outbox_stamps(&message);
    assert_eq!((&*message.queue, message.priority), ("post", 3));
    assert_eq!(message.payload_as::<String>().unwrap(), "hello");
    assert_eq!(tx.outbox_get_job_tx("other", id).await.unwrap(), None);
    assert_eq!(tx.get_job_tx("post", id).await.unwrap(), None);
    assert_eq!(tx.outbox_get_job_tx("post", id + 1).await.unwrap(), None);
    for bad in ["", "a\0b", "__alkstore_outbox:post"] {
        let error = error_of(tx.outbox_get_job_tx(bad, id).await);
        assert!(
            matches!(
                error,
                Error::InvalidName { .. } | Error::ReservedName { .. }
            ),
            "{error:?}"
        );
    }
    tx.commit().await.unwrap();
    assert_eq!(job(&outbox(&store), id).await, message);
}

/// Whatever shows the queue of a message shows the outbox's own name.
pub(super) async fn an_outbox_shows_its_own_name<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = outbox(&store);
    let mut wakes = outbox.listen().await.unwrap();
    let id = outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let wake = within(h, wakes.recv()).await.expect("the receiver is open");
    assert_eq!(wake.channel(), "post");
    assert_eq!(job(&outbox, id).await.queue, "post");
    let mut shown = format!("{outbox:?} {wakes:?} {wake:?}");
    let delivery = async |message: Delivery<_>| {
        assert_eq!(message.queue, "post");
        shown += &format!("{message:?}");
        // The name that is shown is not the one that acts.
        assert!(message.heartbeat(60).await?);
        Err::<(), _>(Error::Closed)
    };
    assert!(outbox.run_once("w", delivery).await.unwrap());
    let failed = job(&outbox, id).await;
    assert_eq!((&*failed.queue, failed.attempts), ("post", 1));
    assert_eq!(failed.last_error, Some(Error::Closed.to_string()));
    h.advance(10);
    assert!(
        outbox
            .run_once("w", async |_| Ok::<_, Infallible>(()))
            .await
            .unwrap()
    );
    assert_eq!(outbox.get_job(id).await.unwrap(), None);
    assert!(!shown.contains("__alkstore"), "{shown}");
}
