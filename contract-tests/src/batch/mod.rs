//! Batching: calls that share a commit behave as if each were alone.

mod abandoned;
mod runtimes;
mod wait;

use std::time::Duration;

use alkstore::{Engine, EnqueueOpts, Queue, QueueOpts, Store};
use tokio::runtime::{Builder, Runtime};
use tokio::task::spawn_blocking;

use abandoned::*;
use runtimes::*;
use wait::*;

alkstore_macros::cases! {
    batch:
    a_runtime_that_stops_strands_no_call,
    calls_on_many_short_lived_runtimes_end,
    a_runtime_shut_down_in_the_background_harms_no_other,
    a_transaction_dropped_on_a_runtime_that_stops_frees_its_rows,
    a_transaction_commits_on_another_runtime,

    a_claim_dropped_while_it_waits_takes_no_job,
    a_claim_dropped_on_its_way_gives_its_job_back,
    claims_that_time_out_give_their_jobs_back,
    a_call_that_is_not_polled_holds_up_nobody,

    an_end_that_waits_for_its_row_holds_up_no_other,
    many_large_payloads_at_once_are_all_stored,
    each_call_ends_within_its_own_limit,
    close_ends_calls_that_wait,
}

/// An upper limit for what takes some tens of milliseconds, on a busy machine too.
const SOON: Duration = Duration::from_secs(1);

/// A runtime that runs only while it is blocked on.
fn current_thread() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("the system has resources to spare")
}

/// Runs `body` on a thread of its own, where it may make, drive and drop runtimes.
async fn on_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(body)
        .await
        .expect("the thread does not panic")
}

fn work<E: Engine>(store: &Store<E>, opts: QueueOpts) -> Queue<E> {
    store.queue("work", opts).expect("the name is valid")
}

/// Enqueues so many jobs that cannot be claimed twice, and returns their ids.
async fn fill<E: Engine>(store: &Store<E>, jobs: usize) -> Vec<i64> {
    let queue = work(store, QueueOpts::default().max_attempts(1));
    let payloads = vec![(); jobs];
    let ids = queue.enqueue_batch(&payloads, EnqueueOpts::default()).await;
    ids.expect("enqueuing works")
}
