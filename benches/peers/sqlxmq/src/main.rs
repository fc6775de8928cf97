//! sqlxmq: jobs in SQL functions of the server that a runner of its own hands to handlers.

#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use peer_harness::{Answer, Arguments, Caller, PAYLOAD, Peer, Workload, until_done};
use sqlx::migrate::Migrator;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgExecutor, PgPool};
use sqlxmq::{JobBuilder, JobRunnerOptions};

struct Sqlxmq(PgPool);

struct Task(PgPool);

impl Sqlxmq {
    /// How many jobs there are: it deletes those that are done.
    async fn jobs(&self) -> Result<i64, sqlx::Error> {
        sqlx::query_scalar("SELECT count(*) FROM mq_payloads")
            .fetch_one(&self.0)
            .await
    }
}

impl Peer for Sqlxmq {
    const NAME: &'static str = "sqlxmq";
    const VERSION: &'static str = "0.6.0";
    const CAN: &'static [Workload] = &[
        Workload::Enqueue,
        Workload::EnqueueBatch,
        Workload::ClaimAck,
        Workload::ClaimWithReadyBehind,
    ];
    const HANDS_OUT: bool = true;

    type Caller = Task;

    async fn open(store: &str, tasks: usize) -> Answer<Self> {
        // A connection for each task, one that listens and one that polls.
        let pool = PgPoolOptions::new()
            .max_connections(u32::try_from(tasks)? + 2)
            .connect(store)
            .await?;
        let migrations = Migrator::new(Path::new(env!("MIGRATIONS"))).await?;
        migrations.run(&pool).await?;
        Ok(Self(pool))
    }

    async fn caller(&self, _number: usize) -> Answer<Task> {
        Ok(Task(self.0.clone()))
    }

    async fn drain(&self, jobs: usize, tasks: usize) -> Answer<Duration> {
        let seen = Arc::new(AtomicUsize::new(0));
        let counted = seen.clone();
        let mut options = JobRunnerOptions::new(&self.0, move |mut job| {
            let counted = counted.clone();
            tokio::spawn(async move {
                // One that is not done comes again and is counted then.
                if job.complete().await.is_ok() {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
        });
        // It asks for more once half are done, as by default, so that it takes several at once.
        options.set_concurrency(tasks.div_ceil(2), tasks);
        let before = self.jobs().await?;
        let start = Instant::now();
        let mut running = options.run().await?;
        until_done(jobs, &seen, || async {
            self.jobs().await.map(|now| before - now)
        })
        .await?;
        let time = start.elapsed();
        running.stop().await;
        Ok(time)
    }
}

impl Task {
    async fn add(executor: impl PgExecutor<'_>) -> Answer<()> {
        let mut job = JobBuilder::new("mail");
        job.set_json(PAYLOAD)?.spawn(executor).await?;
        Ok(())
    }
}

impl Caller for Task {
    async fn enqueue(&mut self) -> Answer<()> {
        Self::add(&self.0).await
    }

    /// It has no call for several jobs, but takes part in a transaction.
    async fn enqueue_batch(&mut self, jobs: usize) -> Answer<()> {
        let mut tx = self.0.begin().await?;
        for _ in 0..jobs {
            Self::add(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(())
    }
}

fn main() {
    peer_harness::main::<Sqlxmq>(Arguments::of_process());
}
