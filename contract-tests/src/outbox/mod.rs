//! Outboxes.

mod apart;
mod deliver;
mod fail;
mod hold;

use std::convert::Infallible;

use alkstore::{Delivery, Engine, EnqueueOpts, Job, Outbox, Store};

use apart::*;
use deliver::*;
use fail::*;
use hold::*;

alkstore_macros::cases! {
    outbox:
    an_empty_outbox_delivers_nothing,
    a_delivery_that_succeeds_ends_the_message,
    a_delivery_that_fails_is_tried_again_later,
    a_panic_is_a_failed_delivery,
    an_error_that_cannot_be_shown_is_a_failed_delivery,
    a_panic_whose_payload_panics_is_a_failed_delivery,
    a_message_dies_after_five_attempts,
    messages_go_in_the_order_of_a_queue,
    a_delivery_can_hold_its_claim,
    a_slow_delivery_is_repeated_and_its_end_does_not_count,
    a_dropped_delivery_is_repeated_after_its_lease,
    a_worker_needs_a_name,
    concurrent_runners_deliver_each_message_once,
    outbox_enqueue_tx_commits_with_the_transaction,
    outboxes_and_queues_of_one_name_are_apart,
    only_the_outbox_reaches_its_messages,
    an_outbox_hears_of_its_messages,
    a_transaction_reads_its_own_messages,
    an_outbox_shows_its_own_name,
}

fn outbox<E: Engine>(store: &Store<E>) -> Outbox<E> {
    store.outbox("post").unwrap()
}

async fn job<E: Engine>(outbox: &Outbox<E>, id: i64) -> Job {
    outbox
        .get_job(id)
        .await
        .unwrap()
        .expect("the message exists")
}

/// The delivery of a message that must not be there.
async fn unreachable_delivery<E: Engine>(message: Delivery<E>) -> Result<(), Infallible> {
    panic!("this must not be delivered: {:?}", *message);
}

#[track_caller]
fn assert_outbox_stamps(job: &Job) {
    assert_eq!(
        (
            job.visibility_timeout_s,
            job.max_attempts,
            job.backoff_base_s
        ),
        (60, 5, 5)
    );
    assert_eq!(job.dead_letter_retention_s, None);
}
