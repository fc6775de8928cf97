//! Names that are valid and look as if they were not.

use alkstore::{EnqueueOpts, Error, QueueOpts, ScheduleOpts};

use crate::Harness;
use crate::support::{deliver_one, offsets, read_all, within};

/// What every engine accepts.
fn unusual_names() -> Vec<String> {
    let plain = [
        "x",
        "MiXeD cAsE",
        "it's \"quoted\" `three` \\ ways\\",
        "two\nlines\r\tand a tab",
        "🦀 and 日本語 and \u{202e}right to left",
        "100 % _ ? $1 :name {} *",
        "'; DROP TABLE jobs; --",
        "../a/b?c=d&e#f",
        " outer blanks ",
        "null",
        "\u{1}\u{7f}",
    ];
    let long = [
        "x".repeat(63),
        "x".repeat(64),
        "€".repeat(22),
        "x".repeat(255),
        format!("{}y", "é".repeat(127)),
    ];
    plain.into_iter().map(str::to_owned).chain(long).collect()
}

/// Any valid name names a stream of its own, its consumers and its keys, and comes back as
/// it was given.
pub(super) async fn unusual_names_name_streams_and_consumers<H: Harness>(h: &H) {
    let store = h.open().await;
    let names = unusual_names();
    for (number, name) in names.iter().enumerate() {
        let stream = store.stream(name).unwrap();
        assert_eq!(stream.name(), name);
        assert_eq!(
            stream.publish_with_key(Some(name), &number).await.unwrap(),
            1,
            "{name:?}"
        );
        stream.save_offset(name, 1).await.unwrap();
    }
    for (number, name) in names.iter().enumerate() {
        let events = read_all(&store, name).await;
        assert_eq!(offsets(&events), [1], "{name:?}");
        assert_eq!(events[0].payload_as::<usize>().unwrap(), number);
        assert_eq!(
            (&events[0].stream, events[0].key.as_ref()),
            (name, Some(name))
        );
        let stream = store.stream(name).unwrap();
        assert_eq!(stream.get_offset(name).await.unwrap(), 1);
        assert_eq!(stream.get_offset("somebody else").await.unwrap(), 0);
        assert!(stream.read_from_consumer(name, 1).await.unwrap().is_empty());
    }
}

/// Any valid name names a queue of its own and a worker.
pub(super) async fn unusual_names_name_queues_and_workers<H: Harness>(h: &H) {
    let store = h.open().await;
    let names = unusual_names();
    for (number, name) in names.iter().enumerate() {
        let queue = store.queue(name, QueueOpts::default()).unwrap();
        queue
            .enqueue(&number, EnqueueOpts::default())
            .await
            .unwrap();
    }
    for (number, name) in names.iter().enumerate() {
        let queue = store.queue(name, QueueOpts::default()).unwrap();
        let jobs = queue.claim_batch(name, 10).await.unwrap();
        assert_eq!(jobs.len(), 1, "{name:?}");
        assert_eq!(jobs[0].payload_as::<usize>().unwrap(), number);
        assert_eq!(
            (&jobs[0].queue, jobs[0].worker_id.as_ref()),
            (name, Some(name))
        );
        assert_eq!(queue.ack_batch(&jobs).await.unwrap(), 1);
    }
}

/// Any name that is valid for an outbox names one of its own, the longest included.
pub(super) async fn unusual_names_name_outboxes<H: Harness>(h: &H) {
    let store = h.open().await;
    let names = unusual_names();
    for (number, name) in names.iter().enumerate() {
        let outbox = store.outbox(name).unwrap();
        outbox
            .enqueue(&number, EnqueueOpts::default())
            .await
            .unwrap();
    }
    for (number, name) in names.iter().enumerate() {
        let outbox = store.outbox(name).unwrap();
        let deliver = async |message: alkstore::Delivery<_>| {
            assert_eq!(message.payload_as::<usize>()?, number);
            Ok::<_, Error>(())
        };
        assert!(
            outbox.run_once("worker", deliver).await.unwrap(),
            "{name:?}"
        );
        assert!(
            !outbox.run_once("worker", deliver).await.unwrap(),
            "{name:?}"
        );
    }
}

/// Any valid name names a lock of its own and an owner.
pub(super) async fn unusual_names_name_locks_and_owners<H: Harness>(h: &H) {
    let store = h.open().await;
    let names = unusual_names();
    for name in &names {
        let lock = store.try_lock(name, name, 60).await.unwrap();
        assert_eq!(lock.expect("the lock is free").name(), name);
    }
    for name in &names {
        assert!(store.try_lock(name, "x", 60).await.unwrap().is_some() == (name == "x"));
    }
}

