//! Trimming: what goes, and what stays as it is.

use alkstore::QueueOpts;
use futures::future::poll_immediate;

use crate::Harness;
use crate::support::{numbers, offsets, read_all};

/// A trim deletes up to and including its horizon and counts; later events keep their
/// offsets, and a read from before it goes on at the first that is left.
pub(super) async fn trim_deletes_up_to_and_including_its_horizon<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let batch: Vec<_> = (1..=6).map(|n| (None, n)).collect();
    stream.publish_batch(&batch).await.unwrap();
    assert_eq!(stream.trim_to(2).await.unwrap(), 2);
    let events = read_all(&store, "stream").await;
    assert_eq!(
        (offsets(&events), numbers(&events)),
        (vec![3, 4, 5, 6], vec![3, 4, 5, 6])
    );
    assert_eq!(offsets(&stream.read_since(1, 2).await.unwrap()), [3, 4]);
    assert_eq!(stream.trim_to(2).await.unwrap(), 0);
    assert_eq!(stream.trim_to(4).await.unwrap(), 2);
    assert_eq!(offsets(&read_all(&store, "stream").await), [5, 6]);
    assert_eq!(stream.publish(&7).await.unwrap(), 7);
}

/// A horizon before the first event deletes nothing.
pub(super) async fn a_trim_that_reaches_nothing_deletes_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.publish(&1).await.unwrap();
    for horizon in [0, -1, i64::MIN] {
        assert_eq!(stream.trim_to(horizon).await.unwrap(), 0);
    }
    assert_eq!(offsets(&read_all(&store, "stream").await), [1]);
}

/// A horizon beyond the head deletes what is there, and nothing that comes later.
pub(super) async fn a_trim_beyond_the_head_deletes_what_is_there<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.publish_batch(&[(None, 1), (None, 2)]).await.unwrap();
    assert_eq!(stream.trim_to(i64::MAX).await.unwrap(), 2);
    assert!(read_all(&store, "stream").await.is_empty());
    assert_eq!(stream.publish(&3).await.unwrap(), 3);
    assert_eq!(offsets(&read_all(&store, "stream").await), [3]);
}

/// A trim goes in steps: what they did is there while it goes on, others write in between, the
/// call that is dropped leaves them done, and one that is not counts them all.
pub(super) async fn a_trim_lets_others_pass_and_keeps_its_steps<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let batch: Vec<_> = (1..=2200).map(|n| (None, n)).collect();
    stream.publish_batch(&batch).await.unwrap();
    let mut trim = Box::pin(stream.trim_to(2150));
    let first = async || stream.read_since(0, 1).await.unwrap()[0].offset;
    while first().await == 1 {
        assert!(poll_immediate(&mut trim).await.is_none(), "one step");
    }
    assert_eq!(stream.publish(&2201).await.unwrap(), 2201);
    drop(trim);
    assert!((2..=2001).contains(&first().await));
    assert!(stream.trim_to(2149).await.unwrap() <= 2149 - 1000);
    while first().await < 2150 {
        // A step that was under way when the call was dropped may have come after.
        stream.trim_to(2149).await.unwrap();
    }
    assert_eq!(read_all(&store, "stream").await.len(), 52);
    stream.publish_batch(&batch).await.unwrap();
    assert_eq!(stream.trim_to(i64::MAX).await.unwrap(), 52 + 2200);
}

/// A trim leaves other streams as they are.
pub(super) async fn a_trim_reaches_its_own_stream_only<H: Harness>(h: &H) {
    let store = h.open().await;
    for name in ["one", "other"] {
        store
            .stream(name)
            .unwrap()
            .publish_batch(&[(None, 1), (None, 2)])
            .await
            .unwrap();
    }
    assert_eq!(store.stream("one").unwrap().trim_to(2).await.unwrap(), 2);
    assert_eq!(offsets(&read_all(&store, "other").await), [1, 2]);
}

/// An offset is never used again, not after everything was trimmed, nor after a restart.
pub(super) async fn offsets_are_not_used_again_after_a_full_trim<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream
        .publish_batch(&[(None, 1), (None, 2), (None, 3)])
        .await
        .unwrap();
    assert_eq!(stream.trim_to(3).await.unwrap(), 3);
    assert_eq!(stream.publish(&4).await.unwrap(), 4);
    assert_eq!(stream.trim_to(4).await.unwrap(), 1);
    store.close().await;
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    assert_eq!(stream.publish(&5).await.unwrap(), 5);
    let offset = store
        .with_tx(async |tx| tx.publish_tx("stream", &6).await)
        .await;
    assert_eq!(offset.unwrap(), 6);
    assert_eq!(offsets(&read_all(&store, "stream").await), [5, 6]);
}

/// A saved offset stays as it is when its event is trimmed, and reads go on after it.
pub(super) async fn saved_offsets_outlive_a_trim<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let batch: Vec<_> = (1..=5).map(|n| (None, n)).collect();
    stream.publish_batch(&batch).await.unwrap();
    stream.save_offset("behind", 1).await.unwrap();
    stream.save_offset("ahead", 4).await.unwrap();
    assert_eq!(stream.trim_to(3).await.unwrap(), 3);
    assert_eq!(stream.get_offset("behind").await.unwrap(), 1);
    assert_eq!(stream.get_offset("ahead").await.unwrap(), 4);
    assert_eq!(
        offsets(&stream.read_from_consumer("behind", 10).await.unwrap()),
        [4, 5]
    );
    assert_eq!(
        offsets(&stream.read_from_consumer("ahead", 10).await.unwrap()),
        [5]
    );
    stream.save_offset("behind", 2).await.unwrap();
    assert_eq!(stream.get_offset("behind").await.unwrap(), 2);
}

/// A trim wakes nobody, in any process.
pub(super) async fn a_trim_wakes_nobody<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let stream = store.stream("stream").unwrap();
    stream.publish_batch(&[(None, 1), (None, 2)]).await.unwrap();
    let queue = store.queue("stream", QueueOpts::default()).unwrap();
    let mut receivers = [
        stream.listen().await.unwrap(),
        other.stream("stream").unwrap().listen().await.unwrap(),
        store.listen("stream").await.unwrap(),
        queue.listen().await.unwrap(),
    ];
    assert_eq!(stream.trim_to(1).await.unwrap(), 1);
    tokio::time::sleep(h.quiet()).await;
    for wakes in &mut receivers {
        assert_eq!(wakes.try_recv().unwrap(), None);
    }
}
