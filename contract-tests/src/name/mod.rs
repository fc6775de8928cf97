//! Names: which are refused, everywhere and before anything happens, and which work.

mod unusual;

use alkstore::{Engine, EnqueueOpts, Error, OnConnection, QueueOpts, ScheduleOpts, Store, Tx};

use crate::Harness;
use crate::support::{Untouchable, error_of, find_job, numbers, read_all, refused};

use unusual::*;

alkstore_macros::cases! {
    name:
    invalid_shared_names_are_refused_by_every_entry_point,
    invalid_shared_names_are_refused_by_a_transaction,
    invalid_shared_names_are_refused_by_an_applications_transaction,
    reserved_names_are_refused_by_every_entry_point,
    reserved_names_are_refused_by_a_transaction,
    reserved_names_are_refused_by_an_applications_transaction,
    invalid_local_names_are_refused_by_every_entry_point,
    invalid_local_names_are_refused_by_a_transaction,
    local_names_may_start_with_the_reserved_prefix,
    the_prefix_is_reserved_only_at_the_start_and_as_it_is_written,
    an_outbox_queue_is_reached_by_the_outbox_alone,
    unusual_names_name_streams_and_consumers,
    unusual_names_name_queues_and_workers,
    unusual_names_name_outboxes,
    unusual_names_name_locks_and_owners,
    unusual_names_name_schedules,
    unusual_names_name_channels,
    unusual_names_work_in_a_transaction,
    names_are_compared_to_their_end,
    names_are_compared_byte_by_byte,
}

/// What no engine accepts, as a shared name or a local one.
fn invalid_names() -> Vec<String> {
    let plain = ["", " ", " \t\r\n ", "\u{3000}", "\0", "a\0b"];
    let long = ["x".repeat(256), "é".repeat(128), "x".repeat(10_000)];
    plain.into_iter().map(str::to_owned).chain(long).collect()
}

/// What no engine accepts as a shared name only.
fn reserved_names() -> Vec<String> {
    let plain = [
        "__alkstore_",
        "__alkstore_x",
        alkstore::LISTENER_RECONNECTED,
        "__alkstore_scheduler",
        "__alkstore_outbox:mail",
        "__alkstore_ \n",
    ];
    let longest = format!("__alkstore_{}", "x".repeat(244));
    plain
        .into_iter()
        .map(str::to_owned)
        .chain([longest])
        .collect()
}

/// What each way in that takes a shared name says to `name`, with payloads that nobody may
/// touch.
fn shared_entries<E: Engine>(store: &Store<E>, name: &str) -> Vec<(&'static str, Error)> {
    let every = |name, queue| {
        store.schedule(
            name,
            "@every 1h",
            queue,
            &Untouchable,
            ScheduleOpts::default(),
        )
    };
    vec![
        ("notify", refused(store.notify(name, &Untouchable))),
        ("listen", refused(store.listen(name))),
        ("stream", error_of(store.stream(name))),
        ("queue", error_of(store.queue(name, QueueOpts::default()))),
        ("outbox", error_of(store.outbox(name))),
        ("try_lock", refused(store.try_lock(name, "owner", 60))),
        ("schedule", refused(every(name, "queue"))),
        ("schedule's queue", refused(every("schedule", name))),
        ("unschedule", refused(store.unschedule(name))),
    ]
}

/// The same for the methods of a transaction.
fn shared_entries_tx<E: Engine, T: OnConnection<E::Conn>>(
    tx: &mut Tx<E, T>,
    name: &str,
) -> Vec<(&'static str, Error)> {
    let opts = EnqueueOpts::default;
    vec![
        (
            "publish_with_key_tx",
            refused(tx.publish_with_key_tx(name, Some("key"), &Untouchable)),
        ),
        ("publish_tx", refused(tx.publish_tx(name, &Untouchable))),
        (
            "enqueue_tx",
            refused(tx.enqueue_tx(name, opts(), &Untouchable)),
        ),
        (
            "outbox_enqueue_tx",
            refused(tx.outbox_enqueue_tx(name, opts(), &Untouchable)),
        ),
        ("notify_tx", refused(tx.notify_tx(name, &Untouchable))),
        (
            "save_offset_tx",
            refused(tx.save_offset_tx(name, "consumer", 1)),
        ),
        ("get_offset_tx", refused(tx.get_offset_tx(name, "consumer"))),
        ("get_job_tx", refused(tx.get_job_tx(name, 1))),
        ("read_since_tx", refused(tx.read_since_tx(name, 0, 1))),
        (
            "read_from_consumer_tx",
            refused(tx.read_from_consumer_tx(name, "consumer", 1)),
        ),
    ]
}

