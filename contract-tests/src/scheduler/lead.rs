use alkstore::Error;
use alkstore::engine::{Advance, At, Locks, Schedules};
use futures::future::join_all;

use super::*;
use crate::support::never;

/// Many runners in several processes fire each boundary once between them.
pub(super) async fn several_runners_fire_each_boundary_once<H: Harness>(h: &H) {
    let stores = [h.open().await, h.open().await];
    schedule(&stores[0], "tick", "@every 8s").await;
    h.advance(20 * 8 + 4);
    let tick = queue(&stores[0], "tick");
    let runners: Vec<_> = stores
        .iter()
        .flat_map(|store| [store; 3])
        .map(Runner::start)
        .collect();
    fired(h, &tick, 20).await;
    for _ in 0..3 {
        // Steps within any lease, so that the leader stays the one.
        h.advance(8);
        poke(&stores[1]).await;
        fired(h, &tick, 1).await;
    }
    runners.iter().for_each(|runner| runner.stop.cancel());
    // One after another leads while they end, and none ends otherwise.
    for ended in join_all(runners.into_iter().map(|runner| runner.end(h))).await {
        ended.expect("a stopped runner ends well");
    }
    fired(h, &tick, 0).await;
}

/// Who does not lead waits, ends well when it is stopped, and takes no leadership with it.
pub(super) async fn a_runner_stands_by_while_another_leads<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let leader = lead(h, &store, "first").await;
    let mut stand_by = Runner::start(&other);
    poke(&store).await;
    never(h, &mut stand_by.task).await;
    stand_by.stop(h).await;
    h.advance(3600);
    poke(&other).await;
    fired(h, &queue(&store, "first"), 1).await;
    leader.stop(h).await;
}

/// A leader that was stopped has released its leadership: the next runner leads at once.
pub(super) async fn a_stopped_leader_makes_room_at_once<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let leader = lead(h, &store, "first").await;
    schedule(&store, "second", "@every 5s").await;
    leader.stop(h).await;
    // Less than any lease, so that no lapse lets the next one in.
    h.advance(5);
    let next = Runner::start(&other);
    within(h, next_job(&queue(&store, "second"))).await;
    next.stop(h).await;
}

/// Who stands by leads as soon as the leader has stopped.
pub(super) async fn a_stand_by_takes_over_from_a_stopped_leader<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let leader = lead(h, &store, "first").await;
    let stand_by = Runner::start(&other);
    schedule(&store, "second", "@every 5s").await;
    leader.stop(h).await;
    h.advance(5);
    poke(&store).await;
    within(h, next_job(&queue(&store, "second"))).await;
    stand_by.stop(h).await;
}

/// A leader that died releases nothing; when its lease lapses, who stands by takes over.
pub(super) async fn a_stand_by_takes_over_when_the_lease_of_a_dead_leader_lapses<H: Harness>(
    h: &H,
) {
    let (store, other) = (h.open().await, h.open().await);
    let leader = lead(h, &store, "first").await;
    let stand_by = Runner::start(&other);
    leader.kill().await;
    h.advance(3600);
    poke(&other).await;
    fired(h, &queue(&other, "first"), 1).await;
    stand_by.stop(h).await;
}

/// A leader whose lease lapsed and went to another ends with `LeadershipLost`, and what it
/// missed was fired once, by the other.
pub(super) async fn a_leader_that_was_replaced_learns_it<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let paused = lead(h, &store, "first").await;
    // The idle leader does not see how much time has passed, as a process that was suspended.
    h.advance(3600);
    let next = Runner::start(&other);
    fired(h, &queue(&other, "first"), 1).await;
    poke(&other).await;
    let lost = paused.end(h).await;
    assert!(matches!(lost, Err(Error::LeadershipLost)), "{lost:?}");
    never(h, next_job(&queue(&other, "first"))).await;
    h.advance(3600);
    poke(&other).await;
    fired(h, &queue(&other, "first"), 1).await;
    next.stop(h).await;
}

/// A leader whose lease lapsed while another led does not lead again as if nothing had been,
/// though the other has stopped and the lock is free.
pub(super) async fn a_leader_that_was_replaced_for_a_while_learns_it<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let paused = lead(h, &store, "first").await;
    h.advance(3600);
    let next = Runner::start(&other);
    fired(h, &queue(&other, "first"), 1).await;
    next.stop(h).await;
    h.advance(3600);
    poke(&other).await;
    let lost = paused.end(h).await;
    assert!(matches!(lost, Err(Error::LeadershipLost)), "{lost:?}");
    never(h, next_job(&queue(&other, "first"))).await;
    let next = Runner::start(&other);
    fired(h, &queue(&other, "first"), 1).await;
    next.stop(h).await;
}

