//! Streams: durable events in one order, for any number of consumers.

mod concurrent;
mod consumer;
mod read;
mod receiver;
mod subscribe;
mod trim;

use alkstore::Error;

use crate::Harness;
use crate::support::{Untouchable, numbers, offsets, read_all, refused};

use concurrent::*;
use consumer::*;
use read::*;
use receiver::*;
use subscribe::*;
use trim::*;

alkstore_macros::cases! {
    stream:
    offsets_count_from_one_in_each_stream,
    an_event_is_what_was_published,
    a_key_is_carried_and_nothing_more,
    an_empty_key_is_refused,
    order_is_by_offset_whatever_the_key,
    a_batch_gets_its_offsets_in_its_order,
    a_batch_is_published_whole_or_not_at_all,
    an_empty_batch_publishes_nothing,
    created_at_is_the_engines_clock,
    read_since_gives_what_is_greater,
    a_limit_that_is_not_positive_reads_nothing,
    every_offset_and_limit_has_a_meaning,
    a_long_stream_is_read_in_pages,
    an_unknown_stream_is_empty,
    read_from_consumer_starts_at_the_saved_offset,
    a_consumer_that_never_saved_is_at_zero,
    a_saved_offset_never_goes_back,
    a_save_that_is_not_positive_changes_nothing,
    a_save_beyond_the_head_is_kept,
    consumers_do_not_share_offsets,
    concurrent_saves_end_at_the_greatest,
    trim_deletes_up_to_and_including_its_horizon,
    a_trim_that_reaches_nothing_deletes_nothing,
    a_trim_beyond_the_head_deletes_what_is_there,
    a_trim_lets_others_pass_and_keeps_its_steps,
    a_trim_reaches_its_own_stream_only,
    offsets_are_not_used_again_after_a_full_trim,
    saved_offsets_outlive_a_trim,
    a_trim_wakes_nobody,
    processes_read_the_same_events,
    concurrent_publishers_leave_no_hole,
    rolled_back_publishers_leave_no_hole,
    concurrent_batches_stay_whole,
    an_event_that_commits_late_is_not_skipped,
    a_slow_transaction_hides_no_event_of_others,
    no_event_is_skipped_by_a_concurrent_reader,
    no_event_is_skipped_by_a_concurrent_subscriber,
    publishers_of_several_streams_do_not_block_for_ever,
    concurrent_trims_count_each_event_once,
    a_subscription_replays_what_was_there,
    a_subscription_starts_at_the_saved_offset,
    a_subscription_waits_for_what_comes,
    a_subscription_hears_every_process,
    a_subscription_misses_nothing_while_it_is_made,
    nothing_is_saved_by_itself,
    a_save_covers_what_was_yielded_and_not_what_was_fetched,
    a_save_before_any_event_does_nothing,
    a_receivers_save_never_goes_back,
    the_offset_is_that_of_the_last_event_yielded,
    try_recv_says_the_event_idle_and_closed,
    try_recv_leaves_no_event_behind_for_recv,
    a_dropped_recv_takes_no_event_with_it,
    dropped_reads_of_both_kinds_take_no_event_with_them,
    a_receiver_reads_back_without_moving,
    a_receiver_is_a_stream_of_events,
    a_slow_consumer_gets_every_event_in_order,
    large_events_come_in_order,
    a_subscription_holds_a_bounded_part_of_the_stream,
    a_page_is_bounded_in_events_and_bytes,
    consumers_follow_at_their_own_pace,
    a_subscription_outlives_a_trim,
    a_subscription_goes_on_after_a_full_trim,
    a_subscription_hears_committed_transactions_only,
    a_closed_subscription_ends_and_a_fresh_one_goes_on,
    a_subscription_that_is_dropped_is_forgotten,
    a_dropped_subscribe_harms_no_other,
    a_subscription_moves_between_tasks,
    a_lost_database_ends_its_subscriptions,
}

/// Offsets are 1, 2, 3 … in each stream by itself.
async fn offsets_count_from_one_in_each_stream<H: Harness>(h: &H) {
    let store = h.open().await;
    for expected in 1..=5 {
        for name in ["one", "other"] {
            assert_eq!(
                store.stream(name).unwrap().publish(&0).await.unwrap(),
                expected
            );
        }
    }
    for name in ["one", "other"] {
        assert_eq!(offsets(&read_all(&store, name).await), [1, 2, 3, 4, 5]);
    }
}

/// An event carries its offset, stream, key, payload and time, and no more.
async fn an_event_is_what_was_published<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.publish(&"plain").await.unwrap();
    stream
        .publish_with_key(Some("key"), &"keyed")
        .await
        .unwrap();
    let events = read_all(&store, "stream").await;
    let created_at = events[0].created_at;
    assert!(created_at > 0);
    let payload = br#""plain""#.to_vec();
    let expected = alkstore::StreamEvent::new("stream", 1, payload, created_at);
    assert_eq!(events[0], expected);
    assert_eq!(
        (events[1].offset, events[1].key.as_deref()),
        (2, Some("key"))
    );
    assert_eq!(events[1].payload, br#""keyed""#);
}