fn assert_invalid(name: &str, entries: Vec<(&'static str, Error)>) {
    for (entry, error) in entries {
        assert!(
            matches!(&error, Error::InvalidName { name: refused, .. } if refused == name),
            "{entry} says to {name:?}: {error:?}",
        );
    }
}

fn assert_reserved(name: &str, entries: Vec<(&'static str, Error)>) {
    for (entry, error) in entries {
        assert!(
            matches!(&error, Error::ReservedName { name: refused } if refused == name),
            "{entry} says to {name:?}: {error:?}",
        );
    }
}

/// An empty, blank or too long name, or one with a NUL, is an invalid name to every method
/// that takes a shared one, before the payload is touched.
async fn invalid_shared_names_are_refused_by_every_entry_point<H: Harness>(h: &H) {
    let store = h.open().await;
    for name in invalid_names() {
        assert_invalid(&name, shared_entries(&store, &name));
    }
}

/// The methods of a transaction refuse the same names, and the transaction goes on.
async fn invalid_shared_names_are_refused_by_a_transaction<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    for name in invalid_names() {
        assert_invalid(&name, shared_entries_tx(&mut tx, &name));
    }
    assert_eq!(tx.publish_tx("stream", &1).await.unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(numbers(&read_all(&store, "stream").await), [1]);
}

/// So do they in a transaction that the application began.
async fn invalid_shared_names_are_refused_by_an_applications_transaction<H: Harness>(h: &H) {
    let store = h.open().await;
    let joining = store.clone();
    let body = h.with_own_tx(
        true,
        Box::new(|connection| {
            Box::pin(async move {
                let mut tx = joining.join_tx(connection);
                for name in invalid_names() {
                    assert_invalid(&name, shared_entries_tx(&mut tx, &name));
                }
                tx.publish_tx("stream", &1).await.map(drop)
            })
        }),
    );
    body.await.unwrap();
    assert_eq!(numbers(&read_all(&store, "stream").await), [1]);
}

/// A shared name must not start with the library's prefix: every method says so before the
/// payload is touched.
async fn reserved_names_are_refused_by_every_entry_point<H: Harness>(h: &H) {
    let store = h.open().await;
    for name in reserved_names() {
        assert_reserved(&name, shared_entries(&store, &name));
    }
}

/// The methods of a transaction refuse reserved names, and the transaction goes on.
async fn reserved_names_are_refused_by_a_transaction<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    for name in reserved_names() {
        assert_reserved(&name, shared_entries_tx(&mut tx, &name));
    }
    assert_eq!(tx.publish_tx("stream", &1).await.unwrap(), 1);
    tx.commit().await.unwrap();
    assert_eq!(numbers(&read_all(&store, "stream").await), [1]);
}

/// So do they in a transaction that the application began.
async fn reserved_names_are_refused_by_an_applications_transaction<H: Harness>(h: &H) {
    let store = h.open().await;
    let joining = store.clone();
    let body = h.with_own_tx(
        true,
        Box::new(|connection| {
            Box::pin(async move {
                let mut tx = joining.join_tx(connection);
                for name in reserved_names() {
                    assert_reserved(&name, shared_entries_tx(&mut tx, &name));
                }
                tx.publish_tx("stream", &1).await.map(drop)
            })
        }),
    );
    body.await.unwrap();
    assert_eq!(numbers(&read_all(&store, "stream").await), [1]);
}

/// A consumer, a worker and an owner must be valid names; nothing is done for others.
async fn invalid_local_names_are_refused_by_every_entry_point<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    let outbox = store.outbox("outbox").unwrap();
    let id = queue.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let message = outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    for name in &invalid_names() {
        let deliver = outbox.run_once(name, async |_| -> alkstore::Result<()> {
            panic!("a message was delivered to {name:?}")
        });
        let entries = vec![
            (
                "read_from_consumer",
                refused(stream.read_from_consumer(name, 1)),
            ),
            ("save_offset", refused(stream.save_offset(name, 1))),
            ("get_offset", refused(stream.get_offset(name))),
            ("subscribe", refused(stream.subscribe(name))),
            ("claim_one", refused(queue.claim_one(name))),
            ("claim_batch", refused(queue.claim_batch(name, 1))),
            ("claim_batch of none", refused(queue.claim_batch(name, 0))),
            ("run_once", refused(deliver)),
            (
                "try_lock's owner",
                refused(store.try_lock("lock", name, 60)),
            ),
        ];
        assert_invalid(name, entries);
    }
    assert!(read_all(&store, "stream").await.is_empty());
    assert_eq!(find_job(&store, "queue", id).await.unwrap().attempts, 0);
    assert_eq!(outbox.get_job(message).await.unwrap().unwrap().attempts, 0);
    let lock = store.try_lock("lock", "owner", 60).await.unwrap();
    assert!(lock.is_some(), "a refused owner took the lock");
}

