//! Following a stream: everything that is there, then everything that comes.

use alkstore::engine::Streams as _;
use alkstore::{Engine, EventReceiver, StreamEvent};

use crate::Harness;
use crate::support::{Dropped, never, number, numbers, offsets, within};

/// The next so many events.
pub(super) async fn take<H: Harness>(
    h: &H,
    events: &mut EventReceiver<H::Engine>,
    count: usize,
) -> Vec<StreamEvent> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.push(within(h, events.recv()).await.unwrap().unwrap());
    }
    taken
}

/// A stream with the events 1, 2, 3 … up to `last`.
pub(super) async fn filled<E: Engine>(
    store: &alkstore::Store<E>,
    last: i64,
) -> alkstore::Stream<E> {
    let stream = store.stream("stream").unwrap();
    let batch: Vec<_> = (1..=last).map(|n| (None, n)).collect();
    stream.publish_batch(&batch).await.unwrap();
    stream
}

/// A consumer that never saved gets everything that is there, in order.
pub(super) async fn a_subscription_replays_what_was_there<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 5).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    let taken = take(h, &mut events, 5).await;
    assert_eq!(taken, stream.read_since(0, 10).await.unwrap());
    assert_eq!(numbers(&taken), [1, 2, 3, 4, 5]);
    never(h, events.recv()).await;
}

/// A consumer that saved gets what comes after that, and one beyond the head waits for it.
pub(super) async fn a_subscription_starts_at_the_saved_offset<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 5).await;
    stream.save_offset("consumer", 3).await.unwrap();
    stream.save_offset("ahead", 6).await.unwrap();
    let mut events = stream.subscribe("consumer").await.unwrap();
    let mut ahead = stream.subscribe("ahead").await.unwrap();
    assert_eq!(numbers(&take(h, &mut events, 2).await), [4, 5]);
    never(h, ahead.recv()).await;
    stream.publish(&6).await.unwrap();
    stream.publish(&7).await.unwrap();
    assert_eq!(numbers(&take(h, &mut events, 2).await), [6, 7]);
    assert_eq!(numbers(&take(h, &mut ahead, 1).await), [7]);
}

/// After the tail a subscription waits, and gets what is published, by whichever form.
pub(super) async fn a_subscription_waits_for_what_comes<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 1).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    assert_eq!(numbers(&take(h, &mut events, 1).await), [1]);
    for payload in 2..=6 {
        never(h, events.recv()).await;
        match payload {
            2 => drop(stream.publish(&payload).await.unwrap()),
            3 => drop(
                stream
                    .publish_with_key(Some("key"), &payload)
                    .await
                    .unwrap(),
            ),
            4 => drop(stream.publish_batch(&[(None, payload)]).await.unwrap()),
            5 => drop(
                store
                    .with_tx(async |tx| tx.publish_tx("stream", &5).await)
                    .await
                    .unwrap(),
            ),
            _ => {
                let joining = store.clone();
                let body = h.with_own_tx(
                    true,
                    Box::new(|connection| {
                        Box::pin(async move {
                            joining
                                .join_tx(connection)
                                .publish_tx("stream", &6)
                                .await
                                .map(drop)
                        })
                    }),
                );
                body.await.unwrap();
            }
        }
        assert_eq!(numbers(&take(h, &mut events, 1).await), [payload]);
    }
}

/// What one process publishes, subscriptions of every process get, in the same order.
pub(super) async fn a_subscription_hears_every_process<H: Harness>(h: &H) {
    let stores = [h.open().await, h.open().await, h.open().await];
    let mut receivers = Vec::new();
    for store in &stores {
        receivers.push(
            store
                .stream("stream")
                .unwrap()
                .subscribe("consumer")
                .await
                .unwrap(),
        );
    }
    for (payload, store) in std::iter::zip(1..=6, stores.iter().cycle()) {
        assert_eq!(
            store
                .stream("stream")
                .unwrap()
                .publish(&payload)
                .await
                .unwrap(),
            payload
        );
        for events in &mut receivers {
            assert_eq!(numbers(&take(h, events, 1).await), [payload]);
        }
    }
}

/// Subscriptions that are made while a publisher works get every event, wherever they fall.
pub(super) async fn a_subscription_misses_nothing_while_it_is_made<H: Harness>(h: &H) {
    const EVENTS: usize = 40;
    let (store, other) = (h.open().await, h.open().await);
    let stream = other.stream("stream").unwrap();
    let publisher = tokio::spawn(async move {
        for payload in 0..EVENTS {
            stream.publish(&payload).await.unwrap();
        }
    });
    let mut receivers = Vec::new();
    while !publisher.is_finished() && receivers.len() < 40 {
        let stream = store.stream("stream").unwrap();
        receivers.push(stream.subscribe("consumer").await.unwrap());
        tokio::task::yield_now().await;
    }
    within(h, publisher).await.unwrap();
    for events in &mut receivers {
        let taken = take(h, events, EVENTS).await;
        assert_eq!(offsets(&taken), (1..).take(EVENTS).collect::<Vec<_>>());
    }
}

