//! riverqueue: jobs that workers of its own hand to handlers, on either engine.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use peer_harness::{Answer, Arguments, Caller, PAYLOAD, Peer, Workload, until_done};
use riverqueue::migrate::{PostgresMigrator, SqliteMigrator};
use riverqueue::sqlx::postgres::PgPoolOptions;
use riverqueue::sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use riverqueue::sqlx::{PgPool, SqlitePool, query_scalar};
use riverqueue::{
    BoxError, Client, ClientBuilder, Job, JobArgs, QueueConfig, WorkContext, WorkOutcome, Workers,
};
use serde::{Deserialize, Serialize};

/// How soon a worker may ask for jobs again: the least that it allows. By default it waits a
/// tenth of a second, in which jobs that take no time leave it idle.
const COOLDOWN: Duration = Duration::from_millis(1);

const DONE: &str = "SELECT count(*) FROM river_job WHERE state = 'completed'";

#[derive(Clone, Debug, Deserialize, Serialize, JobArgs)]
#[river(kind = "mail")]
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

#[derive(Clone)]
enum River {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

impl River {
    fn builder(&self) -> ClientBuilder {
        match self {
            Self::Postgres(pool) => Client::builder(pool.clone()),
            Self::Sqlite(pool) => Client::builder(pool.clone()),
        }
    }

    /// How many jobs are done.
    async fn done(&self) -> Result<i64, riverqueue::sqlx::Error> {
        match self {
            Self::Postgres(pool) => query_scalar(DONE).fetch_one(pool).await,
            Self::Sqlite(pool) => query_scalar(DONE).fetch_one(pool).await,
        }
    }
}

struct Task(Client);

impl Peer for River {
    const NAME: &'static str = "riverqueue";
    const VERSION: &'static str = "0.5.0";
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
        let connections = u32::try_from(tasks)? + 4;
        if store.contains("://") {
            let pool = PgPoolOptions::new()
                .max_connections(connections)
                .connect(store)
                .await?;
            PostgresMigrator::new(pool.clone()).migrate_up().await?;
            return Ok(Self::Postgres(pool));
        }
        let options = SqliteConnectOptions::new()
            .filename(store)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(Duration::from_secs(60));
        let pool = SqlitePoolOptions::new()
            .max_connections(connections)
            .connect_with(options)
            .await?;
        SqliteMigrator::new(pool.clone()).migrate_up().await?;
        Ok(Self::Sqlite(pool))
    }

    async fn caller(&self, _number: usize) -> Answer<Task> {
        Ok(Task(self.builder().allow_unregistered_job_kinds().build()?))
    }

    async fn drain(&self, jobs: usize, tasks: usize) -> Answer<Duration> {
        let seen = Arc::new(AtomicUsize::new(0));
        let mut workers = Workers::new();
        let counted = seen.clone();
        workers.add_fn(move |_context: WorkContext, _job: Job<Mail>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, BoxError>(WorkOutcome::Complete) }
        })?;
        let queue = QueueConfig::new(tasks).with_fetch_cooldown(COOLDOWN);
        let client = self
            .builder()
            .workers(workers)
            .queue("default", queue)
            .build()?;
        let start = Instant::now();
        let running = client.start()?;
        until_done(jobs, &seen, || self.done()).await?;
        let time = start.elapsed();
        drop(running);
        Ok(time)
    }
}

impl Caller for Task {
    async fn enqueue(&mut self) -> Answer<()> {
        self.0.insert(Mail::new()).await?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, jobs: usize) -> Answer<()> {
        self.0.insert_many(vec![Mail::new(); jobs]).await?;
        Ok(())
    }
}

fn main() {
    peer_harness::main::<River>(Arguments::of_process());
}
