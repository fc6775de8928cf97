//! Queues.

mod cancel;
mod claim;
mod dead;
mod enqueue;
mod expiry;
mod handle;
mod lease;
mod options;
mod race;
mod retry;
mod wake;

use std::time::Duration;

use crate::support::job_of;
use alkstore::{Engine, EnqueueOpts, Job, JobHandle, JobState, Queue, QueueOpts, Store, Swept};

use cancel::*;
use claim::*;
use dead::*;
use enqueue::*;
use expiry::*;
use handle::*;
use lease::*;
use options::*;
use race::*;
use retry::*;
use wake::*;

alkstore_macros::cases! {
    queue:
    a_job_lives_from_enqueue_to_ack,
    ids_grow_and_are_never_used_again,
    a_batch_keeps_the_order_of_its_payloads,
    a_batch_is_enqueued_whole_or_not_at_all,
    an_empty_batch_enqueues_nothing,
    delay_beats_run_at_beats_now,
    enqueue_times_saturate,
    a_job_is_ready_from_its_second_on,
    jobs_survive_a_restart,
    enqueue_tx_stamps_the_plain_defaults,
    enqueue_tx_through_a_handle_stamps_its_options,

    claims_go_by_priority_then_run_at_then_id,
    a_claim_takes_at_most_n,
    an_extent_below_one_claims_nothing,
    worker_names_are_local_names,
    any_integer_is_a_priority,
    jobs_that_are_not_ready_do_not_block,
    a_queue_hands_out_its_own_jobs,
    jobs_of_one_batch_end_each_in_its_own_way,
    an_engine_serves_requests_of_many_queues_at_once,

    a_job_goes_to_one_worker,
    a_lapsed_claim_goes_to_one_worker,
    an_ack_or_a_reclaim_wins_never_both,

    a_claim_holds_through_its_deadline,
    a_claim_lapses_after_its_deadline,
    nothing_happens_to_a_lapsed_claim_by_itself,
    each_reclaim_uses_up_an_attempt,
    an_endless_claim_never_lapses,
    a_claim_looks_at_1000_lapsed_most_overdue_first,
    a_claim_looks_at_1000_lapsed_on_their_last_attempt,

    a_lapsed_claim_cannot_act,
    a_claim_taken_over_cannot_act,
    a_claim_taken_over_under_the_same_worker_name_cannot_act,
    a_claim_of_a_cancelled_job_cannot_act,
    a_claim_that_was_acked_cannot_act,
    a_claim_of_a_dead_job_cannot_act,
    a_heartbeat_counts_from_now,
    a_heartbeat_below_one_second_is_refused,
    an_endless_heartbeat_saturates,
    ack_batch_judges_each_claim_by_itself,
    ack_batch_leaves_other_queues_alone,
    ack_batch_counts_a_claim_once,

    a_retry_spreads_over_the_whole_range,
    the_retry_curve_doubles_up_to_an_hour,
    a_base_of_zero_retries_at_once,
    a_given_delay_is_taken_as_it_is,
    a_retry_shows_its_error_and_frees_the_job,
    a_retry_without_attempts_left_is_dead,
    any_error_text_is_kept,

    a_failed_job_is_dead_at_once,
    dead_jobs_are_left_alone_and_kept_for_ever,
    a_dead_job_is_purged_after_its_retention,
    an_endless_retention_saturates,
    a_retention_is_of_dead_jobs_only,
    a_retention_of_zero_ends_with_the_sweep_that_finds_it,

    a_job_expires_at_its_second,
    a_claim_ends_expired_jobs,
    a_sweep_ends_expired_jobs_and_counts_them,
    a_sweep_is_of_one_queue,
    an_expired_job_can_be_acked_until_it_is_swept,
    a_lapsed_and_expired_job_is_expired,
    a_claim_with_too_few_ends_200_expired_most_overdue_first,
    a_claim_with_enough_ends_few_expired_only,
    a_claim_finds_its_jobs_among_many_that_are_not_ready,
    a_sweep_takes_everything_at_once,
    a_sweep_lets_others_pass_and_keeps_its_steps,

    cancel_deletes_a_live_job_whoever_holds_it,
    cancel_finds_nothing_elsewhere,
    get_job_is_of_one_queue,

    options_are_stamped_when_a_job_is_enqueued,
    max_attempts_can_be_set_for_one_job,
    senseless_queue_options_are_refused,
    senseless_job_options_are_refused_and_store_nothing,

    an_enqueue_wakes_its_queue_in_every_process,
    a_batch_wakes_its_queue,
    a_queue_hears_nothing_of_others,
    enqueue_tx_wakes_at_the_commit,
    a_job_that_is_ready_again_wakes_its_queue,
}

