//! Payloads that JSON cannot express, or nobody could read back.

use std::collections::BTreeMap;

use alkstore::{EnqueueOpts, Error, QueueOpts, ScheduleOpts};
use serde::ser::{Error as _, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::Harness;
use crate::support::{deliver_one, error_of, find_job, never, numbers, read_all, refused};

/// Arrays in arrays, so many, made while they are written.
struct Deep(usize);

impl Serialize for Deep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        if self.0 > 1 {
            seq.serialize_element(&Deep(self.0 - 1))?;
        }
        seq.end()
    }
}

/// Arrays and objects in turns, so many.
fn mixed(depth: usize) -> Value {
    let wrap = |value, level| {
        if level % 2 == 0 {
            json!([value])
        } else {
            json!({"k": value})
        }
    };
    (1..depth).fold(json!([]), wrap)
}

/// A value whose serialization writes something and then fails.
struct Failing;

impl Serialize for Failing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        seq.serialize_element(&1)?;
        Err(S::Error::custom("it cannot be written"))
    }
}

/// What every method that takes a payload says to one.
async fn entries<H: Harness, P: Serialize + Sync>(
    h: &H,
    payload: &P,
) -> Vec<(&'static str, Error)> {
    let store = h.open().await;
    let opts = EnqueueOpts::default;
    let stream = store.stream("stream").unwrap();
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    let outbox = store.outbox("outbox").unwrap();
    let hourly = store.schedule(
        "schedule",
        "@every 1h",
        "queue",
        payload,
        ScheduleOpts::default(),
    );
    let mut entries = vec![
        ("publish", refused(stream.publish(payload))),
        (
            "publish_with_key",
            refused(stream.publish_with_key(Some("key"), payload)),
        ),
        (
            "publish_batch",
            refused(stream.publish_batch(&[(None, payload)])),
        ),
        ("enqueue", refused(queue.enqueue(payload, opts()))),
        (
            "enqueue_batch",
            refused(queue.enqueue_batch(&[payload], opts())),
        ),
        ("outbox", refused(outbox.enqueue(payload, opts()))),
        ("notify", refused(store.notify("channel", payload))),
        ("schedule", refused(hourly)),
    ];
    let mut tx = store.begin_tx().await.unwrap();
    let keyed = refused(tx.publish_with_key_tx("stream", Some("key"), payload));
    entries.extend([
        ("publish_tx", refused(tx.publish_tx("stream", payload))),
        ("publish_with_key_tx", keyed),
        (
            "enqueue_tx",
            refused(tx.enqueue_tx("queue", opts(), payload)),
        ),
        (
            "outbox_enqueue_tx",
            refused(tx.outbox_enqueue_tx("outbox", opts(), payload)),
        ),
        ("notify_tx", refused(tx.notify_tx("channel", payload))),
    ]);
    tx.commit().await.unwrap();
    entries
}

/// Asserts that every method refuses a payload with `Codec` and stores nothing.
async fn assert_refused<H: Harness, P: Serialize + Sync>(h: &H, payload: &P) {
    let store = h.open().await;
    let mut wakes = store.listen("channel").await.unwrap();
    for (entry, error) in entries(h, payload).await {
        assert!(matches!(error, Error::Codec(_)), "{entry} says {error:?}");
    }
    assert!(read_all(&store, "stream").await.is_empty());
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    assert!(queue.claim_one("worker").await.unwrap().is_none());
    assert!(!deliver_one(&store, "outbox").await);
    assert!(!store.unschedule("schedule").await.unwrap());
    never(h, wakes.recv()).await;
}

/// 127 containers in each other are stored and read back.
pub(super) async fn the_deepest_nesting_reads_back<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    stream.publish(&Deep(127)).await.unwrap();
    stream.publish(&mixed(127)).await.unwrap();
    let id = queue
        .enqueue(&mixed(127), EnqueueOpts::default())
        .await
        .unwrap();
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &Deep(127)).await.unwrap();
    tx.commit().await.unwrap();
    let events = read_all(&store, "stream").await;
    assert_eq!(events.len(), 3);
    assert_eq!(
        events[0].payload,
        "[".repeat(127)
            .into_bytes()
            .into_iter()
            .chain("]".repeat(127).into_bytes())
            .collect::<Vec<_>>()
    );
    assert_eq!(events[1].payload_as::<Value>().unwrap(), mixed(127));
    assert_eq!(events[2].payload, events[0].payload);
    let job = find_job(&store, "queue", id).await.unwrap();
    assert_eq!(job.payload_as::<Value>().unwrap(), mixed(127));
}

