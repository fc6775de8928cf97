//! Calls together come to what the same calls come to one by one.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fastrand::Rng;
use futures::future::{join_all, poll_immediate};
use rstest::rstest;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::{Failed, Lanes, Work, together};
use crate::{Error, Result};

/// A ledger that refuses some items, and some commits.
#[derive(Debug, Clone)]
struct Ledger<const INLINE: bool>(Arc<Inner<INLINE>>);

#[derive(Debug)]
struct Inner<const INLINE: bool> {
    lanes: Lanes<Entry, usize>,
    writer: Arc<AsyncMutex<()>>,
    landed: Mutex<Landed>,
}

#[derive(Debug)]
struct Landed {
    rng: Rng,
    /// The entries in the order of their commits.
    entries: Vec<u32>,
    commits: usize,
    /// Entries that a failed commit had; nobody may try them again.
    lost: Vec<u32>,
    /// In so many commits one fails; none if 0.
    failing: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Entry {
    name: u32,
    bad: bool,
    /// Entries of different books do not go together.
    book: u8,
}

impl<const INLINE: bool> Ledger<INLINE> {
    fn new(seed: u64, failing: usize) -> Self {
        Self(Arc::new(Inner {
            lanes: Lanes::default(),
            writer: Arc::default(),
            landed: Mutex::new(Landed {
                rng: Rng::with_seed(seed),
                entries: Vec::new(),
                commits: 0,
                lost: Vec::new(),
                failing,
            }),
        }))
    }

    /// Writes entries, each of which comes back with its place in the ledger.
    async fn write(&self, entries: &[Entry]) -> Result<Vec<usize>> {
        let alone = async {
            let turn = Arc::clone(&self.0.writer).lock_owned().await;
            match Entry::run(self, turn, entries).await {
                Ok(places) => Ok(places),
                Err(Failed::Undone(error) | Failed::Broken(error)) => Err(error),
            }
        };
        let items = || entries.to_vec();
        together(self, "", entries.len(), items, pin!(alone), |places| places).await
    }
}

impl<const INLINE: bool> Work<Ledger<INLINE>> for Entry {
    type Output = usize;
    type Turn = OwnedMutexGuard<()>;
    const INLINE: bool = INLINE;

    fn joins(&self, first: &Self) -> bool {
        self.book == first.book
    }

    fn lanes(engine: &Ledger<INLINE>) -> &Lanes<Self, usize> {
        &engine.0.lanes
    }

    async fn turn(engine: &Ledger<INLINE>, _since: Instant) -> Result<Self::Turn> {
        Ok(Arc::clone(&engine.0.writer).lock_owned().await)
    }

