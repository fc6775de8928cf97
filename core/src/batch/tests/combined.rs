//! Random calls, some of which are refused, lost or dropped.

use fastrand::Rng;
use futures::future::{join_all, poll_immediate};
use rstest::rstest;

use super::ledger::{Entry, Ledger, Plan};
use crate::Result;

/// One caller's call, and what came of it; `None` if it was dropped.
type Called = (Vec<Entry>, Option<Result<Vec<i64>>>);

#[rstest]
fn calls_in_batches_come_to_what_they_come_to_one_by_one(
    #[values(true, false)] inline: bool,
    #[values(0, 6)] failing: usize,
) {
    let drive = |seed| {
        drive_and_check(Plan {
            inline,
            seed,
            failing,
            ..Plan::inline()
        })
    };
    let together: usize = (0..300).map(drive).sum();
    assert!(together > 300, "hardly anything went together: {together}");
}

/// Returns how many calls shared a commit with others.
fn drive_and_check(plan: Plan) -> usize {
    let runtime = super::runtime();
    let ledger = Ledger::new(plan);
    let mut rng = Rng::with_seed(plan.seed);
    let called = runtime.block_on(drive(&ledger, &mut rng));
    // What was dropped may still be on its way.
    runtime.block_on(async {
        while !ledger.lanes().is_idle() {
            tokio::task::yield_now().await;
        }
    });
    check(&ledger, &called);
    let done = called
        .iter()
        .filter(|(_, result)| matches!(result, Some(Ok(_))))
        .count();
    done.saturating_sub(ledger.commits())
}

/// Tasks that call again and again, some of which drop their calls half-way.
async fn drive(ledger: &Ledger, rng: &mut Rng) -> Vec<Called> {
    let mut name = 0;
    let mut tasks = Vec::new();
    for _ in 0..rng.usize(1..20) {
        let mut calls = Vec::new();
        for _ in 0..rng.usize(1..6) {
            let (size, book) = (rng.usize(1..4), rng.u8(..2));
            let mut entry = || {
                name += 1;
                let bad = rng.u8(..12) == 0;
                Entry {
                    bad,
                    book,
                    ..Entry::good(name)
                }
            };
            let entries: Vec<_> = (0..size).map(|_| entry()).collect();
            calls.push((entries, (rng.u8(..8) == 0).then(|| rng.usize(..3))));
        }
        let ledger = ledger.clone();
        tasks.push(tokio::spawn(async move {
            let mut called = Vec::new();
            for (entries, dropped_after) in calls {
                let result = call(&ledger, &entries, dropped_after).await;
                called.push((entries, result));
            }
            called
        }));
    }
    let done = join_all(tasks).await;
    done.into_iter()
        .flat_map(|task| task.expect("no panic"))
        .collect()
}

/// Calls, and drops the call after so many polls if it is not done by then.
async fn call(
    ledger: &Ledger,
    entries: &[Entry],
    dropped_after: Option<usize>,
) -> Option<Result<Vec<i64>>> {
    let Some(polls) = dropped_after else {
        return Some(ledger.write(entries).await);
    };
    let mut writing = Box::pin(ledger.write(entries));
    for _ in 0..polls {
        if let Some(result) = poll_immediate(&mut writing).await {
            return Some(result);
        }
        tokio::task::yield_now().await;
    }
    None
}

fn check(ledger: &Ledger, called: &[Called]) {
    let (landed, lost) = (ledger.landed(), ledger.lost());
    let times = |name: u32| landed.iter().filter(|entry| **entry == name).count();
    for (entries, result) in called {
        let bad = entries.iter().any(|entry| entry.bad);
        match result {
            // Exactly as if it had been alone: its entries in their order, once, side by side.
            Some(Ok(places)) => {
                assert!(!bad, "a bad call was done");
                let place = |place: &i64| usize::try_from(*place).expect("a place");
                let found: Vec<_> = places.iter().map(|at| landed[place(at)]).collect();
                let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
                assert_eq!(found, names);
                assert!(names.iter().all(|name| times(*name) == 1));
            }
            Some(Err(error)) => {
                // Only one that is bad itself, or was in a commit that failed, may fail.
                let lost = entries.iter().all(|entry| lost.contains(&entry.name));
                assert_eq!(bad, !error.is_transient());
                assert!(bad || lost, "a good call failed: {error}");
                assert!(entries.iter().all(|entry| times(entry.name) == 0));
            }
            None => {
                let first = times(entries[0].name);
                assert!(first <= 1 && !(bad && first == 1));
                assert!(entries.iter().all(|entry| times(entry.name) == first));
            }
        }
    }
}

#[tokio::test]
async fn those_who_come_back_go_together_again() {
    const ROUNDS: u32 = 50;
    for plan in [Plan::on_tasks(), Plan::inline()] {
        let ledgers = [1, 2].map(|seed| Ledger::new(Plan { seed, ..plan }));
        let write = async |task: u32| {
            for round in 0..ROUNDS {
                // All leave the one lane for the other, and find it empty.
                for ledger in &ledgers {
                    let name = task * ROUNDS + round;
                    ledger.write_one(name).await.expect("a place");
                }
            }
        };
        join_all((0..8).map(write)).await;
        for ledger in ledgers {
            let commits = ledger.commits();
            // At first they find nobody.
            let most = if plan.inline { 150 } else { 75 };
            assert!(commits < most, "{commits} commits for {ROUNDS} rounds");
        }
    }
}
