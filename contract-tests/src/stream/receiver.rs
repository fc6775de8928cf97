//! What a subscription's receiver yields, saves and says.

use alkstore::Error;
use futures::StreamExt;

use crate::Harness;
use crate::support::{Dropped, error_of, never, number, numbers, offsets, says_closed, within};

use super::subscribe::{filled, take};

/// Receiving saves nothing: who does not save gets everything again.
pub(super) async fn nothing_is_saved_by_itself<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 3).await;
    for _ in 0..2 {
        let mut events = stream.subscribe("consumer").await.unwrap();
        assert_eq!(numbers(&take(h, &mut events, 3).await), [1, 2, 3]);
        drop(events);
        assert_eq!(stream.get_offset("consumer").await.unwrap(), 0);
    }
}

/// A save covers the events up to the last one yielded, however many were fetched with it.
pub(super) async fn a_save_covers_what_was_yielded_and_not_what_was_fetched<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 20).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    for yielded in [1, 2, 7] {
        let missing = yielded - events.offset();
        take(h, &mut events, usize::try_from(missing).unwrap()).await;
        assert!(events.save_offset().await.unwrap());
        assert!(!events.save_offset().await.unwrap(), "it is saved already");
        assert_eq!(stream.get_offset("consumer").await.unwrap(), yielded);
    }
    drop(events);
    let mut events = stream.subscribe("consumer").await.unwrap();
    assert_eq!(numbers(&take(h, &mut events, 1).await), [8]);
}

/// A save before any event was yielded does nothing, also after a look and with an offset
/// saved before.
pub(super) async fn a_save_before_any_event_does_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 3).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    assert!(!events.save_offset().await.unwrap());
    assert_eq!(stream.get_offset("consumer").await.unwrap(), 0);
    stream.save_offset("other", 3).await.unwrap();
    let mut events = stream.subscribe("other").await.unwrap();
    assert_eq!(events.try_recv().await.unwrap(), None);
    events.save_offset().await.unwrap();
    assert_eq!(stream.get_offset("other").await.unwrap(), 3);
    assert_eq!(events.offset(), 0);
}

/// A receiver that is behind what its consumer saved elsewhere moves nothing back.
pub(super) async fn a_receivers_save_never_goes_back<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 3).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    take(h, &mut events, 2).await;
    stream.save_offset("consumer", 3).await.unwrap();
    assert!(!events.save_offset().await.unwrap());
    assert_eq!(stream.get_offset("consumer").await.unwrap(), 3);
    // The receiver's own place is not the saved one.
    assert_eq!(numbers(&take(h, &mut events, 1).await), [3]);
}

/// `offset()` is 0 before the first event, then the offset of the last one yielded.
pub(super) async fn the_offset_is_that_of_the_last_event_yielded<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 3).await;
    stream.save_offset("consumer", 1).await.unwrap();
    let mut events = stream.subscribe("consumer").await.unwrap();
    assert_eq!(events.offset(), 0);
    take(h, &mut events, 1).await;
    assert_eq!(events.offset(), 2);
    assert_eq!(events.try_recv().await.unwrap().unwrap().offset, 3);
    assert_eq!(events.offset(), 3);
    assert_eq!(events.try_recv().await.unwrap(), None);
    assert_eq!(events.offset(), 3);
    store.close().await;
    assert_eq!(events.offset(), 3);
}

/// `try_recv`: the next event, nothing at the tail, `Closed` for good.
pub(super) async fn try_recv_says_the_event_idle_and_closed<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let stream = filled(&store, 2).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    for payload in [1, 2] {
        assert_eq!(number(&events.try_recv().await.unwrap().unwrap()), payload);
    }
    assert_eq!(events.try_recv().await.unwrap(), None);
    // What is committed is there at once, with no wake to wait for.
    other.stream("stream").unwrap().publish(&3).await.unwrap();
    assert_eq!(number(&events.try_recv().await.unwrap().unwrap()), 3);
    assert_eq!(events.try_recv().await.unwrap(), None);
    store.close().await;
    for _ in 0..2 {
        assert!(matches!(events.try_recv().await, Err(Error::Closed)));
    }
}

/// `recv` gets what comes, whatever `try_recv` looked at before: a wake that `try_recv` saw
/// while it still had events at hand counts.
pub(super) async fn try_recv_leaves_no_event_behind_for_recv<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 2).await;
    let mut proof = stream.listen().await.unwrap();
    let mut events = stream.subscribe("consumer").await.unwrap();
    // The second event was fetched with the first.
    assert_eq!(numbers(&take(h, &mut events, 1).await), [1]);
    stream.publish(&3).await.unwrap();
    within(h, proof.recv()).await.unwrap();
    assert_eq!(number(&events.try_recv().await.unwrap().unwrap()), 2);
    assert_eq!(numbers(&take(h, &mut events, 1).await), [3]);
    assert_eq!(events.try_recv().await.unwrap(), None);
    stream.publish(&4).await.unwrap();
    assert_eq!(numbers(&take(h, &mut events, 1).await), [4]);
}

