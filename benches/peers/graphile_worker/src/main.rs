//! graphile_worker: jobs on Postgres that workers of its own hand to handlers.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, TaskHandler, WorkerContext, WorkerOptions, WorkerUtils,
};
use peer_harness::{Answer, Arguments, Caller, PAYLOAD, Peer, Workload, until_done};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// How many jobs the handler has seen.
#[derive(Debug, Clone, Default)]
struct Seen(Arc<AtomicUsize>);

#[derive(Clone, Deserialize, Serialize)]
struct Mail {
    text: String,
}

impl Mail {
    fn new() -> Self {
        Self {
            text: PAYLOAD.to_owned(),
        }
    }
}

impl TaskHandler for Mail {
    const IDENTIFIER: &'static str = "mail";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        match context.get_ext::<Seen>() {
            Some(seen) => {
                seen.0.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            None => Err("the handler cannot count"),
        }
    }
}

struct Graphile(PgPool);

struct Task(WorkerUtils);

impl Graphile {
    /// How many jobs there are: it deletes those that are done.
    async fn jobs(&self) -> Result<i64, sqlx::Error> {
        sqlx::query_scalar("SELECT count(*) FROM graphile_worker._private_jobs")
            .fetch_one(&self.0)
            .await
    }

    fn options(&self) -> WorkerOptions {
        WorkerOptions::default()
            .pg_pool(self.0.clone())
            .define_job::<Mail>()
    }
}

impl Peer for Graphile {
    const NAME: &'static str = "graphile_worker";
    const VERSION: &'static str = "0.14.1";
    const CAN: &'static [Workload] = &[
        Workload::Enqueue,
        Workload::EnqueueBatch,
        Workload::ClaimAck,
        Workload::ClaimWithReadyBehind,
    ];
    const HANDS_OUT: bool = true;

    type Caller = Task;

    async fn open(store: &str, tasks: usize) -> Answer<Self> {
        // A connection for each task and some for its own work.
        let pool = PgPoolOptions::new()
            .max_connections(u32::try_from(tasks)? + 4)
            .connect(store)
            .await?;
        Ok(Self(pool))
    }

    async fn caller(&self, _number: usize) -> Answer<Task> {
        // To start a worker makes the schema; it does nothing until it is run.
        Ok(Task(self.options().init().await?.create_utils()))
    }

    async fn drain(&self, jobs: usize, tasks: usize) -> Answer<Duration> {
        let seen = Seen::default();
        let worker = self
            .options()
            .concurrency(tasks)
            .add_extension(seen.clone())
            .init()
            .await?;
        let before = self.jobs().await?;
        let start = Instant::now();
        let running = tokio::spawn(async move { worker.run().await });
        until_done(jobs, &seen.0, || async {
            self.jobs().await.map(|now| before - now)
        })
        .await?;
        let time = start.elapsed();
        running.abort();
        Ok(time)
    }
}

impl Caller for Task {
    async fn enqueue(&mut self) -> Answer<()> {
        self.0.add_job(Mail::new(), JobSpec::default()).await?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, jobs: usize) -> Answer<()> {
        let spec = JobSpec::default();
        let jobs: Vec<_> = (0..jobs).map(|_| (Mail::new(), &spec)).collect();
        self.0.add_jobs(&jobs).await?;
        Ok(())
    }
}

fn main() {
    peer_harness::main::<Graphile>(Arguments::of_process());
}
