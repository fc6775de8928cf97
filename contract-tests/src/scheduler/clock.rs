use alkstore::engine::{At, Schedules};

use super::*;
use crate::support::{Clock, attempts, never};

/// A fired job is ready from the boundary at which its schedule was due, not from the later
/// second in which that was seen.
pub(super) async fn a_fired_job_is_ready_from_its_boundary<H: Harness>(h: &H) {
    let store = h.open().await;
    let boundary = schedule(&store, "tick", "@every 1h").await.next_at;
    h.advance(2 * 3600 + 100);
    let runner = Runner::start(&store);
    for job in fired(h, &queue(&store, "tick"), 2).await {
        assert!(job.created_at >= boundary + 3700, "{job:?}");
        assert_eq!(job.run_at, boundary);
    }
    runner.stop(h).await;
}

/// Registering a schedule again mends a boundary that was set by a clock far ahead.
pub(super) async fn an_upsert_resets_a_boundary_that_a_clock_ahead_has_left<H: Harness>(h: &H) {
    const YEARS: i64 = 3 * 365 * 86_400;
    let store = h.open().await;
    let clock = Clock::new(h, &store);
    for () in attempts() {
        store.unschedule("tick").await.unwrap();
        h.advance(YEARS);
        schedule(&store, "tick", "@every 1h").await;
        h.advance(-YEARS);
        let now = clock.now().await;
        let again = schedule(&store, "tick", "@every 1h").await;
        if clock.shows(now).await {
            assert_eq!(again.next_at, now + 3600);
            return;
        }
    }
}

/// A running leader mends it, too, with no upsert: it is woken by another schedule here.
pub(super) async fn a_leader_resets_a_boundary_that_a_clock_ahead_has_left<H: Harness>(h: &H) {
    let store = h.open().await;
    h.advance(8 * 3600);
    schedule(&store, "tick", "@every 1h").await;
    h.advance(-8 * 3600);
    // The endless one is one interval away and no more.
    schedule(&store, "end", "@every 9223372036854775807s").await;
    let tick = queue(&store, "tick");
    let runner = Runner::start(&store);
    fired(h, &tick, 0).await;
    poke(&store).await;
    // Nothing fires, and the leader has the time to look.
    fired(h, &tick, 0).await;
    // Within an hour and some seconds, and not after eight.
    h.advance(3610);
    poke(&store).await;
    fired(h, &tick, 1).await;
    runner.stop(h).await;
}

/// A clock that jumps ahead and back while a leader runs leaves jobs that can be claimed and a
/// schedule that goes on.
pub(super) async fn a_boundary_of_a_clock_ahead_does_not_silence_its_schedule<H: Harness>(h: &H) {
    let store = h.open().await;
    let tick = queue(&store, "tick");
    let marker = queue(&store, "marker");
    schedule(&store, "tick", "@every 10s").await;
    schedule(&store, "marker", "@every 7h").await;
    let runner = Runner::start(&store);
    h.advance(8 * 3600);
    poke(&store).await;
    // Fired by the clock that is ahead, and left where it is.
    within(h, next_job(&marker)).await;
    h.advance(-8 * 3600);
    poke(&store).await;
    // Ready once its first boundary has passed: by then all that the jump has fired.
    h.advance(11);
    poke(&store).await;
    for _ in 0..64 {
        within(h, next_job(&tick)).await;
    }
    // And then one for each interval, no more and no less.
    drain(h, &tick).await;
    for _ in 0..3 {
        h.advance(10);
        poke(&store).await;
        fired(h, &tick, 1).await;
    }
    runner.stop(h).await;
}

/// Takes what is there, until nothing comes.
async fn drain<H: Harness>(h: &H, queue: &Queue<H::Engine>) {
    while tokio::time::timeout(h.quiet(), next_job(queue))
        .await
        .is_ok()
    {}
}

/// Only a boundary further away than one interval was left by a clock ahead.
pub(super) async fn a_reset_takes_no_boundary_within_one_interval<H: Harness>(h: &H) {
    let store = h.open().await;
    let near = schedule(&store, "near", "@every 1h").await.next_at;
    let end = schedule(&store, "end", "@every 9223372036854775807s").await;
    h.advance(1800);
    store.engine().reset_boundaries().await.unwrap();
    assert_eq!(schedule(&store, "near", "@every 1h").await.next_at, near);
    h.advance(1801);
    store.engine().reset_boundaries().await.unwrap();
    let due = store.engine().read_agenda(At::Auto, 9).await.unwrap().due;
    let due: Vec<_> = due.iter().map(|due| (&*due.name, due.next_at)).collect();
    assert_eq!(due, [("near", near)], "an overdue boundary fires");
    let again = schedule(&store, "end", "@every 9223372036854775807s").await;
    assert_eq!(again, end);
    let ahead = 5 * 3600;
    h.advance(ahead);
    let boundary = schedule(&store, "far", "@every 1h").await.next_at;
    h.advance(-ahead);
    store.unschedule("near").await.unwrap();
    store.engine().reset_boundaries().await.unwrap();
    let agenda = store.engine().read_agenda(At::Auto, 0).await.unwrap();
    let now = agenda.now;
    let reset = agenda.next_at.expect("there are two");
    assert!((now + 3590..=now + 3600).contains(&reset), "{agenda:?}");
    assert!(reset < boundary, "{agenda:?}");
    never(h, next_job(&queue(&store, "far"))).await;
}

/// A leader can sleep until a boundary: the agenda's now is finer than a second.
pub(super) async fn the_agenda_tells_parts_of_a_second<H: Harness>(h: &H) {
    let store = h.open().await;
    let instant = async || {
        let agenda = store.engine().read_agenda(At::Auto, 0).await.unwrap();
        assert!(agenda.subsec < Duration::from_secs(1), "{agenda:?}");
        let seconds = u64::try_from(agenda.now).expect("it is after 1970");
        Duration::from_secs(seconds) + agenda.subsec
    };
    let pause = Duration::from_millis(25);
    // A host's clock may be adjusted; not in most of these moments.
    let mut right = 0;
    for _ in 0..3 {
        let (asked, before) = (tokio::time::Instant::now(), instant().await);
        tokio::time::sleep(pause).await;
        let (after, longest) = (instant().await, asked.elapsed());
        let elapsed = after.saturating_sub(before);
        let tolerance = Duration::from_millis(2);
        right += i32::from(elapsed + tolerance >= pause && elapsed <= longest + tolerance);
    }
    assert!(right >= 2, "{right} of 3");
}
