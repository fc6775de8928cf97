//! The workloads of the comparison benchmarks, the same for every peer.
//!
//! A peer says how it does one operation; how often, from how many tasks and what is timed stands
//! here once. A peer is a binary that calls [`main`], with the command line
//! `peer <workload> --store <path or url> --n <operations> [--tasks T] [--seconds S]`, and prints
//! one line of JSON. `peer workloads [sqlite|postgres]` lists, one a line, what the peer can do
//! there, with `full` where it can open a file with `--durability full`.
//! `peer listen --store <path or url>` prints when it hears something.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod arguments;
mod drained;
mod drive;
mod fill;
mod idle;
mod peer;
mod wake;
mod workload;

use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use serde_json::{Value, json};

pub use arguments::{Arguments, Durability, Engine, Measure};
pub use drained::until_done;
pub use peer::{Caller, Peer};
pub use wake::Ear;
pub use workload::{Front, Workload};

/// About what a small job or event weighs: an id and a few words.
pub const PAYLOAD: &str = "a payload of about one hundred bytes, as jobs and events have that carry \
                           an id and a few words";

/// How many rows `enqueue_batch` commits at once, and how many events `read_since` reads.
pub const ROWS: usize = 1000;

/// How many jobs `claim_batch_ack` takes at once.
pub const CLAIMS: usize = 100;

/// Whatever stops a benchmark: there is nothing to do about it but to say it.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a step gives, or why it stopped.
pub type Answer<T> = Result<T, Failure>;

/// What a measurement has found.
#[derive(Debug)]
struct Outcome {
    operations: usize,
    time: Duration,
    /// What else there is to say, by its name in results.
    more: Vec<(&'static str, Value)>,
}

impl Outcome {
    fn new(operations: usize, time: Duration) -> Self {
        Self {
            operations,
            time,
            more: Vec::new(),
        }
    }

    fn with(mut self, name: &'static str, value: Value) -> Self {
        self.more.push((name, value));
        self
    }
}

/// Runs the peer as the command line says. Without an answer the process says why and exits
/// with 1.
pub fn main<P: Peer>(arguments: Answer<Arguments>) {
    if let Err(failure) = arguments.and_then(run::<P>) {
        eprintln!("{}: {failure}", P::NAME);
        std::process::exit(1);
    }
}

fn run<P: Peer>(arguments: Arguments) -> Answer<()> {
    let (measure, listens) = match arguments {
        Arguments::Workloads(_) => {
            for workload in P::CAN {
                println!("{workload}");
            }
            if P::CAN_BE_FULL {
                println!("full");
            }
            return Ok(());
        }
        Arguments::Listen(measure) => (measure, true),
        Arguments::Measure(measure) => (measure, false),
    };
    if !P::CAN.contains(&measure.workload) {
        return Err(format!("it cannot do {}", measure.workload).into());
    }
    // Two threads, whatever the machine has, so that results of different machines compare.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let work = async {
        let peer = open::<P>(&measure).await?;
        if listens {
            return wake::listen_here(peer).await;
        }
        let outcome = perform(peer, &measure).await?;
        println!("{}", line::<P>(&measure, &outcome));
        Ok(())
    };
    {
        // Peers spawn tasks of their own also where the harness has threads.
        let _inside = runtime.enter();
        if P::BLOCKS {
            block_on(work)?;
        } else {
            runtime.block_on(work)?;
        }
    }
    // A peer's own tasks would keep a graceful end waiting.
    runtime.shutdown_background();
    Ok(())
}

async fn open<P: Peer>(measure: &Measure) -> Answer<P> {
    match (measure.engine(), measure.durability) {
        (Engine::Sqlite, Durability::Full) => P::open_full(&measure.store, measure.tasks).await,
        _ => P::open(&measure.store, measure.tasks).await,
    }
}

async fn perform<P: Peer>(peer: P, measure: &Measure) -> Answer<Outcome> {
    let peer = Arc::new(peer);
    match measure.workload {
        Workload::WakeSameProcess => wake::same_process(&peer, measure).await,
        Workload::WakeOtherProcess => wake::other_process(&peer, measure).await,
        Workload::Idle => idle::measure(&peer, measure.time).await,
        _ => drive::measure(&*peer, measure).await,
    }
}

/// The result as it is printed.
fn line<P: Peer>(measure: &Measure, outcome: &Outcome) -> Value {
    let seconds = outcome.time.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "nobody does 2^52 operations")]
    let per_second = outcome.operations as f64 / seconds;
    let engine = measure.engine();
    let mut line = json!({
        "peer": P::NAME,
        "version": P::VERSION,
        "engine": engine.name(),
        "workload": measure.workload.name(),
        "tasks": measure.tasks,
        "operations": outcome.operations,
        "seconds": seconds,
        "per_second": per_second,
        "durability": P::settings(engine, measure.durability),
    });
    if measure.workload.is_timed_by_call() {
        line["ms_per_call"] = (1000.0 / per_second).into();
    }
    for (name, value) in &outcome.more {
        line[*name] = value.clone();
    }
    line
}
