//! Calls in batches come to what the same calls come to one by one, and strand nobody.

mod combined;
mod ledger;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::{join_all, poll_immediate};
use rstest::rstest;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout};

use super::{LOOK, MOST_BYTES_OF_ONE, STALE, batched};
use crate::engine::{BatchError, ClaimRequest, Write, Written};
use crate::{Error, Result};
use ledger::{Entry, Ledger, Plan};

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().build().expect("a runtime")
}

/// Starts calls that wait, because the ledger is held.
async fn waiting<T>(
    calls: Vec<impl Future<Output = T>>,
) -> Vec<std::pin::Pin<Box<impl Future<Output = T>>>> {
    let mut calls: Vec<_> = calls.into_iter().map(Box::pin).collect();
    for call in &mut calls {
        assert!(poll_immediate(call).await.is_none(), "it does not wait");
    }
    calls
}

#[tokio::test]
async fn a_lone_call_of_an_inline_engine_is_done_at_its_first_poll() {
    let ledger = Ledger::new(Plan::inline());
    for name in 1..16 {
        let mut writing = Box::pin(ledger.write_one(name));
        let polled = poll_immediate(&mut writing).await;
        assert!(polled.is_some_and(|result| result.is_ok()));
    }
}

#[rstest]
#[case::inline(Plan::inline())]
#[case::on_tasks(Plan::on_tasks())]
#[tokio::test]
async fn a_future_that_is_not_polled_delays_others_by_tens_of_milliseconds(#[case] plan: Plan) {
    let ledger = Ledger::new(plan);
    let held = ledger.hold().await;
    let mut unpolled = waiting(vec![ledger.write_one(1)]).await;
    let others = waiting((2..6).map(|name| ledger.write_one(name)).collect()).await;
    drop(held);
    let begun = Instant::now();
    let others = timeout(Duration::from_secs(5), join_all(others)).await;
    assert!(others.expect("they go on").iter().all(Result::is_ok));
    assert!(begun.elapsed() < STALE * 10, "{:?}", begun.elapsed());
    // And later calls are not held up either.
    for name in 6..20 {
        ledger.write_one(name).await.expect("done");
    }
    unpolled.pop().expect("one").await.expect("done as well");
    assert_eq!(ledger.landed().len(), 19);
}

#[test]
fn a_runtime_that_is_not_driven_any_more_strands_nobody() {
    let (one, other) = (runtime(), runtime());
    let ledger = Ledger::new(Plan::inline());
    let held = other.block_on(ledger.hold());
    let first = {
        let ledger = ledger.clone();
        one.spawn(async move { ledger.write_one(1).await })
    };
    one.block_on(tokio::task::yield_now());
    let second = {
        let ledger = ledger.clone();
        other.spawn(async move { ledger.write_one(2).await })
    };
    other.block_on(tokio::task::yield_now());
    drop(held);
    // The first call's runtime is not driven from here on.
    let done = other.block_on(async { timeout(Duration::from_secs(5), second).await });
    done.expect("in time").expect("no panic").expect("done");
    other.block_on(ledger.write_one(3)).expect("done");
    one.block_on(first).expect("no panic").expect("done");
}

#[rstest]
#[case::inline(Plan::inline())]
#[case::on_tasks(Plan::on_tasks())]
fn runtimes_that_end_strand_nobody(#[case] plan: Plan) {
    let ledger = Ledger::new(plan);
    let name = Arc::new(AtomicU32::new(0));
    let next = move || name.fetch_add(1, Ordering::Relaxed);
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                for round in 0..100 {
                    let ends = runtime();
                    let (other, own) = (ledger.clone(), next.clone());
                    ends.spawn(async move {
                        loop {
                            other.write_one(own()).await.ok();
                            tokio::task::yield_now().await;
                        }
                    });
                    for _ in 0..round % 4 {
                        let call = async {
                            timeout(Duration::from_secs(5), ledger.write_one(next())).await
                        };
                        ends.block_on(call).expect("in time").expect("done");
                    }
                }
            });
        }
    });
}

#[rstest]
#[case::inline(Plan::inline())]
#[case::on_tasks(Plan::on_tasks())]
#[tokio::test]
async fn closing_ends_all_waiting(#[case] plan: Plan) {
    let ledger = Ledger::new(plan);
    let _held = ledger.hold().await;
    // The first one may be past its lane, at the engine's own gate.
    let mut calls = waiting((0..5).map(|name| ledger.write_one(name)).collect()).await;
    drop(calls.remove(0));
    ledger.lanes().close();
    for result in timeout(LOOK, join_all(calls)).await.expect("at once") {
        assert!(!result.expect_err("closed").is_transient());
    }
    ledger.write_one(9).await.expect_err("closed");
}

