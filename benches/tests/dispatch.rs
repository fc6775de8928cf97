//! What a store costs around its engine, counted: allocations of a call, memory of a receiver.

#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    reason = "a test that cannot start says why and ends"
)]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use alkstore::{Engine, EnqueueOpts, QueueOpts, Store};
use alkstore_benches::Null;
use alkstore_sqlite::Sqlite;
use allocation_counter::measure;

/// So many receivers wait, each on something of its own.
const RECEIVERS: usize = 10_000;

/// Allocations of one call on an engine that does no work, after one to warm up.
macro_rules! allocations {
    ($call:expr) => {{
        let call = || match pin!($call).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => drop(result.expect("it is done")),
            Poll::Pending => unreachable!("the engine does no work"),
        };
        call();
        measure(call).count_total
    }};
}

/// Allocations of an enqueue, a claim, a publish, a read and a notify.
fn hot_paths<E: Engine>(store: &Store<E>) -> [u64; 5] {
    let queue = store.queue("mail", QueueOpts::default()).expect("a queue");
    let stream = store.stream("users").expect("a stream");
    [
        allocations!(queue.enqueue("x", EnqueueOpts::default())),
        allocations!(queue.claim_one("worker")),
        allocations!(stream.publish("x")),
        allocations!(stream.read_since(0, 10)),
        allocations!(store.notify("prices", "x")),
    ]
}

#[test]
fn a_call_allocates_its_encoded_payload_and_boxed_one_future() {
    let store = Store::new(Null::default());
    assert_eq!(hot_paths(&store), [1, 0, 1, 0, 1]);
    assert_eq!(hot_paths(&store.boxed()), [2, 1, 2, 1, 2]);
}

#[tokio::test]
async fn a_receiver_that_waits_takes_less_than_four_kilobytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("receivers.db");
    let path = path.to_str().expect("a path");
    let store = Store::<Sqlite>::open(path).await.expect("it opens");
    let before = store.listen("first").await.expect("a receiver");
    let mut receivers = Vec::with_capacity(RECEIVERS);
    let mut events = Vec::with_capacity(RECEIVERS);
    // Inline, and so counted: what this thread allocates and keeps.
    let mut kept = 0;
    for nth in 0..RECEIVERS {
        let stream = store.stream(&format!("stream-{nth}")).expect("a stream");
        let channel = format!("channel-{nth}");
        let counted = measure(|| {
            let waiting = async {
                events.push(stream.subscribe("consumer").await.expect("a receiver"));
                receivers.push(store.listen(&channel).await.expect("a receiver"));
            };
            let polled = pin!(waiting).poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_ready(), "it had to wait");
        });
        kept += counted.bytes_current;
        // Each gets a budget of its own.
        tokio::task::yield_now().await;
    }
    let each = kept / i64::try_from(2 * RECEIVERS).expect("few");
    assert!(each < 4096, "{each} bytes for each receiver");
    drop(before);
}