/// A consumer that is slower than its publishers gets every event once and in order.
pub(super) async fn a_slow_consumer_gets_every_event_in_order<H: Harness>(h: &H) {
    const BATCHES: i64 = 30;
    const EACH: i64 = 50;
    let (store, other) = (h.open().await, h.open().await);
    let mut events = store
        .stream("stream")
        .unwrap()
        .subscribe("consumer")
        .await
        .unwrap();
    let publisher = tokio::spawn(async move {
        let stream = other.stream("stream").unwrap();
        for batch in 0..BATCHES {
            let batch: Vec<_> = (1..=EACH).map(|n| (None, batch * EACH + n)).collect();
            stream.publish_batch(&batch).await.unwrap();
        }
    });
    for expected in 1..=BATCHES * EACH {
        let event = within(h, events.recv()).await.unwrap().unwrap();
        assert_eq!((event.offset, number(&event)), (expected, expected));
        if expected % 10 == 0 {
            tokio::task::yield_now().await;
        }
        if expected % 500 == 0 {
            events.save_offset().await.unwrap();
        }
    }
    within(h, publisher).await.unwrap();
    never(h, events.recv()).await;
    let stream = store.stream("stream").unwrap();
    assert_eq!(stream.get_offset("consumer").await.unwrap(), BATCHES * EACH);
}

/// Events of very different sizes come one by one, in order.
pub(super) async fn large_events_come_in_order<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let sizes = [1, 400_000, 2, 700_000, 3, 1_500_000, 4, 5, 6];
    for size in sizes {
        stream.publish(&"x".repeat(size)).await.unwrap();
    }
    let mut events = stream.subscribe("consumer").await.unwrap();
    let taken = take(h, &mut events, sizes.len()).await;
    let read: Vec<_> = taken.iter().map(|event| event.payload.len() - 2).collect();
    assert_eq!(read, sizes);
    assert_eq!(offsets(&taken), (1..).take(sizes.len()).collect::<Vec<_>>());
}

/// A subscription holds a bounded part of the stream, also where large events follow many
/// small ones: what it has not read yet is gone once the stream was trimmed.
pub(super) async fn a_subscription_holds_a_bounded_part_of_the_stream<H: Harness>(h: &H) {
    const SMALL: usize = 1200;
    const LARGE: usize = 150_000;
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let batch: Vec<_> = (0..SMALL).map(|n| (None, n)).collect();
    stream.publish_batch(&batch).await.unwrap();
    let large = "x".repeat(LARGE);
    for _ in 0..4 {
        stream.publish_batch(&[(None, &large); 15]).await.unwrap();
    }
    let mut events = stream.subscribe("consumer").await.unwrap();
    take(h, &mut events, SMALL).await;
    stream.trim_to(i64::MAX).await.unwrap();
    let mut held = 0;
    while let Some(event) = within(h, events.try_recv()).await.unwrap() {
        held += event.size();
    }
    assert!(held < 4_000_000, "{held} bytes were held");
}

/// A page ends with the event that fills its bytes, and has one event if there is any.
pub(super) async fn a_page_is_bounded_in_events_and_bytes<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    // Encoded with its quotes each has the size that is given, of which the last has a key.
    let payload = |size: usize| "x".repeat(size - 2);
    let batch = [10, 20, 30, 10_000, 5].map(|size| (None, payload(size)));
    stream.publish_batch(&batch).await.unwrap();
    let key = "k".repeat(100);
    stream
        .publish_with_key(Some(&key), &payload(10))
        .await
        .unwrap();
    stream.publish(&payload(10)).await.unwrap();
    for (after, limit, bytes, last) in [
        (0, 10, 1, 1),
        (0, 10, 10, 1),
        (0, 10, 11, 2),
        (0, 10, 30, 2),
        (0, 10, 60, 3),
        (0, 10, 61, 4),
        (0, 2, 1_000_000, 2),
        (3, 10, 10_000, 4),
        (4, 10, 105, 6),
        (4, 10, 106, 6),
        (4, 10, 116, 7),
        (0, 100, i64::MAX, 7),
        (7, 10, 10, 7),
        (-5, 10, 10, 1),
    ] {
        let page = store.engine().read_page("stream", after, limit, bytes);
        let page = offsets(&page.await.unwrap());
        let expected: Vec<_> = (after.max(0) + 1..=last).collect();
        assert_eq!(
            page, expected,
            "{limit} events, {bytes} bytes after {after}"
        );
    }
    let none = store.engine().read_page("none", 0, 10, 10).await;
    assert!(none.unwrap().is_empty());
}