/// Keys come back exactly, equal ones are no conflict, and none is not an empty one.
async fn a_key_is_carried_and_nothing_more<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let long = "k".repeat(100_000);
    let keys = [
        None,
        Some("k"),
        Some("k"),
        Some(" K'\"\n%🦀"),
        Some(" "),
        Some("\n"),
        Some("__alkstore_"),
        Some(long.as_str()),
        None,
    ];
    for key in keys {
        stream.publish_with_key(key, &0).await.unwrap();
    }
    let events = read_all(&store, "stream").await;
    let read: Vec<_> = events.iter().map(|event| event.key.as_deref()).collect();
    assert_eq!(read, keys);
}

/// A key that is there must not be empty or have a NUL, in any form of publish, and nothing is
/// published.
async fn an_empty_key_is_refused<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    for key in ["", "\0", "a\0b"] {
        let batch = [(None, Untouchable), (Some(key), Untouchable)];
        let mut tx = store.begin_tx().await.unwrap();
        let errors = [
            refused(stream.publish_with_key(Some(key), &Untouchable)),
            refused(stream.publish_batch(&batch)),
            refused(tx.publish_with_key_tx("stream", Some(key), &Untouchable)),
        ];
        tx.commit().await.unwrap();
        for error in errors {
            assert!(matches!(error, Error::InvalidName { .. }), "{error:?}");
        }
    }
    assert!(read_all(&store, "stream").await.is_empty());
}

/// Keyed and unkeyed events are read in the one order in which they were published.
async fn order_is_by_offset_whatever_the_key<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let keys = [
        Some("b"),
        None,
        Some("a"),
        Some("b"),
        None,
        Some("c"),
        Some("a"),
    ];
    for (payload, key) in std::iter::zip(0.., keys) {
        assert_eq!(
            stream.publish_with_key(key, &payload).await.unwrap(),
            payload + 1
        );
    }
    let events = read_all(&store, "stream").await;
    assert_eq!(numbers(&events), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(offsets(&events), [1, 2, 3, 4, 5, 6, 7]);
}

/// A batch returns an offset for each event, in the order given, next to each other.
async fn a_batch_gets_its_offsets_in_its_order<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.publish(&0).await.unwrap();
    let batch: Vec<_> = (1..=40)
        .map(|n| ((n % 2 == 0).then_some("even"), n))
        .collect();
    let given = stream.publish_batch(&batch).await.unwrap();
    assert_eq!(given, (2..=41).collect::<Vec<_>>());
    let events = stream.read_since(1, 100).await.unwrap();
    assert_eq!(
        (offsets(&events), numbers(&events)),
        (given, (1..=40).collect())
    );
    assert!(
        events
            .iter()
            .all(|event| event.key.is_some() == (event.offset % 2 == 1))
    );
    let created = events[0].created_at;
    assert!(
        events.iter().all(|event| event.created_at == created),
        "one commit, one instant"
    );
}

/// A batch with one event that is refused publishes none, and uses up no offset.
async fn a_batch_is_published_whole_or_not_at_all<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let batch = [(None, 1), (Some("key"), 2), (Some("no\0key"), 3)];
    let error = refused(stream.publish_batch(&batch));
    assert!(matches!(error, Error::InvalidName { name, .. } if name == "no\0key"));
    assert!(read_all(&store, "stream").await.is_empty());
    assert_eq!(stream.publish_batch(&batch[..2]).await.unwrap(), [1, 2]);
}

/// A batch of no events is no error and no event.
async fn an_empty_batch_publishes_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    assert_eq!(stream.publish_batch::<i64>(&[]).await.unwrap(), [0_i64; 0]);
    assert_eq!(stream.publish(&1).await.unwrap(), 1);
}

/// `created_at` is what the engine's clock showed, in and out of a transaction.
async fn created_at_is_the_engines_clock<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.publish(&1).await.unwrap();
    h.advance(5000);
    stream.publish(&2).await.unwrap();
    h.advance(-2000);
    store
        .with_tx(async |tx| tx.publish_tx("stream", &3).await)
        .await
        .unwrap();
    let events = read_all(&store, "stream").await;
    assert_eq!(
        offsets(&events),
        [1, 2, 3],
        "order is by offset, not by time"
    );
    let since_first = |n: usize| events[n].created_at - events[0].created_at;
    assert!((5000..5060).contains(&since_first(1)), "{}", since_first(1));
    assert!((3000..3060).contains(&since_first(2)), "{}", since_first(2));
}
