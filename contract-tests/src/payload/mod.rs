//! Payloads: what is stored is what `serde_json` writes, byte for byte.

mod refusal;

use std::collections::BTreeMap;

use alkstore::{EnqueueOpts, Error, Job, QueueOpts};
use serde::Serialize;
use serde_json::{Value, json};

use crate::Harness;
use crate::support::{find_job, read_all};

use refusal::*;

alkstore_macros::cases! {
    payload:
    events_store_the_bytes_of_serde_json,
    jobs_store_the_bytes_of_serde_json,
    messages_store_the_bytes_of_serde_json,
    a_transaction_stores_the_bytes_of_serde_json,
    a_batch_stores_the_bytes_of_each_payload,
    a_megabyte_is_a_payload,
    payloads_keep_their_key_order,
    payloads_read_back_as_their_type,
    another_type_is_a_codec_error,
    the_deepest_nesting_reads_back,
    deeper_nesting_is_refused_everywhere,
    very_deep_nesting_does_not_exhaust_the_stack,
    deep_values_are_refused_before_they_are_written_out,
    raw_json_that_cannot_be_read_back_is_refused,
    a_payload_that_fails_to_serialize_stores_nothing,
    keys_that_are_not_strings_store_nothing,
    a_refused_payload_leaves_the_transaction_usable,
}

/// Values whose bytes an engine could change if it looked at them.
fn values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(9_007_199_254_740_993_i64),
        json!(0.1),
        json!(-0.0),
        json!(1e300),
        json!(5e-324),
        json!(1.0),
        json!(""),
        json!("\u{0}"),
        json!("\u{1}\u{7f}\u{2028}\\u0000 \"\\ / é 🦀"),
        json!("'; DROP TABLE jobs; --"),
        json!([]),
        json!({}),
        json!({"": "", " ": " ", "\u{0}": "\u{0}"}),
        json!({"b": [1, [2, {"c": null}]], "a": {"é": 1.5, "e": 2}}),
        json!([[[[[[]]]]], {"a": {"a": {"a": {}}}}]),
    ]
}

fn bytes(payload: &(impl Serialize + ?Sized)) -> Vec<u8> {
    serde_json::to_vec(payload).unwrap()
}

/// An event's payload is exactly what `serde_json::to_vec` writes.
async fn events_store_the_bytes_of_serde_json<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    for value in values() {
        stream.publish(&value).await.unwrap();
    }
    for (event, value) in std::iter::zip(read_all(&store, "stream").await, values()) {
        assert_eq!(event.payload, bytes(&value));
        assert_eq!(event.payload_as::<Value>().unwrap(), value);
    }
    assert_eq!(read_all(&store, "stream").await.len(), values().len());
}

/// A job's payload is exactly what `serde_json::to_vec` writes, claimed or looked up.
async fn jobs_store_the_bytes_of_serde_json<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    for value in values() {
        let id = queue.enqueue(&value, EnqueueOpts::default()).await.unwrap();
        assert_eq!(
            queue.get_job(id).await.unwrap().unwrap().payload,
            bytes(&value)
        );
        let job = queue.claim_one("worker").await.unwrap().unwrap();
        assert_eq!((job.id, &job.payload), (id, &bytes(&value)));
        assert!(job.fail(None).await.unwrap());
        let dead = find_job(&store, "queue", id).await.unwrap();
        assert_eq!(dead.payload, bytes(&value));
    }
}

/// An outbox's message is exactly what `serde_json::to_vec` writes.
async fn messages_store_the_bytes_of_serde_json<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = store.outbox("outbox").unwrap();
    for value in values() {
        outbox
            .enqueue(&value, EnqueueOpts::default())
            .await
            .unwrap();
        let deliver = async |message: alkstore::Delivery<_>| {
            assert_eq!(message.payload, bytes(&value));
            Ok::<_, Error>(())
        };
        assert!(outbox.run_once("worker", deliver).await.unwrap());
    }
}

/// The methods of a transaction store the same bytes, and read them back in it.
async fn a_transaction_stores_the_bytes_of_serde_json<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    let mut stored = Vec::new();
    for value in values() {
        let offset = tx.publish_tx("stream", &value).await.unwrap();
        let keyed = tx
            .publish_with_key_tx("stream", Some("key"), &value)
            .await
            .unwrap();
        for event in tx.read_since_tx("stream", offset - 1, 2).await.unwrap() {
            assert_eq!(event.payload, bytes(&value));
        }
        assert_eq!(keyed, offset + 1);
        let job = tx
            .enqueue_tx("queue", EnqueueOpts::default(), &value)
            .await
            .unwrap();
        let read = tx.get_job_tx("queue", job).await.unwrap().unwrap();
        assert_eq!(read.payload, bytes(&value));
        let opts = EnqueueOpts::default();
        let message = tx.outbox_enqueue_tx("outbox", opts, &value).await.unwrap();
        stored.push((value, job, message));
    }
    tx.commit().await.unwrap();

    let events = read_all(&store, "stream").await;
    assert_eq!(events.len(), 2 * stored.len());
    for (pair, (value, job, message)) in std::iter::zip(events.chunks(2), stored) {
        assert!(pair.iter().all(|event| event.payload == bytes(&value)));
        assert_eq!(
            find_job(&store, "queue", job).await.unwrap().payload,
            bytes(&value)
        );
        let outbox = store.outbox("outbox").unwrap();
        assert_eq!(
            outbox.get_job(message).await.unwrap().unwrap().payload,
            bytes(&value)
        );
    }
}