/// Consumers of one stream do not slow or move each other, and one that stands still holds
/// up nobody.
pub(super) async fn consumers_follow_at_their_own_pace<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 3).await;
    let mut still = stream.subscribe("still").await.unwrap();
    let mut fast = stream.subscribe("fast").await.unwrap();
    take(h, &mut still, 1).await;
    assert_eq!(numbers(&take(h, &mut fast, 3).await), [1, 2, 3]);
    fast.save_offset().await.unwrap();
    still.save_offset().await.unwrap();
    let batch: Vec<_> = (4..=2000).map(|n| (None, n)).collect();
    stream.publish_batch(&batch).await.unwrap();
    assert_eq!(take(h, &mut fast, 1997).await.last().unwrap().offset, 2000);
    assert_eq!(stream.get_offset("fast").await.unwrap(), 3);
    assert_eq!(stream.get_offset("still").await.unwrap(), 1);
    assert_eq!(numbers(&take(h, &mut still, 2).await), [2, 3]);
}

/// A subscription keeps its place when the stream is trimmed under it: below its place
/// nothing changes, above it goes on at the first event that is left.
pub(super) async fn a_subscription_outlives_a_trim<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 5).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    assert_eq!(numbers(&take(h, &mut events, 5).await), [1, 2, 3, 4, 5]);
    assert_eq!(stream.trim_to(4).await.unwrap(), 4);
    stream.publish(&6).await.unwrap();
    assert_eq!(numbers(&take(h, &mut events, 1).await), [6]);
    events.save_offset().await.unwrap();
    assert_eq!(stream.get_offset("consumer").await.unwrap(), 6);

    let mut late = stream.subscribe("late").await.unwrap();
    assert_eq!(numbers(&take(h, &mut late, 2).await), [5, 6]);
    never(h, late.recv()).await;
}

/// A subscription that stood before everything that a trim deleted goes on with what comes.
pub(super) async fn a_subscription_goes_on_after_a_full_trim<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 3).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    assert_eq!(stream.trim_to(i64::MAX).await.unwrap(), 3);
    never(h, events.recv()).await;
    stream.publish(&4).await.unwrap();
    let taken = take(h, &mut events, 1).await;
    assert_eq!((offsets(&taken), numbers(&taken)), (vec![4], vec![4]));
}

/// A subscription gets an event when its transaction commits, and never if it rolls back.
pub(super) async fn a_subscription_hears_committed_transactions_only<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut events = other
        .stream("stream")
        .unwrap()
        .subscribe("consumer")
        .await
        .unwrap();
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &1).await.unwrap();
    never(h, events.recv()).await;
    tx.rollback().await.unwrap();
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &2).await.unwrap();
    tx.publish_tx("stream", &3).await.unwrap();
    never(h, events.recv()).await;
    tx.commit().await.unwrap();
    let taken = take(h, &mut events, 2).await;
    assert_eq!((offsets(&taken), numbers(&taken)), (vec![1, 2], vec![2, 3]));
}

/// Dropping a subscription harms no other, and another of the same consumer may follow.
pub(super) async fn a_subscription_that_is_dropped_is_forgotten<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 2).await;
    let mut kept = stream.subscribe("kept").await.unwrap();
    for _ in 0..20 {
        let mut dropped = stream.subscribe("dropped").await.unwrap();
        assert_eq!(numbers(&take(h, &mut dropped, 1).await), [1]);
    }
    assert_eq!(numbers(&take(h, &mut kept, 2).await), [1, 2]);
    stream.publish(&3).await.unwrap();
    assert_eq!(numbers(&take(h, &mut kept, 1).await), [3]);
}

/// A `subscribe` that is dropped half-way takes nothing from a later one.
pub(super) async fn a_dropped_subscribe_harms_no_other<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    for (when, offset) in std::iter::zip(Dropped::points(), 1..) {
        drop(when.run(stream.subscribe("consumer")).await);
        let mut events = within(h, stream.subscribe("consumer")).await.unwrap();
        stream.publish(&offset).await.unwrap();
        assert_eq!(
            offsets(&take(h, &mut events, 1).await),
            [offset],
            "{when:?}"
        );
        events.save_offset().await.unwrap();
    }
}
