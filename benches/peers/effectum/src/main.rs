//! effectum: jobs that workers of its own hand to handlers.

#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use effectum::{Error, Job, JobRunner, Queue, RunningJob, Worker};
use peer_harness::{Answer, Arguments, Caller, PAYLOAD, Peer, Workload};
use rusqlite::Connection;

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

    async fn caller(&self, _number: usize) -> Answer<Task> {
        Ok(Task(self.0.clone()))
    }

    async fn drain(&self, jobs: usize, tasks: usize) -> Answer<Duration> {
        let runner = JobRunner::builder("mail", nothing).build();
        let start = Instant::now();
        let worker = Worker::builder(&self.0, ())
            .max_concurrency(u16::try_from(tasks)?)
            .jobs([runner])
            .build()
            .await?;
        // A job counts as finished once that is in the database.
        while worker.counts().finished < u64::try_from(jobs)? {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(start.elapsed())
    }
}

async fn nothing(_job: RunningJob, _context: ()) -> Result<(), Error> {
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
}

fn main() {
    peer_harness::main::<Effectum>(Arguments::of_process());
}
