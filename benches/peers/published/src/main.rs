//! The alkstore 0.1.0 of crates.io, another project with the same mechanisms, on either engine.

#![forbid(unsafe_code)]

use std::sync::Arc;

use alkstore::{EnqueueOpts, Queue, QueueOpts, Store, StreamHandle};
use alkstore_postgres::PgOpts;
use alkstore_sqlite::SqliteOpts;
use peer_harness::{Answer, Arguments, Caller, Ear, Front, PAYLOAD, Peer, ROWS, Workload};

/// What is notified and listened to.
const CHANNEL: &str = "news";

/// Far enough from now for any run, in seconds.
const LATER: i64 = 3600;

struct Published(Arc<dyn Store>);

struct Task {
    worker: String,
    store: Arc<dyn Store>,
    queue: Box<dyn Queue>,
    stream: Box<dyn StreamHandle>,
}

impl Peer for Published {
    const NAME: &'static str = "published";
    const VERSION: &'static str = "0.1.0";
    const CAN: &'static [Workload] = &[
        Workload::Enqueue,
        Workload::EnqueueBatch,
        Workload::ClaimAck,
        Workload::ClaimBatchAck,
        Workload::Publish,
        Workload::ReadSince,
        Workload::ClaimWithReadyBehind,
        Workload::ClaimWithInFront(Front::Delayed),
        Workload::WakeSameProcess,
        Workload::WakeOtherProcess,
        Workload::Idle,
    ];

    type Caller = Task;

    /// Its connections to a file are in the write-ahead log with `synchronous=NORMAL` always.
    async fn open(store: &str, tasks: usize) -> Answer<Self> {
        if store.contains("://") {
            let mut options = PgOpts::default();
            // A connection for each task: none waits for another's.
            options.max_size = options.max_size.max(tasks);
            Ok(Self(alkstore_postgres::open(store, options).await?.into()))
        } else {
            let options = SqliteOpts::default();
            Ok(Self(alkstore_sqlite::open(store, options)?.into()))
        }
    }

    async fn caller(&self, number: usize) -> Answer<Task> {
        Ok(Task {
            worker: format!("worker-{number}"),
            store: self.0.clone(),
            queue: self.0.queue("mail", QueueOpts::default()).await?,
            stream: self.0.stream("users").await?,
        })
    }

    async fn listen(&self, ear: Ear) -> Answer<()> {
        let mut wakes = self.0.listen(CHANNEL).await?;
        ear.ready();
        while wakes.recv().await.is_some() {
            ear.heard();
        }
        Err("the store is closed".into())
    }
}

impl Caller for Task {
    async fn enqueue(&mut self) -> Answer<()> {
        let options = EnqueueOpts::default();
        self.queue.enqueue(PAYLOAD.into(), options).await?;
        Ok(())
    }

    /// It has no call for several jobs, but a transaction of its own.
    async fn enqueue_batch(&mut self, jobs: usize) -> Answer<()> {
        let mut tx = self.store.begin_tx().await?;
        for _ in 0..jobs {
            let options = EnqueueOpts::default();
            tx.enqueue_tx("mail", options, PAYLOAD.into()).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// The only front that it is asked for is of delayed jobs.
    async fn put_in_front(&mut self, _front: Front, jobs: usize) -> Answer<()> {
        let mut left = jobs;
        while left > 0 {
            let batch = left.min(ROWS);
            let mut tx = self.store.begin_tx().await?;
            for _ in 0..batch {
                let options = EnqueueOpts {
                    delay: Some(LATER),
                    priority: 10,
                    ..EnqueueOpts::default()
                };
                tx.enqueue_tx("mail", options, PAYLOAD.into()).await?;
            }
            tx.commit().await?;
            left -= batch;
        }
        Ok(())
    }

    async fn wake(&mut self) -> Answer<()> {
        self.store.notify(CHANNEL, PAYLOAD.into()).await?;
        Ok(())
    }

    async fn claim_ack(&mut self) -> Answer<bool> {
        let Some(job) = self.queue.claim_one(&self.worker).await? else {
            return Ok(false);
        };
        if job.ack().await? {
            Ok(true)
        } else {
            Err("an ack did not land".into())
        }
    }

    async fn claim_batch_ack(&mut self, jobs: usize) -> Answer<usize> {
        let jobs = i64::try_from(jobs)?;
        let jobs = self.queue.claim_batch(&self.worker, jobs).await?;
        let ids: Vec<_> = jobs.iter().map(|job| job.job().id).collect();
        Ok(usize::try_from(self.queue.ack_batch(&ids).await?)?)
    }

    async fn publish(&mut self) -> Answer<()> {
        self.stream.publish(PAYLOAD.into()).await?;
        Ok(())
    }

    async fn publish_batch(&mut self, events: usize) -> Answer<()> {
        let mut tx = self.store.begin_tx().await?;
        for _ in 0..events {
            tx.publish_tx("users", PAYLOAD.into()).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    async fn read_since(&mut self, offset: usize, limit: usize) -> Answer<usize> {
        let (offset, limit) = (i64::try_from(offset)?, i64::try_from(limit)?);
        Ok(self.stream.read_since(offset, limit).await?.len())
    }
}

fn main() {
    peer_harness::main::<Published>(Arguments::of_process());
}
