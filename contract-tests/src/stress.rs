//! Calls under runtimes that come and go, against a ledger of what was acknowledged.
//!
//! Threads take rounds. Each round is a runtime, of its own or shared with others, with some
//! tasks that enqueue, publish, claim, end claims and run transactions. Futures are dropped, or
//! left unpolled for a while, and runtimes are dropped with calls on their way. From time to
//! time everything pauses, and what is stored is compared with the ledger: what was acknowledged
//! is there exactly once, what was rolled back is not, transactions are whole, jobs that were
//! claimed by dropped calls can be claimed again and have not lost an attempt. Meanwhile no call
//! on a runtime that lives may fail, or take longer than [`LIMIT`].
//!
//! ```no_run
//! use alkstore_contract_tests::reference::ReferenceHarness;
//! use alkstore_contract_tests::stress;
//!
//! # fn test() {
//! stress::run::<ReferenceHarness>();
//! # }
//! ```
//!
//! `ALKSTORE_STRESS_ROUNDS` sets how many rounds there are, and `ALKSTORE_STRESS_SEED` makes the
//! choices of an earlier run again. How threads interleave is the one thing that a seed does not
//! hold.

mod audit;
mod call;
mod ledger;
mod task;

use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use alkstore::{Engine, Store};
use fastrand::Rng;
use futures::future::join_all;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::sleep;

use crate::Harness;
use audit::Audit;
use ledger::Ledger;
use task::{Lifetime, Task};

/// The variable with the number of rounds.
const ROUNDS: &str = "ALKSTORE_STRESS_ROUNDS";
/// The variable with the seed of all choices.
const SEED: &str = "ALKSTORE_STRESS_SEED";

const DEFAULT_ROUNDS: u64 = 1000;
/// Rounds between two comparisons.
const ROUNDS_OF_ONE_LEG: u64 = 250;
const THREADS: usize = 4;
/// The longest that a call may take: longer than any engine's own limit, shorter than for ever.
pub const LIMIT: Duration = Duration::from_secs(40);

/// Runs the stress test on a fresh database.
///
/// Call it outside of any runtime: it makes its own.
///
/// # Panics
///
/// If a call failed or hung, or the database and the ledger differ. The message has the seed.
pub fn run<H: Harness>() {
    let rounds = from_environment(ROUNDS).unwrap_or(DEFAULT_ROUNDS);
    let seed = from_environment(SEED).unwrap_or_else(|| fastrand::u64(..));
    let long_lived = multi_thread();
    let harness = long_lived.block_on(H::new());
    let stores = long_lived.block_on(async { [harness.open().await, harness.open().await] });
    let mut audit = Audit::new(harness.patience());
    let ledger = Arc::new(Ledger::default());
    let next = AtomicU64::new(0);
    let mut last = 0;
    while last < rounds {
        last = rounds.min(last + ROUNDS_OF_ONE_LEG);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let relaxed = Ordering::Relaxed;
                    let below = |round| (round < last).then_some(round + 1);
                    while let Ok(round) = next.fetch_update(relaxed, relaxed, below) {
                        // A store has most of the rounds, another process the others.
                        let store = &stores[usize::from(round % 5 == 4)];
                        let dice = Rng::with_seed(seed ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                        run_round(store, &ledger, dice, long_lived.handle());
                    }
                });
            }
        });
        let compared = long_lived.block_on(audit.compare(&stores[0], &ledger));
        if let Err(difference) = compared {
            panic!("after {last} rounds: {difference}\n{SEED}={seed} makes the same choices");
        }
    }
    long_lived.block_on(async { join_all(stores.iter().map(Store::close)).await });
    long_lived.block_on(async { drop(harness) });
}

/// Runs some tasks on a runtime, which may end before them.
fn run_round<E: Engine>(
    store: &Store<E>,
    ledger: &Arc<Ledger<E>>,
    mut dice: Rng,
    long_lived: &Handle,
) {
    let own = match dice.u8(..3) {
        0 => None,
        1 => Some(current_thread()),
        _ => Some(multi_thread()),
    };
    let ends = Arc::new(AtomicBool::new(false));
    let lifetime = match own {
        None => Lifetime::Endless,
        Some(_) => Lifetime::Ending(Arc::clone(&ends)),
    };
    let tasks: Vec<_> = (0..dice.usize(1..=4))
        .map(|_| {
            Task::new(
                store.clone(),
                Arc::clone(ledger),
                dice.fork(),
                lifetime.clone(),
            )
        })
        .collect();
    let Some(own) = own else {
        let tasks: Vec<_> = tasks
            .into_iter()
            .map(|task| long_lived.spawn(task.run()))
            .collect();
        return finish(ledger, long_lived.block_on(join_all(tasks)));
    };
    let tasks: Vec<_> = tasks
        .into_iter()
        .map(|task| own.spawn(task.run()))
        .collect();
    if dice.bool() {
        finish(ledger, own.block_on(join_all(tasks)));
    } else {
        let moment = Duration::from_micros(dice.u64(..4000));
        own.block_on(async { sleep(moment).await });
    }
    ends.store(true, Ordering::SeqCst);
    if dice.bool() {
        own.shutdown_background();
    }
}

/// Notes tasks that panicked.
fn finish<E: Engine, T, X: Debug>(ledger: &Ledger<E>, tasks: Vec<Result<T, X>>) {
    for error in tasks.into_iter().filter_map(Result::err) {
        ledger.complain(format!("a task ended before its time: {error:?}"));
    }
}

fn current_thread() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("the system has resources to spare")
}

fn multi_thread() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    runtime.expect("the system has threads to spare")
}

fn from_environment<T: FromStr>(variable: &str) -> Option<T> {
    let value = std::env::var(variable).ok()?;
    let parsed = value.parse().ok();
    Some(parsed.unwrap_or_else(|| panic!("{variable} is no number: {value}")))
}
