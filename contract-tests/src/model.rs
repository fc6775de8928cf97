//! A random walk over the whole contract, in lock step with the reference engine.
//!
//! The cases of the suite ask what somebody thought of. This asks the rest: two engines run
//! the same random sequence of operations on two stores each, which are two processes, and
//! after each operation what both showed must be the same: every field of a job, every event,
//! every `bool`, every error's variant; at the end everything that is stored.
//!
//! What an engine may choose is taken out: ids and tokens are compared by their order. Both
//! clocks are the host's plus what the operations advanced, so that both sides see the same
//! second, and a sequence during which a second ended within an operation is begun again:
//! deadlines are met and missed exactly. Wakes and the scheduler's own loop are left out.
//!
//! ```no_run
//! use alkstore_contract_tests::model;
//! use alkstore_contract_tests::reference::ReferenceHarness;
//!
//! # async fn test() {
//! model::sequences::<ReferenceHarness>().await;
//! # }
//! ```
//!
//! `ALKSTORE_MODEL_SEQUENCES` sets how many sequences there are, and `ALKSTORE_MODEL_SEED`
//! runs the one of that seed again. The real clock is the one thing that a seed does not hold.

mod claim;
mod dice;
mod everything;
mod lock;
mod operation;
mod outbox;
mod queue;
mod scheduler;
mod seen;
mod side;
mod step;
mod stream;
mod tx;

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Harness;
use crate::reference::ReferenceHarness;
use operation::Operation;
use seen::Seen;
use side::Side;

/// The variable with the seed of the one sequence to run.
const SEED: &str = "ALKSTORE_MODEL_SEED";
/// The variable with the number of sequences.
const SEQUENCES: &str = "ALKSTORE_MODEL_SEQUENCES";

const DEFAULT_SEQUENCES: u64 = 60;
const OPERATIONS: usize = 40;

/// No operation starts so late in a second.
const LAST_MOMENTS: Duration = Duration::from_millis(80);
/// How long a sequence may take before it counts as hanging.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often a sequence may be begun again before the host is too slow for it.
const MOST_ATTEMPTS: usize = 50;

/// Runs sequences of 40 operations from consecutive seeds, 60 unless the environment says
/// another number or a seed.
///
/// # Panics
///
/// As [`lock_step`] does.
pub async fn sequences<H: Harness>() {
    let (first, count) = match (number(SEED), number(SEQUENCES)) {
        (Some(seed), _) => (seed, 1),
        (None, count) => (0, count.unwrap_or(DEFAULT_SEQUENCES)),
    };
    for seed in (first..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
        lock_step::<H>(seed, OPERATIONS).await;
    }
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is a number, not `{value}`")))
}

/// Runs one sequence on a fresh database, with a look at everything at its end.
///
/// # Panics
///
/// If the engine shows something else than the reference; the message has the operations up
/// to there. If the sequence takes a minute, or no attempt at it is fast enough.
pub async fn lock_step<H: Harness>(seed: u64, operations: usize) {
    for _ in 0..MOST_ATTEMPTS {
        let (model, tested) = (ReferenceHarness::new().await, H::new().await);
        match compare(&model, &tested, seed, operations).await {
            Outcome::Same => return,
            Outcome::Differs(how) => panic!("{how}"),
            Outcome::TooSlow => {}
        }
    }
    panic!("seed {seed}: an operation ran into the next second in each attempt");
}

/// How a sequence went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Both sides showed the same.
    Same,
    /// They did not: the seed, the operations up to there, and what each side showed.
    Differs(String),
    /// A second ended within an operation, so the sides may have seen different ones.
    TooSlow,
}

/// Runs one sequence on two databases that are fresh, whatever their engines.
///
/// # Panics
///
/// If the sequence takes a minute.
pub async fn compare<M: Harness, H: Harness>(
    model: &M,
    tested: &H,
    seed: u64,
    operations: usize,
) -> Outcome {
    let operations = Operation::sequence(seed, operations);
    let run = walk(model, tested, seed, &operations);
    let ended = tokio::time::timeout(DEADLINE, run).await;
    ended.unwrap_or_else(|_| panic!("seed {seed}: it did not end within {DEADLINE:?}"))
}

async fn walk<M: Harness, H: Harness>(
    model: &M,
    tested: &H,
    seed: u64,
    operations: &[Operation],
) -> Outcome {
    let (mut model, mut tested) = (Side::new(model).await, Side::new(tested).await);
    for (place, operation) in operations.iter().enumerate() {
        let second = early_second().await;
        let (expected, shown) = (model.run(operation).await, tested.run(operation).await);
        if since_epoch().as_secs() != second {
            return Outcome::TooSlow;
        }
        if let Some((expected, shown)) = expected.differ(&shown) {
            return Outcome::Differs(report(seed, &operations[..=place], expected, shown));
        }
    }
    // What waits at close must not wait for the next sequence.
    for store in &tested.stores {
        store.close().await;
    }
    Outcome::Same
}

fn report(seed: u64, operations: &[Operation], expected: &Seen, shown: &Seen) -> String {
    let mut report = format!("seed {seed} ({SEED}={seed} runs it again):\n");
    for (place, operation) in operations.iter().enumerate() {
        writeln!(report, "{place:>4}: {operation:?}").ok();
    }
    let both = format!("the model showed:  {expected:?}\nthe engine showed: {shown:?}");
    report + &both
}

/// The host's second, once it is not about to end.
async fn early_second() -> u64 {
    loop {
        let now = since_epoch();
        let left = Duration::from_secs(1) - Duration::from_nanos(now.subsec_nanos().into());
        if left > LAST_MOMENTS {
            return now.as_secs();
        }
        tokio::time::sleep(left).await;
    }
}

fn since_epoch() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

/// The walk can move to another thread, whatever the engines.
#[cfg(test)]
mod spawnable {
    use super::*;

    fn send<F: Send>(_: F) {}

    #[allow(dead_code, reason = "it is checked by being compiled")]
    fn futures_are_send<H: Harness>() {
        send(sequences::<H>());
        send(lock_step::<H>(0, 0));
    }
}
