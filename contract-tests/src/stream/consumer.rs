//! Consumers and the offsets that they save.

use alkstore::Error;

use crate::Harness;
use crate::support::{numbers, offsets, within};

/// `read_from_consumer` gives what is greater than the saved offset, and saves nothing.
pub(super) async fn read_from_consumer_starts_at_the_saved_offset<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream
        .publish_batch(&[(None, 1), (None, 2), (None, 3)])
        .await
        .unwrap();
    for (saved, expected) in [(0, [1, 2].as_slice()), (1, &[2, 3]), (2, &[3]), (3, &[])] {
        stream.save_offset("consumer", saved).await.unwrap();
        for _ in 0..2 {
            let events = stream.read_from_consumer("consumer", 2).await.unwrap();
            assert_eq!(numbers(&events), expected, "from {saved}");
        }
        assert_eq!(stream.get_offset("consumer").await.unwrap(), saved);
    }
}

/// A consumer that never saved has the offset 0, however much was published.
pub(super) async fn a_consumer_that_never_saved_is_at_zero<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.publish(&1).await.unwrap();
    stream.save_offset("another", 1).await.unwrap();
    assert_eq!(stream.get_offset("consumer").await.unwrap(), 0);
}

/// A save says whether it moved the offset; one that is not greater is ignored.
pub(super) async fn a_saved_offset_never_goes_back<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let mut before = 0;
    for (save, then) in [
        (5, 5),
        (3, 5),
        (5, 5),
        (0, 5),
        (-1, 5),
        (6, 6),
        (i64::MIN, 6),
    ] {
        let moved = stream.save_offset("consumer", save).await.unwrap();
        assert_eq!(moved, then > before, "save of {save}");
        before = then;
        assert_eq!(
            stream.get_offset("consumer").await.unwrap(),
            then,
            "after {save}"
        );
    }
}

/// A save of zero or less changes nothing, for a consumer that never saved as well.
pub(super) async fn a_save_that_is_not_positive_changes_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.publish(&1).await.unwrap();
    for save in [0, -1, i64::MIN] {
        assert!(!stream.save_offset("consumer", save).await.unwrap());
        assert_eq!(stream.get_offset("consumer").await.unwrap(), 0);
        let events = stream.read_from_consumer("consumer", 10).await.unwrap();
        assert_eq!(offsets(&events), [1]);
    }
}

/// An offset beyond the head is kept as given: what is published up to it is not read.
pub(super) async fn a_save_beyond_the_head_is_kept<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.save_offset("consumer", 2).await.unwrap();
    stream
        .publish_batch(&[(None, 1), (None, 2), (None, 3)])
        .await
        .unwrap();
    assert_eq!(stream.get_offset("consumer").await.unwrap(), 2);
    let events = stream.read_from_consumer("consumer", 10).await.unwrap();
    assert_eq!(offsets(&events), [3]);
    stream.save_offset("consumer", i64::MAX).await.unwrap();
    assert_eq!(stream.get_offset("consumer").await.unwrap(), i64::MAX);
}

/// An offset belongs to one consumer of one stream, for every process.
pub(super) async fn consumers_do_not_share_offsets<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    store
        .stream("one")
        .unwrap()
        .save_offset("a", 1)
        .await
        .unwrap();
    store
        .stream("one")
        .unwrap()
        .save_offset("b", 2)
        .await
        .unwrap();
    store
        .stream("two")
        .unwrap()
        .save_offset("a", 3)
        .await
        .unwrap();
    for (stream, consumer, saved) in [("one", "a", 1), ("one", "b", 2), ("two", "a", 3)] {
        let stream = other.stream(stream).unwrap();
        assert_eq!(stream.get_offset(consumer).await.unwrap(), saved);
    }
    assert_eq!(
        other.stream("two").unwrap().get_offset("b").await.unwrap(),
        0
    );
}

/// However saves from several processes and transactions fall, the greatest stays, and one
/// that rolls back does not count.
pub(super) async fn concurrent_saves_end_at_the_greatest<H: Harness>(h: &H) {
    let mut tasks = Vec::new();
    for process in 0..4_i64 {
        let store = h.open().await;
        tasks.push(tokio::spawn(async move {
            for round in (0..8).rev().chain(0..8) {
                let offset = 1 + round * 4 + process;
                store
                    .stream("stream")?
                    .save_offset("consumer", offset)
                    .await?;
                let mut tx = store.begin_tx().await?;
                tx.save_offset_tx("stream", "consumer", 1000 + offset)
                    .await?;
                tx.rollback().await?;
                let save = async |tx: &mut alkstore::Tx<H::Engine>| {
                    tx.save_offset_tx("stream", "consumer", offset - 1).await
                };
                store.with_tx(save).await?;
            }
            Ok::<_, Error>(())
        }));
    }
    for task in tasks {
        within(h, task).await.unwrap().unwrap();
    }
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    assert_eq!(stream.get_offset("consumer").await.unwrap(), 32);
}