/// 128 containers in each other are refused by every method, and nothing is stored.
pub(super) async fn deeper_nesting_is_refused_everywhere<H: Harness>(h: &H) {
    assert_refused(h, &Deep(128)).await;
    assert_refused(h, &mixed(128)).await;
}

/// A value 100,000 deep is refused like one that is a little too deep.
pub(super) async fn very_deep_nesting_does_not_exhaust_the_stack<H: Harness>(h: &H) {
    assert_refused(h, &Deep(100_000)).await;
}

/// Serialization of a value that is too deep stops at the limit.
pub(super) async fn deep_values_are_refused_before_they_are_written_out<H: Harness>(h: &H) {
    /// Endless: whoever writes it must stop by itself.
    struct Endless;

    impl Serialize for Endless {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = BTreeMap::new();
            map.insert("k", Endless);
            map.serialize(serializer)
        }
    }
    assert_refused(h, &Endless).await;
}

/// JSON that was encoded before is refused like any other payload if it could not be read back,
/// by its own depth and by what it is nested in, and else stored as it is.
pub(super) async fn raw_json_that_cannot_be_read_back_is_refused<H: Harness>(h: &H) {
    let raw = |json: String| RawValue::from_string(json).unwrap();
    let deep = |depth: usize| raw("[".repeat(depth) + &"]".repeat(depth));
    assert_refused(h, &deep(500)).await;
    assert_refused(h, &[[deep(126)]]).await;
    assert_refused(h, &BTreeMap::from([("k", raw("[1e999]".into()))])).await;
    assert_refused(h, &raw(r#""\ud800""#.into())).await;

    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let written = r#" { "a" : [ 1.50, "[[[\u0041", {} , null,true ] } "#;
    for payload in [raw(written.into()), deep(127)] {
        stream.publish(&payload).await.unwrap();
    }
    stream.publish(&[[deep(125)]]).await.unwrap();
    let events = read_all(&store, "stream").await;
    assert_eq!(events[0].payload, written.trim().as_bytes());
    for event in &events {
        event.payload_as::<Value>().unwrap();
        event.payload_as::<Box<RawValue>>().unwrap();
    }
    assert_eq!(events[2].payload, serde_json::to_vec(&deep(127)).unwrap());
}

/// A payload whose serialization fails half-way is a `Codec` error and stores nothing.
pub(super) async fn a_payload_that_fails_to_serialize_stores_nothing<H: Harness>(h: &H) {
    assert_refused(h, &Failing).await;
    // One bad payload in a batch takes the good ones with it.
    #[derive(Serialize)]
    #[serde(untagged)]
    enum Either {
        Good(u8),
        Bad(Failing),
    }
    let store = h.open().await;
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    let batch = [Either::Good(1), Either::Bad(Failing)];
    let error = error_of(queue.enqueue_batch(&batch, EnqueueOpts::default()).await);
    assert!(matches!(error, Error::Codec(_)));
    assert!(queue.claim_one("worker").await.unwrap().is_none());
    let stream = store.stream("stream").unwrap();
    let error = error_of(
        stream
            .publish_batch(&batch.map(|payload| (None, payload)))
            .await,
    );
    assert!(matches!(error, Error::Codec(_)));
    assert!(read_all(&store, "stream").await.is_empty());
}

/// A map whose keys JSON cannot express is a `Codec` error and stores nothing.
pub(super) async fn keys_that_are_not_strings_store_nothing<H: Harness>(h: &H) {
    assert_refused(h, &BTreeMap::from([((1, 2), 3)])).await;
    assert_refused(
        h,
        &BTreeMap::from([(Some("key"), BTreeMap::from([([1], 1)]))]),
    )
    .await;
}

/// A payload that is refused in a transaction takes nothing else of it away.
pub(super) async fn a_refused_payload_leaves_the_transaction_usable<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    assert_eq!(tx.publish_tx("stream", &1).await.unwrap(), 1);
    assert!(matches!(
        error_of(tx.publish_tx("stream", &Failing).await),
        Error::Codec(_)
    ));
    assert_eq!(tx.publish_tx("stream", &2).await.unwrap(), 2);
    tx.commit().await.unwrap();
    assert_eq!(numbers(&read_all(&store, "stream").await), [1, 2]);
}
