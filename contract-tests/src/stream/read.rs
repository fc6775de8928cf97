//! Reading by offset.

use crate::Harness;
use crate::support::{numbers, offsets, read_all};

/// `read_since` gives the events with a greater offset, ascending, at most `limit`.
pub(super) async fn read_since_gives_what_is_greater<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream
        .publish_batch(&[(None, 10), (None, 20), (None, 30)])
        .await
        .unwrap();
    let cases: [(i64, i64, &[i64]); 6] = [
        (0, 10, &[10, 20, 30]),
        (0, 2, &[10, 20]),
        (1, 1, &[20]),
        (2, 10, &[30]),
        (3, 10, &[]),
        (4, 10, &[]),
    ];
    for (offset, limit, expected) in cases {
        let events = stream.read_since(offset, limit).await.unwrap();
        assert_eq!(
            numbers(&events),
            expected,
            "since {offset}, at most {limit}"
        );
    }
}

/// A limit of zero or less is an empty read, not an error and not everything.
pub(super) async fn a_limit_that_is_not_positive_reads_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.publish(&1).await.unwrap();
    let events = stream.subscribe("consumer").await.unwrap();
    for limit in [0, -1, i64::MIN] {
        assert!(stream.read_since(0, limit).await.unwrap().is_empty());
        assert!(
            stream
                .read_from_consumer("consumer", limit)
                .await
                .unwrap()
                .is_empty()
        );
        assert!(events.read_since(0, limit).await.unwrap().is_empty());
    }
}

/// Offsets and limits mean what they say up to the ends of `i64`.
pub(super) async fn every_offset_and_limit_has_a_meaning<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.publish_batch(&[(None, 1), (None, 2)]).await.unwrap();
    for offset in [i64::MIN, -1, 0] {
        let events = stream.read_since(offset, i64::MAX).await.unwrap();
        assert_eq!(offsets(&events), [1, 2], "since {offset}");
    }
    assert!(
        stream
            .read_since(i64::MAX, i64::MAX)
            .await
            .unwrap()
            .is_empty()
    );
    stream.save_offset("consumer", i64::MAX).await.unwrap();
    assert!(
        stream
            .read_from_consumer("consumer", i64::MAX)
            .await
            .unwrap()
            .is_empty()
    );
}

/// Pages that follow each other hold every event once.
pub(super) async fn a_long_stream_is_read_in_pages<H: Harness>(h: &H) {
    const EVENTS: i64 = 1300;
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let batch: Vec<_> = (1..=EVENTS).map(|n| (None, n)).collect();
    stream.publish_batch(&batch).await.unwrap();
    let mut read = Vec::new();
    loop {
        let from = read.last().copied().unwrap_or(0);
        let page = stream.read_since(from, 501).await.unwrap();
        read.extend(offsets(&page));
        if page.len() < 501 {
            break;
        }
    }
    assert_eq!(read, (1..=EVENTS).collect::<Vec<_>>());
    assert_eq!(numbers(&read_all(&store, "stream").await), read);
}

/// A stream that nobody published to reads as empty and trims nothing.
pub(super) async fn an_unknown_stream_is_empty<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    assert!(stream.read_since(0, 10).await.unwrap().is_empty());
    assert!(
        stream
            .read_from_consumer("consumer", 10)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(stream.get_offset("consumer").await.unwrap(), 0);
    assert_eq!(stream.trim_to(i64::MAX).await.unwrap(), 0);
    assert_eq!(stream.publish(&1).await.unwrap(), 1);
}

/// Every process reads the same events under the same offsets.
pub(super) async fn processes_read_the_same_events<H: Harness>(h: &H) {
    let stores = [h.open().await, h.open().await, h.open().await];
    for (payload, store) in std::iter::zip(1..=9, stores.iter().cycle()) {
        assert_eq!(
            store
                .stream("stream")
                .unwrap()
                .publish(&payload)
                .await
                .unwrap(),
            payload
        );
    }
    let first = read_all(&stores[0], "stream").await;
    assert_eq!(numbers(&first), (1..=9).collect::<Vec<_>>());
    for store in &stores[1..] {
        assert_eq!(read_all(store, "stream").await, first);
    }
}
