//! Schedules and who runs them.

mod clock;
mod fire;
mod lead;
mod register;
mod stop;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alkstore::{Engine, Job, Queue, QueueOpts, Result, Schedule, ScheduleOpts, StopToken, Store};
use tokio::task::JoinHandle;

use crate::Harness;
use crate::support::within;

use clock::*;
use fire::*;
use lead::*;
use register::*;
use stop::*;

alkstore_macros::cases! {
    scheduler:
    specs_are_every_so_many_units,
    anything_else_is_no_spec,
    schedule_names_and_queues_are_shared_names,
    senseless_schedule_options_are_refused,
    every_schedule_option_has_a_meaning,
    a_payload_that_cannot_be_encoded_is_refused,
    the_first_boundary_is_one_interval_away,
    the_same_spec_keeps_the_boundary,
    a_changed_spec_sets_a_new_boundary,
    an_overdue_boundary_survives_a_restart,
    unschedule_tells_whether_it_was_there,

    nothing_fires_without_a_runner,
    a_boundary_fires_at_its_second,
    each_elapsed_boundary_fires_once,
    at_most_64_boundaries_are_caught_up_and_the_phase_stays,
    exactly_64_boundaries_are_all_caught_up,
    schedules_fire_side_by_side,
    a_fired_job_carries_the_plain_defaults,
    a_fired_job_carries_the_options_of_its_schedule,
    a_replaced_schedule_fires_what_it_now_says,
    an_unscheduled_one_does_not_fire,
    a_fire_wakes_its_queue,
    a_new_schedule_is_noticed_at_once,
    a_changed_schedule_is_noticed_at_once,

    a_fired_job_is_ready_from_its_boundary,
    an_upsert_resets_a_boundary_that_a_clock_ahead_has_left,
    a_leader_resets_a_boundary_that_a_clock_ahead_has_left,
    a_boundary_of_a_clock_ahead_does_not_silence_its_schedule,
    a_reset_takes_no_boundary_within_one_interval,
    the_agenda_tells_parts_of_a_second,

    several_runners_fire_each_boundary_once,
    a_runner_stands_by_while_another_leads,
    a_stopped_leader_makes_room_at_once,
    a_stand_by_takes_over_from_a_stopped_leader,
    a_stand_by_takes_over_when_the_lease_of_a_dead_leader_lapses,
    a_leader_that_was_replaced_learns_it,
    a_leader_that_was_replaced_for_a_while_learns_it,
    a_lapsed_lock_goes_on_unless_it_was_acquired_since,
    a_step_from_another_boundary_is_refused,
    the_agenda_has_the_most_overdue_first,

    a_runner_ends_when_its_token_is_cancelled,
    a_token_cancelled_before_ends_a_runner_at_once,
    any_clone_of_a_token_stops_all,
    a_stopped_runner_fires_nothing_more,
    a_closed_store_ends_its_runner,
}

/// A runner in a task of its own.
struct Runner {
    stop: StopToken,
    task: JoinHandle<Result<()>>,
}

impl Runner {
    fn start<E: Engine>(store: &Store<E>) -> Self {
        Self::start_with(store, StopToken::new())
    }

    fn start_with<E: Engine>(store: &Store<E>, stop: StopToken) -> Self {
        let (store, token) = (store.clone(), stop.clone());
        let task = tokio::spawn(async move { store.run_schedules(token).await });
        Self { stop, task }
    }

    /// Stops it and waits for its end.
    async fn stop<H: Harness>(self, h: &H) {
        self.stop.cancel();
        self.end(h).await.expect("a stopped runner ends well");
    }

    /// Waits for its end, which must be on its way.
    async fn end<H: Harness>(self, h: &H) -> Result<()> {
        within(h, self.task).await.expect("a runner does not panic")
    }

    /// Lets it die as a killed process does: nothing is released.
    async fn kill(self) {
        self.task.abort();
        self.task.await.ok();
    }
}

/// Registers a schedule with plain options that fires into the queue of its own name.
async fn schedule<E: Engine>(store: &Store<E>, name: &str, spec: &str) -> Schedule {
    let schedule = store
        .schedule(name, spec, name, &name, ScheduleOpts::default())
        .await;
    schedule.unwrap()
}

/// Makes all runners look at the schedules: a new one, far away, is noticed at once.
async fn poke<E: Engine>(store: &Store<E>) {
    static POKES: AtomicU64 = AtomicU64::new(0);
    let name = format!("poke-{}", POKES.fetch_add(1, Ordering::Relaxed));
    schedule(store, &name, "@every 100000d").await;
}

fn queue<E: Engine>(store: &Store<E>, name: &str) -> Queue<E> {
    store.queue(name, QueueOpts::default()).unwrap()
}

/// Waits for the next job of a queue and takes it away.
async fn next_job<E: Engine>(queue: &Queue<E>) -> Job {
    loop {
        if let Some(claim) = queue.claim_one("w").await.unwrap() {
            let job = claim.job().clone();
            assert!(claim.ack().await.unwrap());
            return job;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for exactly so many jobs, and that there are no more.
async fn fired<H: Harness>(h: &H, queue: &Queue<H::Engine>, count: usize) -> Vec<Job> {
    let mut jobs = Vec::with_capacity(count);
    for _ in 0..count {
        jobs.push(within(h, next_job(queue)).await);
    }
    crate::support::never(h, next_job(queue)).await;
    jobs
}
