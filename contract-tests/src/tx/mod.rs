//! Transactions: coordination and business writes commit together or not at all.

mod cancel;
mod effects;
mod joined;
mod outcome;
mod witness;
mod write;

use alkstore::{EnqueueOpts, JobState, QueueOpts};

use crate::Harness;
use crate::support::{error_of, find_job, numbers, offsets, read_all, within};

use cancel::*;
use effects::*;
use joined::*;
use outcome::*;
use write::*;

alkstore_macros::cases! {
    tx:
    commit_keeps_everything,
    rollback_leaves_nothing,
    drop_leaves_nothing,
    an_aborted_task_leaves_nothing,
    a_panic_leaves_nothing,
    with_tx_commits_what_returns_ok,
    with_tx_rolls_back_what_returns_an_error,
    with_tx_rolls_back_what_panics,
    with_tx_rolls_back_what_is_dropped,
    with_tx_returns_the_callers_own_error,
    a_failed_business_write_takes_everything_with_it,
    an_empty_transaction_ends_either_way,
    abandoned_transactions_hold_nothing_back,
    a_transaction_moves_between_tasks,
    concurrent_transactions_all_commit,
    a_transaction_reads_its_own_writes,
    others_see_nothing_before_the_commit,
    nothing_read_in_a_transaction_outlives_its_rollback,
    transaction_reads_have_the_limits_of_plain_reads,
    jobs_of_a_transaction_carry_the_plain_defaults,
    messages_of_a_transaction_carry_the_outbox_defaults,
    jobs_of_a_transaction_take_their_options,
    job_options_are_checked_in_a_transaction,
    offsets_are_dense_across_transactions,
    saved_offsets_never_go_back_in_a_transaction,
    effects_are_exactly_once_with_the_saved_offset,
    rival_consumers_have_their_effects_once,
    instances_that_read_in_a_transaction_have_each_effect_once,
    instances_that_subscribe_have_each_effect_once,
    a_consumer_read_in_a_transaction_is_held_until_its_end,
    an_ack_commits_with_the_effects,
    an_ack_that_rolls_back_keeps_the_claim,
    an_ack_of_a_lapsed_claim_is_refused,
    an_ack_of_a_job_that_another_holds_is_refused,
    an_ack_lands_once,
    a_plain_write_beside_a_held_transaction_ends,
    a_plain_read_beside_a_held_transaction_works,
    an_applications_commit_keeps_everything,
    an_applications_rollback_leaves_nothing,
    an_applications_error_leaves_nothing,
    an_applications_transaction_reads_its_own_writes,
    an_applications_transaction_acks_a_claim,
    an_application_joins_its_transaction_more_than_once,
    a_drivers_own_transaction_is_joined,
    a_foreign_connection_is_an_error,
    a_dropped_begin_leaves_no_transaction_open,
    a_dropped_operation_leaves_all_or_nothing,
    a_dropped_read_leaves_all_or_nothing,
    a_dropped_commit_leaves_all_or_nothing,
    a_dropped_rollback_rolls_back,
    a_dropped_with_tx_leaves_all_or_nothing,
    a_dropped_operation_leaves_an_applications_rollback_whole,
    a_dropped_plain_write_is_whole,
}

/// Reads in a transaction see what it wrote.
async fn a_transaction_reads_its_own_writes<H: Harness>(h: &H) {
    let store = h.open().await;
    store.stream("stream").unwrap().publish(&1).await.unwrap();
    let mut tx = store.begin_tx().await.unwrap();

    let id = tx
        .enqueue_tx("queue", EnqueueOpts::default(), &7)
        .await
        .unwrap();
    let job = tx.get_job_tx("queue", id).await.unwrap().unwrap();
    assert_eq!(
        (job.id, job.state, job.attempts),
        (id, JobState::Pending, 0)
    );
    assert_eq!(tx.get_job_tx("another", id).await.unwrap(), None);

    assert_eq!(tx.publish_tx("stream", &2).await.unwrap(), 2);
    assert_eq!(
        tx.publish_with_key_tx("stream", Some("key"), &3)
            .await
            .unwrap(),
        3
    );
    let events = tx.read_since_tx("stream", 0, 10).await.unwrap();
    assert_eq!(
        (numbers(&events), offsets(&events)),
        (vec![1, 2, 3], vec![1, 2, 3])
    );
    assert_eq!(
        (&events[1].key, events[2].key.as_deref()),
        (&None, Some("key"))
    );

    assert_eq!(tx.get_offset_tx("stream", "consumer").await.unwrap(), 0);
    tx.save_offset_tx("stream", "consumer", 2).await.unwrap();
    assert_eq!(tx.get_offset_tx("stream", "consumer").await.unwrap(), 2);
    let events = tx
        .read_from_consumer_tx("stream", "consumer", 10)
        .await
        .unwrap();
    assert_eq!(offsets(&events), [3]);

    assert_eq!(H::count_rows(tx.connection()).await.unwrap(), 0);
    H::insert_row(tx.connection(), "row").await.unwrap();
    assert_eq!(H::count_rows(tx.connection()).await.unwrap(), 1);
    tx.rollback().await.unwrap();
}

