use alkstore::Error;
use tokio::time::Instant;

use super::*;
use crate::support::never;

/// A cancelled token ends a runner well and promptly, be it idle, standing by or waiting.
pub(super) async fn a_runner_ends_when_its_token_is_cancelled<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let leader = Runner::start(&store);
    schedule(&store, "tick", "@every 1d").await;
    h.advance(86_400);
    poke(&store).await;
    fired(h, &queue(&store, "tick"), 1).await;
    let mut stand_by = Runner::start(&other);
    never(h, &mut stand_by.task).await;
    let asked = Instant::now();
    stand_by.stop(h).await;
    leader.stop(h).await;
    // A runner that only looks at its token between waits takes seconds.
    assert!(asked.elapsed() < h.patience() / 2, "{:?}", asked.elapsed());
}

/// A runner whose token was cancelled before fires nothing and takes no leadership.
pub(super) async fn a_token_cancelled_before_ends_a_runner_at_once<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    schedule(&store, "tick", "@every 1h").await;
    h.advance(3600);
    let stop = StopToken::new();
    assert!(!stop.is_cancelled());
    stop.cancel();
    within(h, store.run_schedules(stop.clone())).await.unwrap();
    assert!(stop.is_cancelled());
    fired(h, &queue(&store, "tick"), 0).await;
    let runner = Runner::start(&other);
    fired(h, &queue(&store, "tick"), 1).await;
    runner.stop(h).await;
}

/// Cancelling any clone, once or more, stops all runners of the token and tells all waiters.
pub(super) async fn any_clone_of_a_token_stops_all<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let stop = StopToken::new();
    let waiting = stop.clone();
    let waiter = tokio::spawn(async move { waiting.cancelled().await });
    let runners = [&store, &other].map(|store| Runner::start_with(store, stop.clone()));
    let mut bystander = Runner::start(&other);
    never(h, stop.cancelled()).await;
    stop.clone().cancel();
    stop.cancel();
    for runner in runners {
        runner.end(h).await.unwrap();
    }
    within(h, waiter).await.unwrap();
    within(h, stop.cancelled()).await;
    assert!(stop.is_cancelled() && stop.clone().is_cancelled());
    assert!(!bystander.stop.is_cancelled(), "it has a token of its own");
    never(h, &mut bystander.task).await;
    bystander.stop(h).await;
}

/// Once a runner has ended, boundaries pass without it.
pub(super) async fn a_stopped_runner_fires_nothing_more<H: Harness>(h: &H) {
    let store = h.open().await;
    schedule(&store, "tick", "@every 1h").await;
    h.advance(3600);
    let runner = Runner::start(&store);
    fired(h, &queue(&store, "tick"), 1).await;
    runner.stop(h).await;
    h.advance(3600);
    poke(&store).await;
    fired(h, &queue(&store, "tick"), 0).await;
}

/// Closing the store ends its runner, and a runner elsewhere goes on after the lease.
pub(super) async fn a_closed_store_ends_its_runner<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    schedule(&store, "tick", "@every 1h").await;
    h.advance(3600);
    let runner = Runner::start(&store);
    fired(h, &queue(&other, "tick"), 1).await;
    store.close().await;
    let ended = runner.end(h).await;
    assert!(matches!(ended, Err(Error::Database(_))), "{ended:?}");
    let error = store.run_schedules(StopToken::new()).await;
    assert!(matches!(error, Err(Error::Database(_))), "{error:?}");
    h.advance(3600);
    let runner = Runner::start(&other);
    fired(h, &queue(&other, "tick"), 1).await;
    runner.stop(h).await;
}
