//! Who goes through the gate, and when.

use std::cell::RefCell;

use futures::future::{join_all, poll_immediate};

use super::*;

/// An upper limit for what takes some milliseconds, on a busy machine too.
const SOON: Duration = Duration::from_millis(500);

fn gate() -> Arc<Gate> {
    Arc::new(Gate::new(Writer::default()))
}

async fn held(gate: &Arc<Gate>) -> Entered {
    gate.enter().await.expect("the gate is open")
}

#[tokio::test]
async fn a_future_that_is_not_polled_is_passed_and_waited_for_no_more() {
    let gate = gate();
    let first = held(&gate).await;
    let mut unpolled = Box::pin(gate.enter());
    assert!(poll_immediate(&mut unpolled).await.is_none());
    drop(first);
    let started = Instant::now();
    drop(held(&gate).await);
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    for _ in 0..3 {
        assert!(gate.try_enter().is_some(), "it is not waited for again");
    }
    unpolled.await.expect("it goes through when it is polled");
}

#[tokio::test]
async fn the_oldest_goes_first() {
    // On a busy machine one who is called can miss its moment once, not thrice.
    let mut orders = Vec::new();
    for _ in 0..3 {
        orders.push(order().await);
    }
    assert!(orders.contains(&vec![0, 1, 2, 3, 4]), "{orders:?}");
}

/// The order in which five that wait go through, whoever is polled first.
async fn order() -> Vec<i32> {
    let gate = gate();
    let first = held(&gate).await;
    let order = RefCell::new(Vec::new());
    let (gate, through) = (&gate, &order);
    let mut waiting: Vec<_> = (0..5)
        .map(|number| {
            Box::pin(async move {
                let entered = held(gate).await;
                through.borrow_mut().push(number);
                drop(entered);
            })
        })
        .collect();
    for call in &mut waiting {
        assert!(poll_immediate(call).await.is_none());
    }
    waiting.reverse();
    drop(first);
    join_all(waiting).await;
    order.into_inner()
}

#[tokio::test]
async fn who_is_called_and_dropped_passes_the_call_on() {
    let gate = gate();
    let first = held(&gate).await;
    let (mut called, mut next) = (Box::pin(gate.enter()), Box::pin(gate.enter()));
    assert!(poll_immediate(&mut called).await.is_none());
    assert!(poll_immediate(&mut next).await.is_none());
    drop(first);
    drop(called);
    let next = poll_immediate(&mut next).await;
    next.expect("it is called").expect("the gate is open");
    assert!(gate.line().waiting.is_empty());
}

#[tokio::test]
async fn closing_ends_all_waiting_and_goes_through_last() {
    let gate = gate();
    let first = held(&gate).await;
    let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(gate.enter())).collect();
    for call in &mut waiting {
        assert!(poll_immediate(call).await.is_none());
    }
    let blocked = {
        let gate = Arc::clone(&gate);
        thread::spawn(move || gate.enter_blocking().is_err())
    };
    while gate.line().waiting.len() < 4 {
        thread::yield_now();
    }
    let mut closing = Box::pin(gate.close());
    assert!(poll_immediate(&mut closing).await.is_none());
    for ended in join_all(waiting).await {
        assert!(ended.is_err());
    }
    assert!(blocked.join().expect("no panic"));
    drop(first);
    drop(closing.await.expect("the one that closes goes through"));
    assert!(gate.try_enter().is_none());
    assert!(gate.enter().await.is_err());
    assert!(gate.enter_blocking().is_err());
}

#[tokio::test]
async fn a_thread_waits_as_a_future_does() {
    let gate = gate();
    let first = held(&gate).await;
    let thread = {
        let gate = Arc::clone(&gate);
        thread::spawn(move || gate.enter_blocking().map(drop))
    };
    while gate.line().waiting.is_empty() {
        thread::yield_now();
    }
    assert!(!thread.is_finished());
    drop(first);
    thread.join().expect("no panic").expect("it goes through");
    assert!(gate.try_enter().is_some());
}