/// A queue with the plain options.
fn plain<E: Engine>(store: &Store<E>) -> Queue<E> {
    with_opts(store, QueueOpts::default())
}

/// The same queue through a handle with other options.
fn with_opts<E: Engine>(store: &Store<E>, opts: QueueOpts) -> Queue<E> {
    store.queue("work", opts).unwrap()
}

/// Options of which one field is changed.
fn changed<O: Default>(change: impl FnOnce(&mut O)) -> O {
    let mut opts = O::default();
    change(&mut opts);
    opts
}

/// Options with claims that hold so long.
fn visible_after(seconds: u64) -> QueueOpts {
    QueueOpts::default().visibility_timeout(Duration::from_secs(seconds))
}

/// The options of a job that expires after so many seconds.
fn expiring(seconds: i64) -> EnqueueOpts {
    changed(|opts: &mut EnqueueOpts| opts.expires = Some(seconds))
}

/// Enqueues a job.
async fn put<E: Engine>(queue: &Queue<E>, opts: EnqueueOpts) -> i64 {
    queue.enqueue(&"payload", opts).await.unwrap()
}

/// Enqueues so many jobs and returns their ids.
async fn put_many<E: Engine>(queue: &Queue<E>, count: usize, opts: EnqueueOpts) -> Vec<i64> {
    queue.enqueue_batch(&vec![(); count], opts).await.unwrap()
}

/// Claims a job that must be ready.
async fn take<E: Engine>(queue: &Queue<E>, worker: &str) -> JobHandle<E> {
    queue
        .claim_one(worker)
        .await
        .unwrap()
        .expect("a job is ready")
}

/// Claims exactly `count` jobs.
async fn take_many<E: Engine>(queue: &Queue<E>, worker: &str, count: usize) -> Vec<JobHandle<E>> {
    let claims = queue
        .claim_batch(worker, count.try_into().unwrap())
        .await
        .unwrap();
    assert_eq!(claims.len(), count, "so many jobs are ready");
    claims
}

/// Asserts that no job is ready.
#[track_caller]
fn none_ready<E: Engine>(queue: &Queue<E>) -> impl Future<Output = ()> + Send + use<'_, E> {
    let caller = std::panic::Location::caller();
    async move {
        let claimed = queue.claim_one("nobody").await.unwrap();
        let id = claimed.map(|job| job.id);
        assert_eq!(id, None, "{caller}: no job is ready");
    }
}

/// A job that must exist, as any process sees it now.
async fn job<E: Engine>(queue: &Queue<E>, id: i64) -> Job {
    queue.get_job(id).await.unwrap().expect("the job exists")
}

/// The jobs of these ids as any process sees them now.
async fn jobs<E: Engine>(queue: &Queue<E>, ids: &[i64]) -> Vec<Option<Job>> {
    let mut jobs = Vec::with_capacity(ids.len());
    for id in ids {
        jobs.push(queue.get_job(*id).await.unwrap());
    }
    jobs
}

/// The ids of claims in their order.
fn ids<E: Engine>(claims: &[JobHandle<E>]) -> Vec<i64> {
    claims.iter().map(|claim| claim.id).collect()
}

/// Asserts that a job is dead, of this, and otherwise as it was.
#[track_caller]
fn assert_died(dead: &Job, before: &Job, error: &str) {
    let expected = job_of! {
        state: JobState::Dead,
        last_error: Some(error.to_owned()),
        died_at: dead.died_at,
        // No claim is left whose deadline would mean anything.
        claim_expires_at: None,
        ..before.clone()
    };
    assert_eq!(*dead, expected);
    assert!(dead.died_at.is_some(), "a dead job says when it died");
}