/// Any valid name names a schedule of its own.
pub(super) async fn unusual_names_name_schedules<H: Harness>(h: &H) {
    let store = h.open().await;
    let names = unusual_names();
    for name in &names {
        let opts = ScheduleOpts::default();
        store
            .schedule(name, "@every 1h", name, &1, opts)
            .await
            .unwrap();
    }
    for name in &names {
        assert!(store.unschedule(name).await.unwrap(), "{name:?}");
        assert!(!store.unschedule(name).await.unwrap(), "{name:?}");
    }
}

/// Any valid name names a channel of its own, and the wake carries it as it was given.
pub(super) async fn unusual_names_name_channels<H: Harness>(h: &H) {
    let store = h.open().await;
    for name in unusual_names() {
        let mut wakes = store.listen(&name).await.unwrap();
        let mut others = store.listen("another").await.unwrap();
        store.notify(&name, &1).await.unwrap();
        let wake = within(h, wakes.recv()).await.unwrap();
        assert_eq!(wake.channel(), name);
        assert_eq!(others.try_recv().unwrap(), None, "{name:?}");
    }
}

/// The methods of a transaction take every valid name.
pub(super) async fn unusual_names_work_in_a_transaction<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    for name in &unusual_names() {
        let id = tx
            .enqueue_tx(name, EnqueueOpts::default(), &1)
            .await
            .unwrap();
        assert_eq!(&tx.get_job_tx(name, id).await.unwrap().unwrap().queue, name);
        tx.outbox_enqueue_tx(name, EnqueueOpts::default(), &1)
            .await
            .unwrap();
        assert_eq!(
            tx.publish_with_key_tx(name, Some(name), &1).await.unwrap(),
            1
        );
        let event = tx.read_since_tx(name, 0, 1).await.unwrap().remove(0);
        assert_eq!((&event.stream, event.key.as_ref()), (name, Some(name)));
        tx.notify_tx(name, &1).await.unwrap();
        tx.save_offset_tx(name, name, 1).await.unwrap();
        assert_eq!(tx.get_offset_tx(name, name).await.unwrap(), 1);
        assert!(
            tx.read_from_consumer_tx(name, name, 1)
                .await
                .unwrap()
                .is_empty()
        );
    }
    tx.commit().await.unwrap();
    for name in unusual_names() {
        assert_eq!(offsets(&read_all(&store, &name).await), [1], "{name:?}");
    }
}

/// Two names that differ only after many equal bytes are two names to every mechanism.
pub(super) async fn names_are_compared_to_their_end<H: Harness>(h: &H) {
    let same = "n".repeat(63);
    let longer = "n".repeat(254);
    two_names_are_two(h, &format!("{same}a"), &format!("{same}b")).await;
    two_names_are_two(h, &same, &format!("{same}b")).await;
    two_names_are_two(h, &format!("{longer}a"), &format!("{longer}b")).await;
}

/// Names that differ in case, in blanks at an end or in how an accent is written are two.
pub(super) async fn names_are_compared_byte_by_byte<H: Harness>(h: &H) {
    two_names_are_two(h, "name", "Name").await;
    two_names_are_two(h, "blank", "blank ").await;
    two_names_are_two(h, "caf\u{e9}", "cafe\u{301}").await;
    two_names_are_two(h, "a_b", "a%b").await;
}

async fn two_names_are_two<H: Harness>(h: &H, one: &str, other: &str) {
    let store = h.open().await;
    let stream = store.stream(one).unwrap();
    let queue = store.queue(one, QueueOpts::default()).unwrap();
    let mut wakes = store.listen(one).await.unwrap();
    let mut others = store.listen(other).await.unwrap();

    assert_eq!(stream.publish(&1).await.unwrap(), 1);
    stream.save_offset(one, 1).await.unwrap();
    queue.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    store
        .outbox(one)
        .unwrap()
        .enqueue(&1, EnqueueOpts::default())
        .await
        .unwrap();
    let lock = store.try_lock(one, "owner", 60).await.unwrap();
    store
        .schedule(one, "@every 1h", "queue", &1, ScheduleOpts::default())
        .await
        .unwrap();
    store.notify(one, &1).await.unwrap();

    assert!(read_all(&store, other).await.is_empty(), "{other:?}");
    assert_eq!(stream.get_offset(other).await.unwrap(), 0);
    let other_queue = store.queue(other, QueueOpts::default()).unwrap();
    assert!(other_queue.claim_one("worker").await.unwrap().is_none());
    assert!(!deliver_one(&store, other).await);
    assert!(lock.is_some());
    assert!(
        store
            .try_lock(other, "somebody else", 60)
            .await
            .unwrap()
            .is_some()
    );
    assert!(!store.unschedule(other).await.unwrap());
    assert!(within(h, wakes.recv()).await.is_some());
    assert_eq!(others.try_recv().unwrap(), None);
}
