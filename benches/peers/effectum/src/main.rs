//! effectum: jobs that workers of its own hand to handlers.

#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use effectum::{Error, Job, JobRunner, Queue, RunningJob, Worker};
use peer_harness::{
    Answer, Arguments, Caller, Durability, Engine, Front, PAYLOAD, Peer, ROWS, Workload, until_done,
};
use rusqlite::Connection;
use time::OffsetDateTime;

/// Far enough from now for any run.
const LATER: Duration = Duration::from_secs(3600);

/// How many jobs the handler has seen.
type Seen = Arc<AtomicUsize>;

struct Effectum(Arc<Queue>);

struct Task(Arc<Queue>);

impl Peer for Effectum {
    const NAME: &'static str = "effectum";
    const VERSION: &'static str = "0.7.0";
    const CAN: &'static [Workload] = &[
        Workload::Enqueue,
        Workload::EnqueueBatch,
        Workload::ClaimAck,
        Workload::ClaimWithReadyBehind,
        Workload::ClaimWithInFront(Front::Delayed),
    ];
    const HANDS_OUT: bool = true;

    type Caller = Task;

    /// It sets `synchronous=NORMAL` itself but leaves the file in the rollback journal. The
    /// write-ahead log is a property of the file, so it is enough to switch it once, before.
    async fn open(store: &str, _tasks: usize) -> Answer<Self> {
        let switched: String =
            Connection::open(store)?
                .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if switched != "wal" {
            return Err(format!("the journal is {switched}").into());
        }
        Ok(Self(Arc::new(Queue::new(Path::new(store)).await?)))
    }

    fn settings(_engine: Engine, _durability: Durability) -> String {
        "WAL, switched before it opens the file; synchronous=NORMAL, its own".to_owned()
    }

    async fn caller(&self, _number: usize) -> Answer<Task> {
        Ok(Task(self.0.clone()))
    }

    async fn drain(&self, jobs: usize, tasks: usize) -> Answer<Duration> {
        let runner = JobRunner::builder("mail", count).build();
        let seen = Seen::default();
        let start = Instant::now();
        let worker = Worker::builder(&self.0, seen.clone())
            .max_concurrency(u16::try_from(tasks)?)
            .jobs([runner])
            .build()
            .await?;
        // A job counts as finished once that is in the database.
        until_done(jobs, &seen, || {
            std::future::ready(i64::try_from(worker.counts().finished))
        })
        .await?;
        Ok(start.elapsed())
    }
}

async fn count(_job: RunningJob, seen: Seen) -> Result<(), Error> {
    seen.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

impl Task {
    fn job() -> Answer<Job> {
        Ok(Job::builder("mail").json_payload(PAYLOAD)?.build())
    }
}

impl Caller for Task {
    async fn enqueue(&mut self) -> Answer<()> {
        self.0.add_job(Self::job()?).await?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, jobs: usize) -> Answer<()> {
        let jobs: Answer<Vec<_>> = (0..jobs).map(|_| Self::job()).collect();
        self.0.add_jobs(jobs?).await?;
        Ok(())
    }

    /// The only front that it is asked for is of delayed jobs.
    async fn put_in_front(&mut self, _front: Front, jobs: usize) -> Answer<()> {
        let later = OffsetDateTime::now_utc() + LATER;
        let mut left = jobs;
        while left > 0 {
            let batch = left.min(ROWS);
            let delayed: Answer<Vec<_>> = (0..batch)
                .map(|_| {
                    let job = Job::builder("mail").json_payload(PAYLOAD)?;
                    Ok(job.priority(10).run_at(later).build())
                })
                .collect();
            self.0.add_jobs(delayed?).await?;
            left -= batch;
        }
        Ok(())
    }
}

fn main() {
    peer_harness::main::<Effectum>(Arguments::of_process());
}
