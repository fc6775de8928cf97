//! underway: jobs on Postgres. Its worker's step, one job taken, handled and marked as done, is a
//! call of its own.

#![forbid(unsafe_code)]

use std::sync::Arc;

use peer_harness::{Answer, Arguments, Caller, PAYLOAD, Peer, Workload};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres, Transaction};
use tokio::runtime::Handle;
use tokio::task::block_in_place;
use underway::task::Result as TaskResult;
use underway::{Queue, Worker};

/// A worker's job holds a connection while others record its heartbeat and take the next.
const CONNECTIONS: usize = 3;

struct Underway {
    pool: PgPool,
    queue: Arc<Queue<Nothing>>,
}

struct Task {
    pool: PgPool,
    queue: Arc<Queue<Nothing>>,
    worker: Worker<Nothing>,
}

/// The handler.
struct Nothing;

impl underway::Task for Nothing {
    type Input = String;
    type Output = ();

    async fn execute(&self, _tx: Transaction<'_, Postgres>, _input: String) -> TaskResult<()> {
        Ok(())
    }
}

impl Peer for Underway {
    const NAME: &'static str = "underway";
    const VERSION: &'static str = "0.2.0";
    const CAN: &'static [Workload] = &[
        Workload::Enqueue,
        Workload::EnqueueBatch,
        Workload::ClaimAck,
        Workload::ClaimWithReadyBehind,
    ];

    type Caller = Task;

    async fn open(store: &str, tasks: usize) -> Answer<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(u32::try_from(tasks * CONNECTIONS)?)
            .connect(store)
            .await?;
        // This future of its cannot move to another thread, so the thread waits.
        block_in_place(|| Handle::current().block_on(underway::run_migrations(&pool)))?;
        let queue = Queue::builder()
            .name("mail")
            .pool(pool.clone())
            .build()
            .await?;
        Ok(Self {
            pool,
            queue: Arc::new(queue),
        })
    }

    async fn caller(&self, _number: usize) -> Answer<Task> {
        Ok(Task {
            pool: self.pool.clone(),
            queue: self.queue.clone(),
            worker: Worker::new(self.queue.clone(), Nothing),
        })
    }
}

impl Caller for Task {
    async fn enqueue(&mut self) -> Answer<()> {
        let payload = PAYLOAD.to_owned();
        self.queue.enqueue(&self.pool, &Nothing, &payload).await?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, jobs: usize) -> Answer<()> {
        let payloads = vec![PAYLOAD.to_owned(); jobs];
        self.queue
            .enqueue_multi(&self.pool, &Nothing, &payloads)
            .await?;
        Ok(())
    }

    async fn claim_ack(&mut self) -> Answer<bool> {
        Ok(self.worker.process_next_task().await?.is_some())
    }
}

fn main() {
    peer_harness::main::<Underway>(Arguments::of_process());
}