/// The rule of a leader's renewal: a lease that lapsed goes on, unless the lock was released
/// or anyone has acquired it since.
pub(super) async fn a_lapsed_lock_goes_on_unless_it_was_acquired_since<H: Harness>(h: &H) {
    let store = h.open().await;
    let engine = store.engine();
    let token = engine.acquire_lock("it", "me", 5).await.unwrap().unwrap();
    assert!(engine.resume_lock("it", token, 5).await.unwrap());
    h.advance(60);
    assert!(engine.resume_lock("it", token, 5).await.unwrap());
    assert_eq!(engine.acquire_lock("it", "you", 5).await.unwrap(), None);
    assert!(engine.renew_lock("it", token, 5).await.unwrap());
    assert!(!engine.resume_lock("other", token, 5).await.unwrap());
    h.advance(60);
    let newer = engine.acquire_lock("it", "you", 5).await.unwrap().unwrap();
    assert!(!engine.resume_lock("it", token, 5).await.unwrap());
    h.advance(60);
    assert!(!engine.resume_lock("it", token, 5).await.unwrap());
    assert!(engine.resume_lock("it", newer, 5).await.unwrap());
    assert!(engine.release_lock("it", newer).await.unwrap());
    assert!(!engine.resume_lock("it", newer, 5).await.unwrap());
    assert!(!engine.resume_lock("it", token, 5).await.unwrap());
}

/// Who saw a schedule before another moved it on cannot move it, whoever believes to lead.
pub(super) async fn a_step_from_another_boundary_is_refused<H: Harness>(h: &H) {
    let store = h.open().await;
    let from = schedule(&store, "tick", "@every 1h").await.next_at;
    let other = schedule(&store, "tock", "@every 1h").await.next_at;
    h.advance(3600);
    let step = |name, from, to| Advance { name, from, to };
    let steps = [
        step("tick", from, from + 3600),
        step("tick", from, from + 7200),
        step("gone", from, from + 3600),
        step("tock", other - 1, other + 3600),
    ];
    let moved = store
        .engine()
        .advance_schedules(At::Auto, &steps)
        .await
        .unwrap();
    assert_eq!(moved[..], [true, false, false, false]);
    let again = store
        .engine()
        .advance_schedules(At::Auto, &steps[..1])
        .await
        .unwrap();
    assert_eq!(again[..], [false]);
    assert_eq!(
        schedule(&store, "tick", "@every 1h").await.next_at,
        from + 3600
    );
    assert_eq!(schedule(&store, "tock", "@every 1h").await.next_at, other);
    assert!(!store.unschedule("gone").await.unwrap());
    let moved = store.engine().advance_schedules(At::Auto, &[]).await;
    assert!(moved.unwrap().is_empty());
}

/// What a runner sees are the schedules that are due, the most overdue first, up to its
/// limit, and the earliest boundary of all.
pub(super) async fn the_agenda_has_the_most_overdue_first<H: Harness>(h: &H) {
    let store = h.open().await;
    let agenda = async |limit| store.engine().read_agenda(At::Auto, limit).await.unwrap();
    assert_eq!(agenda(10).await.next_at, None);
    for (name, spec) in [("c", "@every 3h"), ("a", "@every 1h"), ("d", "@every 5h")] {
        schedule(&store, name, spec).await;
    }
    let first = schedule(&store, "b", "@every 2m").await.next_at;
    let idle = agenda(10).await;
    assert_eq!((idle.next_at, idle.due.len()), (Some(first), 0));
    assert!(
        (first - 120..first).contains(&idle.now),
        "{} is now",
        idle.now
    );
    h.advance(4 * 3600);
    for (limit, expected) in [
        (0, &[][..]),
        (1, &["b"]),
        (2, &["b", "a"]),
        (9, &["b", "a", "c"]),
    ] {
        let seen = agenda(limit).await;
        let names: Vec<_> = seen.due.iter().map(|due| &*due.name).collect();
        assert_eq!(
            (names, seen.next_at),
            (expected.to_vec(), Some(first)),
            "limit {limit}"
        );
    }
}

/// A runner that certainly leads: it has fired the first boundary of an hourly schedule.
async fn lead<H: Harness>(h: &H, store: &Store<H::Engine>, name: &str) -> Runner {
    schedule(store, name, "@every 1h").await;
    h.advance(3600);
    let runner = Runner::start(store);
    fired(h, &queue(store, name), 1).await;
    runner
}