/// The methods of a transaction refuse the same consumers.
async fn invalid_local_names_are_refused_by_a_transaction<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    for name in &invalid_names() {
        let read = refused(tx.read_from_consumer_tx("stream", name, 1));
        let entries = vec![
            (
                "save_offset_tx",
                refused(tx.save_offset_tx("stream", name, 1)),
            ),
            ("get_offset_tx", refused(tx.get_offset_tx("stream", name))),
            ("read_from_consumer_tx", read),
        ];
        assert_invalid(name, entries);
    }
    tx.commit().await.unwrap();
    assert!(read_all(&store, "stream").await.is_empty());
}

/// Consumers, workers and owners, and keys, may start with the library's prefix.
async fn local_names_may_start_with_the_reserved_prefix<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    queue
        .enqueue_batch(&[1, 2], EnqueueOpts::default())
        .await
        .unwrap();
    let outbox = store.outbox("outbox").unwrap();
    for name in &reserved_names()[..2] {
        stream.publish_with_key(Some(name), &0).await.unwrap();
        stream.save_offset(name, 1).await.unwrap();
        assert_eq!(stream.get_offset(name).await.unwrap(), 1);
        assert!(stream.subscribe(name).await.is_ok());
        let job = queue.claim_one(name).await.unwrap().unwrap();
        assert_eq!(job.worker_id.as_deref(), Some(name.as_str()));
        let deliver = async |_| Ok::<_, Error>(());
        assert!(!outbox.run_once(name, deliver).await.unwrap());
        let lock = store.try_lock("lock", name, 60).await.unwrap().unwrap();
        assert!(lock.release().await.unwrap());
    }
    let first = &stream.read_from_consumer("nobody", 1).await.unwrap()[0];
    assert_eq!(first.key.as_deref(), Some("__alkstore_"));
}

/// A shared name may contain the prefix elsewhere, or something that only looks like it.
async fn the_prefix_is_reserved_only_at_the_start_and_as_it_is_written<H: Harness>(h: &H) {
    let store = h.open().await;
    for name in [
        "__alkstore",
        "x__alkstore_",
        " __alkstore_x",
        "__ALKSTORE_X",
        "_alkstore_x",
    ] {
        let stream = store.stream(name).unwrap();
        assert_eq!(stream.publish(&1).await.unwrap(), 1, "{name:?}");
        assert!(
            store.try_lock(name, "owner", 60).await.unwrap().is_some(),
            "{name:?}"
        );
    }
}

/// Neither a queue handle nor a transaction nor a schedule reaches the queue of an outbox.
async fn an_outbox_queue_is_reached_by_the_outbox_alone<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = store.outbox("mail").unwrap();
    let id = outbox.enqueue(&7, EnqueueOpts::default()).await.unwrap();
    let shown = outbox.get_job(id).await.unwrap().unwrap().queue;
    assert_eq!(shown, "mail");
    let behind = "__alkstore_outbox:mail";
    assert_reserved(behind, shared_entries(&store, behind));
    let mut tx = store.begin_tx().await.unwrap();
    assert_reserved(behind, shared_entries_tx(&mut tx, behind));
    tx.commit().await.unwrap();
    // An ordinary queue of the outbox's name is another one.
    let namesake = store.queue("mail", QueueOpts::default()).unwrap();
    assert!(namesake.claim_one("worker").await.unwrap().is_none());
    assert!(namesake.get_job(id).await.unwrap().is_none());
    assert!(!namesake.cancel(id).await.unwrap());
    assert!(outbox.get_job(id).await.unwrap().is_some());
}
