//! The workloads of the comparison benchmarks, the same for every peer.
//!
//! A peer says how it does one operation; how often, from how many tasks and what is timed stands
//! here once. A peer is a binary that calls [`main`], with the command line
//! `peer <workload> --store <path or url> --n <operations> [--tasks T]`, and prints one line of
//! JSON. `peer workloads` lists, one a line, what the peer can do.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod arguments;
mod drive;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::executor::block_on;

pub use arguments::{Arguments, Engine, Measure};

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

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Jobs enqueued, each in a commit of its own.
    Enqueue,
    /// Jobs enqueued, [`ROWS`] in a commit.
    EnqueueBatch,
    /// Jobs claimed one at a time and acked one at a time.
    ClaimAck,
    /// Jobs claimed [`CLAIMS`] at a time and acked together.
    ClaimBatchAck,
    /// Events published, each in a commit of its own.
    Publish,
    /// [`ROWS`] events read back from somewhere in a stream.
    ReadSince,
    /// [`Workload::ClaimAck`] while many more jobs are ready than are claimed.
    ClaimWithReadyBehind,
}

impl Workload {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Enqueue,
        Self::EnqueueBatch,
        Self::ClaimAck,
        Self::ClaimBatchAck,
        Self::Publish,
        Self::ReadSince,
        Self::ClaimWithReadyBehind,
    ];

    /// Its name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::EnqueueBatch => "enqueue_batch",
            Self::ClaimAck => "claim_ack",
            Self::ClaimBatchAck => "claim_batch_ack",
            Self::Publish => "publish",
            Self::ReadSince => "read_since",
            Self::ClaimWithReadyBehind => "claim_with_ready_behind",
        }
    }

    /// The workload of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let all = Self::ALL.iter().copied();
        all.into_iter().find(|workload| workload.name() == name)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who is measured.
pub trait Peer: Sized + Send + Sync + 'static {
    /// Its name in results.
    const NAME: &'static str;
    /// The published version, or what is measured instead.
    const VERSION: &'static str;
    /// What it can do. A workload that it has no call for is left out rather than imitated.
    const CAN: &'static [Workload];
    /// Whether its calls block the thread. Then each task is a thread of its own.
    const BLOCKS: bool = false;
    /// Whether jobs are handed to a handler, see [`Peer::drain`], rather than claimed by a call.
    const HANDS_OUT: bool = false;

    /// One task's way to the store.
    type Caller: Caller;

    /// Opens the store, for this many tasks, and makes its schema.
    fn open(store: &str, tasks: usize) -> impl Future<Output = Answer<Self>> + Send;

    /// The way to the store of the task with this number.
    fn caller(&self, number: usize) -> impl Future<Output = Answer<Self::Caller>> + Send;

    /// For a peer with workers of its own: has so many ready jobs done by a handler that does
    /// nothing, with this concurrency, and returns how long it took from the worker's start
    /// until the last job was done in the database.
    fn drain(&self, _jobs: usize, _tasks: usize) -> impl Future<Output = Answer<Duration>> + Send {
        async { Err("the peer hands out no jobs".into()) }
    }
}

/// One task's operations. Those that are not in [`Peer::CAN`] are never called.
pub trait Caller: Send + 'static {
    /// Enqueues one job and commits.
    fn enqueue(&mut self) -> impl Future<Output = Answer<()>> + Send {
        async { Err("the peer does not enqueue".into()) }
    }

    /// Enqueues many jobs in one commit.
    fn enqueue_batch(&mut self, _jobs: usize) -> impl Future<Output = Answer<()>> + Send {
        async { Err("the peer does not enqueue in batches".into()) }
    }

    /// Claims one job and acks it. Returns whether there was one.
    fn claim_ack(&mut self) -> impl Future<Output = Answer<bool>> + Send {
        async { Err("the peer does not claim".into()) }
    }

    /// Claims up to so many jobs, acks all in one call and returns how many.
    fn claim_batch_ack(&mut self, _jobs: usize) -> impl Future<Output = Answer<usize>> + Send {
        async { Err("the peer does not claim in batches".into()) }
    }

    /// Publishes one event and commits.
    fn publish(&mut self) -> impl Future<Output = Answer<()>> + Send {
        async { Err("the peer does not publish".into()) }
    }

    /// Publishes events as fast as it can, before the clock starts.
    fn publish_batch(&mut self, events: usize) -> impl Future<Output = Answer<()>> + Send {
        async move {
            for _ in 0..events {
                self.publish().await?;
            }
            Ok(())
        }
    }

    /// Reads events after an offset, the first of the stream being 1, and returns how many.
    fn read_since(
        &mut self,
        _offset: usize,
        _limit: usize,
    ) -> impl Future<Output = Answer<usize>> + Send {
        async { Err("the peer does not read events back".into()) }
    }
}

/// For [`Peer::drain`]: waits until the handler has seen so many jobs, and then until they are
/// done in the database. To ask it earlier would slow the worker down.
///
/// # Errors
///
/// The database's.
pub async fn until_done<F, E>(jobs: usize, seen: &AtomicUsize, done: impl Fn() -> F) -> Answer<()>
where
    F: Future<Output = Result<i64, E>>,
    Failure: From<E>,
{
    while seen.load(Ordering::Relaxed) < jobs {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while usize::try_from(done().await?)? < jobs {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
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
    let Arguments::Measure(measure) = arguments else {
        for workload in P::CAN {
            println!("{workload}");
        }
        return Ok(());
    };
    if !P::CAN.contains(&measure.workload) {
        return Err(format!("it cannot do {}", measure.workload).into());
    }
    // Two threads, whatever the machine has, so that results of different machines compare.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let seconds = {
        // Peers spawn tasks of their own also where the harness has threads.
        let _inside = runtime.enter();
        if P::BLOCKS {
            block_on(drive::measure::<P>(&measure))?
        } else {
            runtime.block_on(drive::measure::<P>(&measure))?
        }
    }
    .as_secs_f64();
    let operations = measure.operations;
    #[expect(clippy::cast_precision_loss, reason = "nobody does 2^52 operations")]
    let per_second = operations as f64 / seconds;
    let engine = measure.engine();
    let mut line = serde_json::json!({
        "peer": P::NAME,
        "version": P::VERSION,
        "engine": engine.name(),
        "workload": measure.workload.name(),
        "tasks": measure.tasks,
        "operations": operations,
        "seconds": seconds,
        "per_second": per_second,
        "durability": engine.durability(),
    });
    if measure.workload == Workload::ReadSince {
        line["ms_per_call"] = (1000.0 / per_second).into();
    }
    println!("{line}");
    // A peer's own tasks would keep a graceful end waiting.
    runtime.shutdown_background();
    Ok(())
}
