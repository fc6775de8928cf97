//! The polls of tasks that do nothing but call the store.

use std::time::{Duration, Instant};

use alkstore::{EnqueueOpts, QueueOpts, Result, Store};
use alkstore_benches::PAYLOAD;
use alkstore_sqlite::Sqlite;

use crate::arguments::Arguments;
use crate::table::{self, quantile};
use crate::timed::{Timed, Took};
use crate::{TASKS, open, runtimes};

/// What a task does over and over.
#[derive(Debug, Clone, Copy)]
enum Workload {
    Enqueue,
    ClaimAck,
    Publish,
    /// Each of the others in turn.
    Mixed,
}

impl Workload {
    /// Enqueues come before the claims, which take what was left.
    const ALL: [(&'static str, Self); 4] = [
        ("enqueue", Self::Enqueue),
        ("claim + ack", Self::ClaimAck),
        ("publish", Self::Publish),
        ("all three", Self::Mixed),
    ];
}

/// The polls of tasks, and of the single calls in them.
#[derive(Debug, Default)]
struct Polls {
    tasks: Vec<Took>,
    calls: Vec<Took>,
}

/// Measures every workload on each runtime.
pub(crate) fn polls(arguments: &Arguments) {
    table::begin(
        "Polls: ms without waits for a processor, 64 tasks on SQLite",
        &[
            "runtime",
            "workload",
            "polls of",
            "polls",
            "median",
            "p99",
            "p99.9",
            "max",
            "over 1 ms",
            "max with the waits",
        ],
    );
    let usual = arguments.length.pick(20, 300, 3000);
    let time = arguments.lasting(Duration::from_millis(usual));
    for (name, runtime) in runtimes() {
        let (_folder, _, store) = runtime.block_on(open());
        let mut all = Polls::default();
        for (workload_name, workload) in Workload::ALL {
            eprintln!("{name}: {workload_name}");
            let mut polls = runtime.block_on(run(&store, workload, time));
            show(name, workload_name, &polls);
            all.tasks.append(&mut polls.tasks);
            all.calls.append(&mut polls.calls);
        }
        show(name, "together", &all);
        runtime.block_on(store.close());
    }
}

fn show(runtime: &str, workload: &str, polls: &Polls) {
    for (of, polls) in [("tasks", &polls.tasks), ("calls", &polls.calls)] {
        let mut cells = vec![runtime.to_owned(), workload.to_owned(), of.to_owned()];
        cells.push(polls.len().to_string());
        let mut own: Vec<_> = polls.iter().map(|poll| poll.own).collect();
        for share in [0.5, 0.99, 0.999, 1.0] {
            cells.push(millis(quantile(&mut own, share)));
        }
        let over = own.iter().filter(|own| own.as_millis() > 0).count();
        cells.push(over.to_string());
        let whole = polls.iter().map(|poll| poll.whole).max();
        cells.push(millis(whole.unwrap_or_default()));
        table::row(&cells);
    }
}

/// Milliseconds.
pub(crate) fn millis(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}

async fn run(store: &Store<Sqlite>, workload: Workload, time: Duration) -> Polls {
    let queue = store.queue("mail", QueueOpts::default());
    let queue = queue.expect("the name is valid");
    if let Workload::ClaimAck = workload {
        for _ in 0..time.as_millis() / 20 + 1 {
            let jobs = queue.enqueue_batch(&[PAYLOAD; 1000], EnqueueOpts::default());
            jobs.await.expect("the jobs are enqueued");
        }
    }
    let end = Instant::now() + time;
    let tasks = (0..TASKS).map(|_| {
        let store = store.clone();
        tokio::spawn(Timed::new(async move {
            let mut calls = Vec::new();
            while Instant::now() < end {
                let (done, polls) = Timed::new(once(&store, workload)).await;
                done.expect("the call succeeds");
                calls.extend(polls);
            }
            calls
        }))
    });
    let mut all = Polls::default();
    for task in tasks.collect::<Vec<_>>() {
        let (calls, polls) = task.await.expect("no task panics");
        all.calls.extend(calls);
        all.tasks.extend(polls);
    }
    all
}

async fn once(store: &Store<Sqlite>, workload: Workload) -> Result<()> {
    let queue = store.queue("mail", QueueOpts::default())?;
    if let Workload::Enqueue | Workload::Mixed = workload {
        queue.enqueue(PAYLOAD, EnqueueOpts::default()).await?;
    }
    if let Workload::ClaimAck | Workload::Mixed = workload
        && let Some(job) = queue.claim_one("worker").await?
    {
        job.ack().await?;
    }
    if let Workload::Publish | Workload::Mixed = workload {
        store.stream("users")?.publish(PAYLOAD).await?;
    }
    Ok(())
}
