//! On a server.

use std::time::{Duration, Instant};

use apalis::layers::WorkerBuilderExt;
use apalis::prelude::{ParallelizeExt, TaskSink, WorkerBuilder};
use apalis_postgres::{Config, PostgresStorage};
use peer_harness::{Answer, Caller, PAYLOAD, Peer, Workload, until_done};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::{CAN, Seen, VERSION, handle};

pub(crate) struct Apalis(PgPool);

pub(crate) struct Task(PostgresStorage<String>);

impl Peer for Apalis {
    const NAME: &'static str = "apalis";
    const VERSION: &'static str = VERSION;
    const CAN: &'static [Workload] = CAN;
    const HANDS_OUT: bool = true;

    type Caller = Task;

    async fn open(store: &str, tasks: usize) -> Answer<Self> {
        // A connection for each task and one for the worker: none waits for another's.
        let pool = PgPoolOptions::new()
            .max_connections(u32::try_from(tasks)? + 1)
            .connect(store)
            .await?;
        PostgresStorage::setup(&pool).await?;
        Ok(Self(pool))
    }

    async fn caller(&self, _number: usize) -> Answer<Task> {
        Ok(Task(PostgresStorage::new(&self.0)))
    }

    async fn drain(&self, jobs: usize, tasks: usize) -> Answer<Duration> {
        let storage = PostgresStorage::<String>::new(&self.0);
        // The queue is named after the payload's type unless told otherwise.
        let config = Config::default().queue(std::any::type_name::<String>());
        let seen = Seen::default();
        let worker = WorkerBuilder::new("worker")
            .backend(storage.with_config(config))
            .data(seen.clone())
            .concurrency(tasks)
            .parallelize(tokio::spawn)
            .build(handle);
        let start = Instant::now();
        let running = tokio::spawn(worker.run());
        until_done(jobs, &seen, || {
            sqlx::query_scalar("SELECT count(*) FROM apalis.jobs WHERE status = 'Done'")
                .fetch_one(&self.0)
        })
        .await?;
        let time = start.elapsed();
        running.abort();
        Ok(time)
    }
}

impl Caller for Task {
    async fn enqueue(&mut self) -> Answer<()> {
        self.0.push(PAYLOAD.to_owned()).await?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, jobs: usize) -> Answer<()> {
        self.0.push_bulk(vec![PAYLOAD.to_owned(); jobs]).await?;
        Ok(())
    }
}
