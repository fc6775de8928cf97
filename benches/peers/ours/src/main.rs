//! The peer that the others are compared with: this repository's alkstore, on either engine.

#![forbid(unsafe_code)]

use alkstore::{EnqueueOpts, Open, Queue, QueueOpts, Store, Stream};
use alkstore_postgres::Postgres;
use alkstore_sqlite::Sqlite;
use peer_harness::{Answer, Arguments, Caller, Engine, PAYLOAD, Peer, Workload};

struct Ours<E>(Store<E>);

struct Task<E> {
    worker: String,
    queue: Queue<E>,
    stream: Stream<E>,
}

impl<E: Open> Peer for Ours<E> {
    const NAME: &'static str = "ours";
    const VERSION: &'static str = "this repository";
    const CAN: &'static [Workload] = Workload::ALL;

    type Caller = Task<E>;

    async fn open(store: &str, _tasks: usize) -> Answer<Self> {
        Ok(Self(Store::open(store).await?))
    }

    async fn caller(&self, number: usize) -> Answer<Task<E>> {
        Ok(Task {
            worker: format!("worker-{number}"),
            queue: self.0.queue("mail", QueueOpts::default())?,
            stream: self.0.stream("users")?,
        })
    }
}

impl<E: Open> Caller for Task<E> {
    async fn enqueue(&mut self) -> Answer<()> {
        self.queue.enqueue(PAYLOAD, EnqueueOpts::default()).await?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, jobs: usize) -> Answer<()> {
        let payloads = vec![PAYLOAD; jobs];
        let options = EnqueueOpts::default();
        self.queue.enqueue_batch(&payloads, options).await?;
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
        Ok(self.queue.ack_batch(&jobs).await?)
    }

    async fn publish(&mut self) -> Answer<()> {
        self.stream.publish(PAYLOAD).await?;
        Ok(())
    }

    async fn publish_batch(&mut self, events: usize) -> Answer<()> {
        self.stream
            .publish_batch(&vec![(None, PAYLOAD); events])
            .await?;
        Ok(())
    }

    async fn read_since(&mut self, offset: usize, limit: usize) -> Answer<usize> {
        let (offset, limit) = (i64::try_from(offset)?, i64::try_from(limit)?);
        Ok(self.stream.read_since(offset, limit).await?.len())
    }
}

fn main() {
    let arguments = Arguments::of_process();
    match arguments.as_ref().map(Arguments::engine) {
        Ok(Engine::Postgres) => peer_harness::main::<Ours<Postgres>>(arguments),
        _ => peer_harness::main::<Ours<Sqlite>>(arguments),
    }
}