/// Each payload of a batch is stored as it would be alone.
async fn a_batch_stores_the_bytes_of_each_payload<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    let ids = queue
        .enqueue_batch(&values(), EnqueueOpts::default())
        .await
        .unwrap();
    for (id, value) in std::iter::zip(ids, values()) {
        assert_eq!(
            find_job(&store, "queue", id).await.unwrap().payload,
            bytes(&value)
        );
    }
    let events: Vec<_> = values().into_iter().map(|value| (None, value)).collect();
    store
        .stream("stream")
        .unwrap()
        .publish_batch(&events)
        .await
        .unwrap();
    for (event, value) in std::iter::zip(read_all(&store, "stream").await, values()) {
        assert_eq!(event.payload, bytes(&value));
    }
}

/// A payload of a megabyte is stored and read like a small one.
async fn a_megabyte_is_a_payload<H: Harness>(h: &H) {
    let store = h.open().await;
    let text = "é\n".repeat(1 << 18);
    assert!(bytes(&text).len() > 1 << 20);
    store
        .stream("stream")
        .unwrap()
        .publish(&text)
        .await
        .unwrap();
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    let id = queue.enqueue(&text, EnqueueOpts::default()).await.unwrap();
    assert!(read_all(&store, "stream").await[0].payload == bytes(&text));
    assert!(find_job(&store, "queue", id).await.unwrap().payload == bytes(&text));
    let job = queue.claim_one("worker").await.unwrap().unwrap();
    assert!(job.payload_as::<String>().unwrap() == text);
}

/// Fields and keys stay in the order in which they were written, repeated ones included.
async fn payloads_keep_their_key_order<H: Harness>(h: &H) {
    #[derive(Serialize)]
    struct Unsorted {
        z: u8,
        a: u8,
        #[serde(rename = "z")]
        again: u8,
    }
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream
        .publish(&Unsorted {
            z: 1,
            a: 2,
            again: 3,
        })
        .await
        .unwrap();
    let stored = &read_all(&store, "stream").await[0].payload;
    assert_eq!(stored, br#"{"z":1,"a":2,"z":3}"#);
}

/// `payload_as` gives back the value that was enqueued and published.
async fn payloads_read_back_as_their_type<H: Harness>(h: &H) {
    type Order = (u64, f64, Option<String>, BTreeMap<String, Vec<i8>>);
    let order: Order = (
        u64::MAX,
        0.1,
        Some("\0".into()),
        BTreeMap::from([("k".into(), vec![-128, 127])]),
    );
    let store = h.open().await;
    store
        .stream("stream")
        .unwrap()
        .publish(&order)
        .await
        .unwrap();
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    queue.enqueue(&order, EnqueueOpts::default()).await.unwrap();
    assert_eq!(
        read_all(&store, "stream").await[0]
            .payload_as::<Order>()
            .unwrap(),
        order
    );
    let job = queue.claim_one("worker").await.unwrap().unwrap();
    assert_eq!(job.payload_as::<Order>().unwrap(), order);
}

/// `payload_as` of another type is an error of its own, and the bytes stay readable.
async fn another_type_is_a_codec_error<H: Harness>(h: &H) {
    let store = h.open().await;
    store
        .stream("stream")
        .unwrap()
        .publish(&"seven")
        .await
        .unwrap();
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    let id = queue
        .enqueue(&i64::MAX, EnqueueOpts::default())
        .await
        .unwrap();
    let event = read_all(&store, "stream").await.remove(0);
    assert!(matches!(event.payload_as::<i64>(), Err(Error::Codec(_))));
    assert_eq!(event.payload_as::<String>().unwrap(), "seven");
    let job: Job = find_job(&store, "queue", id).await.unwrap();
    assert!(matches!(job.payload_as::<i32>(), Err(Error::Codec(_))));
    assert!(matches!(job.payload_as::<Vec<i64>>(), Err(Error::Codec(_))));
    assert_eq!(job.payload_as::<i64>().unwrap(), i64::MAX);
}