/// A `recv` that is dropped takes no event with it and yields none twice.
pub(super) async fn a_dropped_recv_takes_no_event_with_it<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 1).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    let mut taken = Vec::new();
    for (when, next) in std::iter::zip(Dropped::points(), 2..) {
        if let Some(event) = within(h, when.run(events.recv())).await {
            taken.push(event.unwrap().unwrap());
        }
        stream.publish(&next).await.unwrap();
    }
    let all = 1 + Dropped::points().count();
    taken.extend(take(h, &mut events, all - taken.len()).await);
    assert_eq!(offsets(&taken), (1..).take(all).collect::<Vec<_>>());
    never(h, events.recv()).await;
}

/// The same with both kinds of reads in turns: what one left on its way the other finishes.
pub(super) async fn dropped_reads_of_both_kinds_take_no_event_with_them<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 1).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    let mut taken = Vec::new();
    let mut published = 1;
    for polls in 0..16 {
        // A read that was begun before the publish must not hide it from what follows.
        let when = Dropped::AfterPolls(polls / 2 % 4);
        if polls % 2 == 0 {
            // At the tail nothing wakes it, so that it may never be polled again.
            let begun = tokio::time::timeout(h.quiet(), when.run(events.recv())).await;
            taken.extend(begun.ok().flatten().map(|event| event.unwrap().unwrap()));
        } else if let Some(event) = when.run(events.try_recv()).await {
            taken.extend(event.unwrap());
        }
        published += 1;
        stream.publish(&published).await.unwrap();
        if polls >= 8
            && let Some(event) = Dropped::AfterPolls(polls - 8).run(events.try_recv()).await
        {
            taken.extend(event.unwrap());
        }
        let missing = usize::try_from(published).unwrap() - taken.len();
        taken.extend(take(h, &mut events, missing).await);
    }
    assert_eq!(offsets(&taken), (1..=published).collect::<Vec<_>>());
}

/// A receiver's `read_since` reads anywhere in the stream and leaves its place.
pub(super) async fn a_receiver_reads_back_without_moving<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 4).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    take(h, &mut events, 2).await;
    assert_eq!(
        offsets(&events.read_since(0, 10).await.unwrap()),
        [1, 2, 3, 4]
    );
    assert_eq!(offsets(&events.read_since(3, 10).await.unwrap()), [4]);
    assert_eq!(offsets(&events.read_since(0, 1).await.unwrap()), [1]);
    assert_eq!(events.offset(), 2);
    assert_eq!(numbers(&take(h, &mut events, 2).await), [3, 4]);
}

/// As a `futures::Stream` a receiver yields what `recv` returns and ends when it is closed.
pub(super) async fn a_receiver_is_a_stream_of_events<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 2).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    for payload in 1..=3 {
        if payload == 3 {
            stream.publish(&payload).await.unwrap();
        }
        let event = within(h, events.next()).await.unwrap().unwrap();
        assert_eq!((number(&event), events.offset()), (payload, payload));
    }
    events.save_offset().await.unwrap();
    store.close().await;
    assert!(within(h, events.next()).await.is_none());
}

/// When the store is closed a subscription ends, with events at hand or waiting; a fresh one
/// goes on from the saved offset.
pub(super) async fn a_closed_subscription_ends_and_a_fresh_one_goes_on<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 5).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    let mut waiting = stream.subscribe("waiting").await.unwrap();
    take(h, &mut waiting, 5).await;
    let wait = tokio::spawn(async move { waiting.recv().await.is_none() });
    take(h, &mut events, 2).await;
    events.save_offset().await.unwrap();
    store.close().await;
    assert!(within(h, wait).await.unwrap());
    for _ in 0..2 {
        assert!(within(h, events.recv()).await.is_none());
    }
    assert!(says_closed(&error_of(events.save_offset().await)));
    assert!(says_closed(&error_of(events.read_since(0, 1).await)));

    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.publish(&6).await.unwrap();
    let mut events = stream.subscribe("consumer").await.unwrap();
    assert_eq!(numbers(&take(h, &mut events, 4).await), [3, 4, 5, 6]);
}

/// A subscription is read in one task after another.
pub(super) async fn a_subscription_moves_between_tasks<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 1).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    take(h, &mut events, 1).await;
    never(h, events.recv()).await;
    let reading = tokio::spawn(async move { (events.recv().await.unwrap().unwrap(), events) });
    stream.publish(&2).await.unwrap();
    let (event, mut events) = within(h, reading).await.unwrap();
    assert_eq!(number(&event), 2);
    stream.publish(&3).await.unwrap();
    assert_eq!(numbers(&take(h, &mut events, 1).await), [3]);
}

/// Where the database can be lost for good, its loss ends a subscription, which reports at
/// most database errors before; elsewhere it lives on.
pub(super) async fn a_lost_database_ends_its_subscriptions<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = filled(&store, 1).await;
    let mut events = stream.subscribe("consumer").await.unwrap();
    take(h, &mut events, 1).await;
    if h.remove_source().await {
        let ended = async {
            while let Some(event) = events.recv().await {
                assert!(matches!(event, Err(Error::Database(_))), "{event:?}");
            }
        };
        within(h, ended).await;
        assert!(matches!(events.try_recv().await, Err(Error::Closed)));
    } else {
        stream.publish(&2).await.unwrap();
        assert_eq!(numbers(&take(h, &mut events, 1).await), [2]);
    }
}
