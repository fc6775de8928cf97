use alkstore::JobState;

use super::*;
use crate::support::{Clock, attempts, job_of, never};

/// However long ago a boundary has passed: without a runner nothing fires.
pub(super) async fn nothing_fires_without_a_runner<H: Harness>(h: &H) {
    let store = h.open().await;
    schedule(&store, "tick", "@every 1s").await;
    h.advance(1000);
    poke(&store).await;
    never(h, next_job(&queue(&store, "tick"))).await;
}

/// A boundary fires when the clock shows its second, and not one second earlier.
pub(super) async fn a_boundary_fires_at_its_second<H: Harness>(h: &H) {
    let store = h.open().await;
    let clock = Clock::new(h, &store);
    for () in attempts() {
        let (due, early) = (queue(&store, "due"), queue(&store, "early"));
        let boundary = schedule(&store, "due", "@every 100s").await.next_at;
        let not_yet = schedule(&store, "early", "@every 101s").await.next_at;
        clock.go_to(boundary).await;
        let runner = Runner::start(&store);
        let fired = within(h, next_job(&due)).await;
        // The same look that fired the one has seen the other, too.
        let too_early = tokio::time::timeout(h.quiet(), next_job(&early)).await.ok();
        let exact = not_yet == boundary + 1 && clock.shows(boundary).await;
        runner.stop(h).await;
        if exact {
            assert_eq!((fired.created_at, fired.run_at), (boundary, boundary));
            assert_eq!(too_early, None);
            return;
        }
        store.unschedule("due").await.unwrap();
        store.unschedule("early").await.unwrap();
        while early.claim_one("w").await.unwrap().is_some() {}
        while due.claim_one("w").await.unwrap().is_some() {}
    }
}

/// Each boundary that has passed gives one job, and no boundary two.
pub(super) async fn each_elapsed_boundary_fires_once<H: Harness>(h: &H) {
    let store = h.open().await;
    let first = schedule(&store, "tick", "@every 1h").await.next_at;
    h.advance(5 * 3600 + 1800);
    let tick = queue(&store, "tick");
    let runner = Runner::start(&store);
    let jobs = fired(h, &tick, 5).await;
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    assert!(
        ids.is_sorted_by(|earlier, later| earlier < later),
        "{ids:?}"
    );
    poke(&store).await;
    never(h, next_job(&tick)).await;
    for boundary in [6, 7] {
        h.advance(3600);
        poke(&store).await;
        fired(h, &tick, 1).await;
        let next_at = schedule(&store, "tick", "@every 1h").await.next_at;
        assert_eq!(next_at, first + boundary * 3600);
    }
    runner.stop(h).await;
}

/// Of more than 64 missed boundaries 64 fire and the others never; the next one keeps its
/// phase.
pub(super) async fn at_most_64_boundaries_are_caught_up_and_the_phase_stays<H: Harness>(h: &H) {
    let store = h.open().await;
    let first = schedule(&store, "tick", "@every 1h").await.next_at;
    h.advance(200 * 3600 + 1800);
    let tick = queue(&store, "tick");
    let runner = Runner::start(&store);
    fired(h, &tick, 64).await;
    poke(&store).await;
    never(h, next_job(&tick)).await;
    let next_at = schedule(&store, "tick", "@every 1h").await.next_at;
    assert_eq!(next_at, first + 200 * 3600);
    h.advance(3600);
    poke(&store).await;
    fired(h, &tick, 1).await;
    runner.stop(h).await;
}

/// The cap is 64, not less.
pub(super) async fn exactly_64_boundaries_are_all_caught_up<H: Harness>(h: &H) {
    let store = h.open().await;
    let first = schedule(&store, "tick", "@every 1d").await.next_at;
    h.advance(64 * 86_400 + 3600);
    let runner = Runner::start(&store);
    fired(h, &queue(&store, "tick"), 64).await;
    assert_eq!(
        schedule(&store, "tick", "@every 1d").await.next_at,
        first + 64 * 86_400
    );
    runner.stop(h).await;
}