#[rstest]
#[case::inline(Plan::inline())]
#[case::on_tasks(Plan::on_tasks())]
#[tokio::test]
async fn each_call_ends_within_its_own_limit(#[case] plan: Plan) {
    let ledger = Ledger::new(plan);
    let limit = ledger.plan().timeout;
    let _held = ledger.hold().await;
    let call = async |start: u32| {
        tokio::time::sleep(Duration::from_millis(u64::from(start))).await;
        let begun = Instant::now();
        ledger.write_one(start).await.expect_err("held");
        begun.elapsed()
    };
    for took in join_all([0, 100, 200, 300, 400].map(call)).await {
        assert!(took >= limit && took < limit + LOOK * 10, "{took:?}");
    }
}

#[tokio::test]
async fn a_blocked_batch_is_tried_until_its_calls_give_up() {
    let ledger = Ledger::new(Plan::on_tasks());
    ledger.answer(5, || {
        BatchError::Blocked(Error::transient("blocked", "by a test"))
    });
    let all = join_all((0..5).map(|name| ledger.write_one(name))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(ledger.commits(), 1);
    ledger.answer(usize::MAX, || {
        BatchError::Blocked(Error::transient("blocked", "by a test"))
    });
    let error = ledger.write_one(9).await.expect_err("blocked");
    assert!(
        error.is_transient() && format!("{error:#}").contains("by a test"),
        "{error}"
    );
}

#[tokio::test]
async fn calls_that_contend_for_a_row_wait_by_themselves() {
    let ledger = Ledger::new(Plan::on_tasks());
    ledger.answer(1, || {
        BatchError::Contended(Error::transient("a row is held", "by a test"))
    });
    let all = join_all((0..5).map(|name| ledger.write_one(name))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(ledger.alone(), 5);
}

#[tokio::test]
async fn an_error_of_all_is_told_to_all() {
    let ledger = Ledger::new(Plan::on_tasks());
    ledger.answer(1, || {
        BatchError::Failed(Error::transient("lost", "by a test"))
    });
    let all = join_all((0..5).map(|name| ledger.write_one(name))).await;
    assert!(all.iter().all(Result::is_err));
    assert_eq!((ledger.alone(), ledger.commits()), (0, 0));
}

#[rstest]
#[case::inline(Plan::inline())]
#[case::on_tasks(Plan::on_tasks())]
#[tokio::test]
async fn large_calls_go_by_themselves_and_batches_are_bounded(#[case] plan: Plan) {
    let ledger = Ledger::new(plan);
    let held = ledger.hold().await;
    let large = Entry {
        bytes: MOST_BYTES_OF_ONE,
        ..Entry::good(0)
    };
    let entries: Vec<_> = (0..40).map(|name| [Entry { name, ..large }]).collect();
    let calls = waiting(entries.iter().map(|entry| ledger.write(entry)).collect()).await;
    let larger = Entry {
        name: 99,
        bytes: MOST_BYTES_OF_ONE + 1,
        ..large
    };
    let alone = ledger.alone();
    let mut larger = pin!(ledger.write(std::slice::from_ref(&larger)));
    assert!(poll_immediate(&mut larger).await.is_none());
    drop(held);
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    larger.await.expect("done");
    assert!(ledger.alone() > alone);
    assert!(
        ledger.largest() <= super::MOST_BYTES,
        "{}",
        ledger.largest()
    );
}

#[rstest]
#[case::before_the_batch(false)]
#[case::in_the_batch(true)]
#[tokio::test]
async fn jobs_claimed_for_a_dropped_call_go_back(#[case] begun: bool) {
    let ledger = Ledger::new(Plan::on_tasks());
    let held = ledger.hold().await;
    let request = ClaimRequest {
        queue: "q",
        worker: "w",
        limit: 1,
    };
    let claim = async || {
        let alone = async { Err(Error::database("not alone", "in this test")) };
        let requests = [request];
        batched(
            ledger.lanes(),
            &ledger,
            &requests,
            Write::Claim,
            alone,
            |written| written,
        )
        .await
    };
    let mut dropped = Box::pin(claim());
    assert!(poll_immediate(&mut dropped).await.is_none());
    if begun {
        ledger.pause_after_begin();
        drop(held);
        ledger.paused().await;
        drop(dropped);
        ledger.go_on();
    } else {
        drop(dropped);
        drop(held);
    }
    let claimed = claim().await.expect("claimed");
    assert!(matches!(&claimed[..], [Written::Claimed(jobs)] if jobs.len() == 1));
    assert_eq!(ledger.released(), usize::from(begun));
}

#[test]
fn an_answer_that_nobody_takes_goes_back_as_well() {
    let runtime = runtime();
    let ledger = Ledger::new(Plan::on_tasks());
    runtime.block_on(async {
        let alone = async { Err(Error::database("not alone", "in this test")) };
        let requests = [ClaimRequest {
            queue: "q",
            worker: "w",
            limit: 1,
        }];
        let lanes = Arc::clone(ledger.lanes());
        let mut claiming = Box::pin(batched(
            &lanes,
            &ledger,
            &requests,
            Write::Claim,
            alone,
            drop,
        ));
        assert!(poll_immediate(&mut claiming).await.is_none());
        while ledger.commits() == 0 {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        drop(claiming);
        while ledger.released() == 0 {
            tokio::task::yield_now().await;
        }
    });
}