    async fn run(
        engine: &Ledger<INLINE>,
        turn: Self::Turn,
        items: &[Self],
    ) -> Result<Vec<usize>, Failed> {
        assert!(items.iter().all(|entry| entry.book == items[0].book));
        let waits = INLINE || engine.0.landed.lock().expect("landed").rng.bool();
        if !waits {
            tokio::task::yield_now().await;
        }
        let mut landed = engine.0.landed.lock().expect("landed");
        if items.iter().any(|entry| entry.bad) {
            return Err(Failed::Undone(Error::database("bad", "an entry is bad")));
        }
        let failing = landed.failing;
        if failing > 0 && landed.rng.usize(..failing) == 0 {
            landed.lost.extend(items.iter().map(|entry| entry.name));
            return Err(Failed::Broken(Error::transient(
                "lost",
                "the commit failed",
            )));
        }
        landed.commits += 1;
        let first = landed.entries.len();
        landed.entries.extend(items.iter().map(|entry| entry.name));
        drop(turn);
        Ok((first..landed.entries.len()).collect())
    }
}

/// One caller's call, and what came of it; `None` if it was dropped.
type Called = (Vec<Entry>, Option<Result<Vec<usize>>>);

/// Tasks that call again and again, some of which drop their calls half-way.
async fn drive<const INLINE: bool>(ledger: &Ledger<INLINE>, rng: &mut Rng) -> Vec<Called> {
    let mut name = 0;
    let mut tasks = Vec::new();
    for _ in 0..rng.usize(1..20) {
        let mut calls = Vec::new();
        for _ in 0..rng.usize(1..6) {
            let (size, book) = (rng.usize(1..4), rng.u8(..2));
            let mut entry = || {
                name += 1;
                let bad = rng.u8(..12) == 0;
                Entry { name, bad, book }
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
async fn call<const INLINE: bool>(
    ledger: &Ledger<INLINE>,
    entries: &[Entry],
    dropped_after: Option<usize>,
) -> Option<Result<Vec<usize>>> {
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

fn check(landed: &Landed, called: &[Called]) {
    let times = |name: u32| {
        landed
            .entries
            .iter()
            .filter(|entry| **entry == name)
            .count()
    };
    for (entries, result) in called {
        let bad = entries.iter().any(|entry| entry.bad);
        match result {
            // Exactly as if it had been alone: its entries in their order, once, side by side.
            Some(Ok(places)) => {
                assert!(!bad, "a bad call was done");
                let found: Vec<_> = places.iter().map(|place| landed.entries[*place]).collect();
                let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
                assert_eq!(found, names);
                assert!(names.iter().all(|name| times(*name) == 1));
            }
            Some(Err(error)) => {
                // Only who is bad itself, or was in a commit that failed, may fail.
                let lost = entries
                    .iter()
                    .all(|entry| landed.lost.contains(&entry.name));
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

#[rstest]
#[case::inline_engine(drive_and_check::<true>)]
#[case::waiting_engine(drive_and_check::<false>)]
fn together_as_one_by_one(#[case] drive: fn(u64, usize) -> usize, #[values(0, 6)] failing: usize) {
    let together: usize = (0..300).map(|seed| drive(seed, failing)).sum();
    assert!(together > 300, "hardly anything went together: {together}");
}

/// Returns how many calls shared a commit with others.
fn drive_and_check<const INLINE: bool>(seed: u64, failing: usize) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let ledger = Ledger::<INLINE>::new(seed, failing);
    let called = runtime.block_on(drive(&ledger, &mut Rng::with_seed(seed)));
    // What was dropped may still be on its way.
    runtime.block_on(async {
        while !ledger.0.lanes.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    });
    let landed = ledger.0.landed.lock().expect("landed");
    check(&landed, &called);
    let done = called
        .iter()
        .filter(|(_, result)| matches!(result, Some(Ok(_))))
        .count();
    done.saturating_sub(landed.commits)
}

/// An engine that nobody has to wait for.
#[derive(Debug, Clone, Default)]
struct Free(Arc<Lanes<(), ()>>);

impl Work<Free> for () {
    type Output = ();
    type Turn = ();
    const INLINE: bool = false;

    fn lanes(engine: &Free) -> &Lanes<Self, ()> {
        &engine.0
    }

    async fn turn(_engine: &Free, _since: Instant) -> Result<()> {
        Ok(())
    }

    async fn run(_engine: &Free, _turn: (), items: &[Self]) -> Result<Vec<()>, Failed> {
        Ok(vec![(); items.len()])
    }
}

impl Free {
    async fn call(&self) -> Result<()> {
        let alone = async {
            tokio::task::yield_now().await;
            Ok(())
        };
        together(self, "", 1, || vec![()], pin!(alone), drop).await
    }
}

#[tokio::test]
async fn a_call_that_nobody_polls_does_not_keep_others_waiting() {
    let engine = Free::default();
    let mut first = Box::pin(engine.call());
    assert!(poll_immediate(&mut first).await.is_none());
    // It is woken, and its caller waits for another call first.
    engine.call().await.expect("done by somebody else");
    first.await.expect("done as well");
}

#[tokio::test]
async fn a_lone_call_is_done_at_its_first_poll() {
    let ledger = Ledger::<true>::new(1, 0);
    for name in 1..super::PROBE {
        let entry = [Entry {
            name,
            bad: false,
            book: 0,
        }];
        let mut writing = Box::pin(ledger.write(&entry));
        let polled = poll_immediate(&mut writing).await;
        assert!(polled.is_some_and(|result| result.is_ok()));
    }
}

#[tokio::test]
async fn those_who_come_back_go_together_again() {
    const ROUNDS: u32 = 50;
    let ledgers = [1, 2].map(|seed| Ledger::<false>::new(seed, 0));
    let write = async |task: u32| {
        for round in 0..ROUNDS {
            let entry = Entry {
                name: task * ROUNDS + round,
                bad: false,
                book: 0,
            };
            // All leave the one lane for the other, and find it empty.
            for ledger in &ledgers {
                ledger.write(&[entry]).await.expect("a place");
            }
        }
    };
    join_all((0..8).map(write)).await;
    for ledger in ledgers {
        let commits = ledger.0.landed.lock().expect("landed").commits;
        // In a first round one finds nobody.
        assert!(commits < 75, "{commits} commits for {ROUNDS} rounds");
    }
}
