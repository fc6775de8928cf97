//! The operations that are measured, and what one costs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use alkstore::{BoxedEngine, BoxedStore, EnqueueOpts, Queue, QueueOpts, Result, Stream};
use alkstore_benches::PAYLOAD;

use crate::table::quantile;

/// What is measured. Each claim finds a job that an enqueue of the same round has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Enqueue,
    ClaimAck,
    Publish,
    Read,
}

impl Operation {
    pub(crate) const ALL: [Self; 4] = [Self::Enqueue, Self::ClaimAck, Self::Publish, Self::Read];
    pub(crate) const WRITES: [Self; 3] = [Self::Enqueue, Self::ClaimAck, Self::Publish];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::ClaimAck => "claim + ack",
            Self::Publish => "publish",
            Self::Read => "read",
        }
    }
}

/// What the operations work on.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) queues: Vec<Queue<BoxedEngine>>,
    pub(crate) streams: Vec<Stream<BoxedEngine>>,
    pub(crate) payload: String,
    /// What a read asks for: after which offset, how many events.
    pub(crate) read: (i64, i64),
}

impl Work {
    /// So many queues and streams, with payloads of about 100 bytes.
    pub(crate) fn on(store: &BoxedStore, names: usize) -> Self {
        let queue = |n| store.queue(&format!("queue-{n}"), QueueOpts::default());
        let stream = |n| store.stream(&format!("stream-{n}"));
        let queues: Result<_> = (0..names).map(queue).collect();
        let streams: Result<_> = (0..names).map(stream).collect();
        Self {
            queues: queues.expect("the names are valid"),
            streams: streams.expect("the names are valid"),
            payload: PAYLOAD.to_owned(),
            read: (0, 100),
        }
    }

    /// Puts so many jobs into each queue and so many events into each stream.
    pub(crate) async fn fill(&self, jobs: usize, events: usize) {
        const BATCH: usize = 1000;
        let payloads = vec![self.payload.as_str(); BATCH];
        let keyed: Vec<_> = payloads.iter().map(|payload| (None, *payload)).collect();
        for queue in &self.queues {
            for from in (0..jobs).step_by(BATCH) {
                let batch = &payloads[..BATCH.min(jobs - from)];
                let ids = queue.enqueue_batch(batch, EnqueueOpts::default()).await;
                ids.expect("the jobs are enqueued");
            }
        }
        for stream in &self.streams {
            for from in (0..events).step_by(BATCH) {
                let batch = &keyed[..BATCH.min(events - from)];
                let offsets = stream.publish_batch(batch).await;
                offsets.expect("the events are published");
            }
        }
    }

    /// Does an operation, the `at`th: they take turns on the queues and streams.
    pub(crate) async fn once(&self, operation: Operation, at: usize) -> Result<()> {
        let queue = &self.queues[at % self.queues.len()];
        let stream = &self.streams[at % self.streams.len()];
        match operation {
            Operation::Enqueue => {
                let id = queue.enqueue(&self.payload, EnqueueOpts::default());
                id.await.map(drop)
            }
            Operation::ClaimAck => loop {
                if let Some(job) = queue.claim_one("worker").await? {
                    assert!(job.ack().await?, "a claim of minutes has not lapsed");
                    return Ok(());
                }
                // Somebody else has looked at the one that is left, and let it go.
                tokio::task::yield_now().await;
            },
            Operation::Publish => stream.publish(&self.payload).await.map(drop),
            Operation::Read => {
                let (after, limit) = self.read;
                let events = stream.read_since(after, limit).await?;
                assert!(!events.is_empty(), "there are events to read");
                Ok(())
            }
        }
    }
}

/// Does an operation `each` times in each of so many tasks at once, and returns how long each
/// call took. Between two calls a task lets others run, as one does that has more to do.
pub(crate) async fn round(
    work: &Arc<Work>,
    operation: Operation,
    tasks: usize,
    each: usize,
    first: usize,
) -> Vec<Duration> {
    let task = |task: usize| {
        let work = Arc::clone(work);
        async move {
            let mut calls = Vec::with_capacity(each);
            for at in 0..each {
                let begin = Instant::now();
                let done = work.once(operation, first + task * each + at).await;
                done.expect("the operation succeeds");
                calls.push(begin.elapsed());
                tokio::task::yield_now().await;
            }
            calls
        }
    };
    let tasks: Vec<_> = (0..tasks).map(|at| tokio::spawn(task(at))).collect();
    let mut calls = Vec::new();
    for task in tasks {
        calls.extend(task.await.expect("no task panics"));
    }
    calls
}

/// What an operation costs, in medians.
#[derive(Debug, Default)]
pub(crate) struct Cost {
    /// All calls.
    pub(crate) calls: Vec<Duration>,
    /// For each round its time, divided by its operations.
    pub(crate) shares: Vec<Duration>,
}

impl Cost {
    /// Adds a round, which took so long as a whole.
    pub(crate) fn add(&mut self, whole: Duration, calls: Vec<Duration>) {
        let operations = u32::try_from(calls.len()).expect("a round is short");
        self.shares.push(whole / operations);
        self.calls.extend(calls);
    }

    /// The median call, in µs.
    pub(crate) fn call(&mut self) -> String {
        micros(quantile(&mut self.calls, 0.5))
    }

    /// The median round's time for each operation, in µs, and the median call.
    pub(crate) fn share_and_call(&mut self) -> String {
        let share = micros(quantile(&mut self.shares, 0.5));
        format!("{share} ({})", self.call())
    }
}

/// Measures operations in turn, in rounds, for about `budget` each.
pub(crate) async fn costs(
    work: &Arc<Work>,
    operations: &[Operation],
    (tasks, each): (usize, usize),
    budget: Duration,
) -> Vec<Cost> {
    let mut costs: Vec<_> = operations.iter().map(|_| Cost::default()).collect();
    let mut times = vec![Duration::ZERO; operations.len()];
    // The first round warms up: statements are prepared, connections are made.
    for number in 0.. {
        for ((operation, cost), time) in operations.iter().zip(&mut costs).zip(&mut times) {
            let begin = Instant::now();
            let calls = round(work, *operation, tasks, each, number * tasks * each).await;
            let whole = begin.elapsed();
            if number > 0 {
                cost.add(whole, calls);
                *time += whole;
            }
        }
        let most = budget * u32::try_from(operations.len()).expect("there are few");
        if number > 0 && times.iter().sum::<Duration>() >= most {
            break;
        }
    }
    costs
}

/// Microseconds, with as many digits as are worth reading.
pub(crate) fn micros(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    let digits = match micros {
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{micros:.digits$}")
}