/// Many schedules are due at once, each with its own cap; those that are not do not fire.
pub(super) async fn schedules_fire_side_by_side<H: Harness>(h: &H) {
    let store = h.open().await;
    schedule(&store, "hourly", "@every 1h").await;
    schedule(&store, "yearly", "@every 365d").await;
    for number in 0..40 {
        let name = format!("daily-{number}");
        let opts = ScheduleOpts::default();
        store
            .schedule(&name, "@every 1d", "daily", &number, opts)
            .await
            .unwrap();
    }
    h.advance(4 * 86_400 + 1800);
    let runner = Runner::start(&store);
    let mut payloads: Vec<i32> = Vec::new();
    for job in fired(h, &queue(&store, "daily"), 160).await {
        payloads.push(job.payload_as().unwrap());
    }
    payloads.sort_unstable();
    let expected: Vec<_> = (0..40).flat_map(|number| [number; 4]).collect();
    assert_eq!(payloads, expected);
    fired(h, &queue(&store, "hourly"), 64).await;
    fired(h, &queue(&store, "yearly"), 0).await;
    runner.stop(h).await;
}

/// A fired job is an ordinary one, ready from its boundary, with a plain queue's options.
pub(super) async fn a_fired_job_carries_the_plain_defaults<H: Harness>(h: &H) {
    let store = h.open().await;
    let payload = serde_json::json!({"b": [1, null, "é"], "a": 1.0});
    let opts = ScheduleOpts::default();
    let registered = store.schedule("tick", "@every 1h", "jobs", &payload, opts);
    let boundary = registered.await.unwrap().next_at;
    h.advance(3700);
    // Another handle's options are not the queue's.
    let opts = QueueOpts::default()
        .max_attempts(9)
        .backoff_base(Duration::ZERO);
    let jobs = store.queue("jobs", opts).unwrap();
    let runner = Runner::start(&store);
    let job = within(h, next_job(&jobs)).await;
    runner.stop(h).await;
    let claimed_at = job.claimed_at.unwrap();
    let expected = job_of! {
        id: job.id,
        queue: "jobs".to_owned(),
        state: JobState::Processing,
        payload: serde_json::to_vec(&payload).unwrap(),
        priority: 0,
        run_at: boundary,
        attempts: 1,
        max_attempts: 3,
        worker_id: Some("w".to_owned()),
        claimed_at: Some(claimed_at),
        claim_expires_at: Some(claimed_at + 300),
        created_at: job.created_at,
        expires_at: None,
        visibility_timeout_s: 300,
        backoff_base_s: 5,
        dead_letter_retention_s: None,
        last_error: None,
        died_at: None,
    };
    assert_eq!(job, expected);
}

/// A schedule's options lie over the defaults; a fired job's lifetime starts at its fire.
pub(super) async fn a_fired_job_carries_the_options_of_its_schedule<H: Harness>(h: &H) {
    let store = h.open().await;
    let clock = Clock::new(h, &store);
    let opts = ScheduleOpts::default().priority(-7).max_attempts(11);
    let opts = opts.expires(Duration::from_secs(1000));
    store
        .schedule("tick", "@every 1h", "tick", &1, opts)
        .await
        .unwrap();
    h.advance(2 * 3600 + 1800);
    let before = clock.now().await;
    let runner = Runner::start(&store);
    for job in fired(h, &queue(&store, "tick"), 2).await {
        assert!(job.created_at >= before);
        assert_eq!((job.priority, job.max_attempts), (-7, 11));
        assert_eq!(job.expires_at, Some(job.created_at + 1000));
        assert_eq!((job.visibility_timeout_s, job.backoff_base_s), (300, 5));
    }
    runner.stop(h).await;
}