/// Neither another process nor the store's own plain reads see anything before the commit.
async fn others_see_nothing_before_the_commit<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut tx = store.begin_tx().await.unwrap();
    let id = tx
        .enqueue_tx("queue", EnqueueOpts::default(), &1)
        .await
        .unwrap();
    tx.publish_tx("stream", &1).await.unwrap();
    tx.save_offset_tx("stream", "consumer", 1).await.unwrap();
    for reader in [&store, &other] {
        assert_eq!(find_job(reader, "queue", id).await, None);
        assert!(read_all(reader, "stream").await.is_empty());
        let stream = reader.stream("stream").unwrap();
        assert_eq!(stream.get_offset("consumer").await.unwrap(), 0);
    }
    tx.commit().await.unwrap();
    for reader in [&store, &other] {
        assert!(find_job(reader, "queue", id).await.is_some());
        assert_eq!(numbers(&read_all(reader, "stream").await), [1]);
        let stream = reader.stream("stream").unwrap();
        assert_eq!(stream.get_offset("consumer").await.unwrap(), 1);
    }
}

/// What a transaction read of its own writes is gone after the rollback, for others and for
/// the next transaction.
async fn nothing_read_in_a_transaction_outlives_its_rollback<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    let id = tx
        .enqueue_tx("queue", EnqueueOpts::default(), &1)
        .await
        .unwrap();
    tx.publish_tx("stream", &1).await.unwrap();
    tx.save_offset_tx("stream", "consumer", 1).await.unwrap();
    assert!(tx.get_job_tx("queue", id).await.unwrap().is_some());
    tx.rollback().await.unwrap();
    let mut tx = store.begin_tx().await.unwrap();
    assert_eq!(tx.get_job_tx("queue", id).await.unwrap(), None);
    assert!(tx.read_since_tx("stream", 0, 10).await.unwrap().is_empty());
    assert_eq!(tx.get_offset_tx("stream", "consumer").await.unwrap(), 0);
    tx.rollback().await.unwrap();
}

/// Limits, offsets and absent consumers mean in a transaction what they mean outside.
async fn transaction_reads_have_the_limits_of_plain_reads<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    for payload in 1..=5 {
        tx.publish_tx("stream", &payload).await.unwrap();
    }
    for limit in [0, -1, i64::MIN] {
        assert!(
            tx.read_since_tx("stream", 0, limit)
                .await
                .unwrap()
                .is_empty()
        );
        let events = tx
            .read_from_consumer_tx("stream", "consumer", limit)
            .await
            .unwrap();
        assert!(events.is_empty());
    }
    let read = async |tx: &mut alkstore::Tx<_>, offset, limit| {
        offsets(&tx.read_since_tx("stream", offset, limit).await.unwrap())
    };
    assert_eq!(read(&mut tx, 0, 2).await, [1, 2]);
    assert_eq!(read(&mut tx, 3, i64::MAX).await, [4, 5]);
    assert_eq!(read(&mut tx, i64::MIN, 1).await, [1]);
    assert_eq!(read(&mut tx, i64::MAX, 1).await, [0_i64; 0]);
    let events = tx
        .read_from_consumer_tx("stream", "unknown", i64::MAX)
        .await
        .unwrap();
    assert_eq!(offsets(&events), [1, 2, 3, 4, 5]);
    assert_eq!(tx.get_job_tx("queue", i64::MAX).await.unwrap(), None);
    assert_eq!(tx.get_job_tx("queue", -1).await.unwrap(), None);
    tx.commit().await.unwrap();
}

/// A plain write in a task that holds a transaction ends: done where writers do not wait for
/// each other, else in a transient error. The transaction is none the worse.
async fn a_plain_write_beside_a_held_transaction_ends<H: Harness>(h: &H) {
    let store = h.open_impatient().await;
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &1).await.unwrap();
    let other = store.stream("other").unwrap();
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    let published = within(h, other.publish(&1)).await;
    let enqueued = within(h, queue.enqueue(&1, EnqueueOpts::default())).await;
    let began = within(h, store.begin_tx()).await;
    if h.concurrent_writers() {
        assert_eq!(published.unwrap(), 1);
        assert!(enqueued.is_ok());
        assert!(began.is_ok());
    } else {
        for error in [error_of(published), error_of(enqueued), error_of(began)] {
            assert!(error.is_transient(), "trying again cannot help: {error:?}");
        }
    }
    assert_eq!(tx.publish_tx("stream", &2).await.unwrap(), 2);
    tx.commit().await.unwrap();
    assert_eq!(numbers(&read_all(&store, "stream").await), [1, 2]);
    let next = if h.concurrent_writers() { 2 } else { 1 };
    assert_eq!(other.publish(&2).await.unwrap(), next);
}

/// A plain read in a task that holds a transaction answers at once.
async fn a_plain_read_beside_a_held_transaction_works<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.publish(&1).await.unwrap();
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &2).await.unwrap();
    let events = within(h, stream.read_since(0, 10)).await.unwrap();
    assert_eq!(numbers(&events), [1]);
    assert_eq!(within(h, stream.get_offset("consumer")).await.unwrap(), 0);
    tx.commit().await.unwrap();
}