/// What a schedule said before it was replaced is forgotten.
pub(super) async fn a_replaced_schedule_fires_what_it_now_says<H: Harness>(h: &H) {
    let store = h.open().await;
    let opts = ScheduleOpts::default().priority(5).max_attempts(9);
    let opts = opts.expires(Duration::from_secs(7));
    store
        .schedule("tick", "@every 1h", "before", &1, opts)
        .await
        .unwrap();
    let opts = ScheduleOpts::default().priority(2);
    store
        .schedule("tick", "@every 1h", "after", &2, opts)
        .await
        .unwrap();
    h.advance(3700);
    let runner = Runner::start(&store);
    let jobs = fired(h, &queue(&store, "after"), 1).await;
    assert_eq!(jobs[0].payload, b"2");
    assert_eq!(
        (jobs[0].priority, jobs[0].max_attempts, jobs[0].expires_at),
        (2, 3, None)
    );
    fired(h, &queue(&store, "before"), 0).await;
    runner.stop(h).await;
}

/// A schedule that is gone fires no more, though its boundary had passed.
pub(super) async fn an_unscheduled_one_does_not_fire<H: Harness>(h: &H) {
    let store = h.open().await;
    schedule(&store, "kept", "@every 1h").await;
    schedule(&store, "overdue", "@every 1h").await;
    h.advance(3700);
    assert!(store.unschedule("overdue").await.unwrap());
    let runner = Runner::start(&store);
    fired(h, &queue(&store, "kept"), 1).await;
    assert!(store.unschedule("kept").await.unwrap());
    h.advance(3700);
    poke(&store).await;
    fired(h, &queue(&store, "kept"), 0).await;
    fired(h, &queue(&store, "overdue"), 0).await;
    runner.stop(h).await;
}

/// A fire wakes who waits on its queue, in any process, as an enqueue does.
pub(super) async fn a_fire_wakes_its_queue<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    schedule(&store, "tick", "@every 1h").await;
    let mut here = queue(&store, "tick").listen().await.unwrap();
    let mut there = queue(&other, "tick").listen().await.unwrap();
    never(h, here.recv()).await;
    h.advance(3700);
    let runner = Runner::start(&store);
    for wakes in [&mut here, &mut there] {
        let wake = within(h, wakes.recv()).await.expect("the receiver is open");
        assert_eq!(wake.channel(), "tick");
    }
    runner.stop(h).await;
}

/// An idle runner notices a schedule that another process registers, not at its next look.
pub(super) async fn a_new_schedule_is_noticed_at_once<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let clock = Clock::new(h, &store);
    let runner = idle_and_overdue(h, &store).await;
    let now = clock.now().await;
    schedule(&other, "new", "@every 2h").await;
    assert_looked_at_once(h, &store, now).await;
    runner.stop(h).await;
}

/// An idle runner notices that another process changed a schedule.
pub(super) async fn a_changed_schedule_is_noticed_at_once<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let clock = Clock::new(h, &store);
    schedule(&store, "tick", "@every 100d").await;
    let runner = idle_and_overdue(h, &store).await;
    let now = clock.now().await;
    schedule(&other, "tick", "@every 2h").await;
    assert_looked_at_once(h, &store, now).await;
    runner.stop(h).await;
}

/// A runner that leads and sleeps, unaware that a boundary of "marker" has passed meanwhile.
async fn idle_and_overdue<H: Harness>(h: &H, store: &Store<H::Engine>) -> Runner {
    schedule(store, "marker", "@every 1h").await;
    h.advance(3600);
    let runner = Runner::start(store);
    fired(h, &queue(store, "marker"), 1).await;
    h.advance(3600);
    runner
}

/// Whoever looks for one reason fires all that is due. An idle runner looks after seconds.
async fn assert_looked_at_once<H: Harness>(h: &H, store: &Store<H::Engine>, now: i64) {
    let fired_at = within(h, next_job(&queue(store, "marker")))
        .await
        .created_at;
    assert!(fired_at - now <= 3, "it took {} seconds", fired_at - now);
}
