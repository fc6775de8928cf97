//! The peer that the others are compared with: this repository's alkstore, on either engine.

#![forbid(unsafe_code)]

mod front;

use std::future::Future;

use alkstore::{EnqueueOpts, Open, Queue, QueueOpts, Store, Stream};
use alkstore_postgres::Postgres;
use alkstore_sqlite::{Sqlite, SqliteOptions, Synchronous};
use peer_harness::{Answer, Arguments, Caller, Ear, Engine, Front, PAYLOAD, Peer, Workload};

/// What is notified and listened to.
const CHANNEL: &str = "news";

struct Ours<E>(Store<E>);

/// An engine whose commits can be told to wait for the disk.
trait OpenFull: Open {
    /// Whether they can.
    const CAN: bool;

    /// Opens the store so.
    fn open_full(store: &str) -> impl Future<Output = Answer<Store<Self>>> + Send;
}

impl OpenFull for Sqlite {
    const CAN: bool = true;

    async fn open_full(store: &str) -> Answer<Store<Self>> {
        let options = SqliteOptions::new().synchronous(Synchronous::Full);
        Ok(Store::new(options.open(store).await?))
    }
}

impl OpenFull for Postgres {
    const CAN: bool = false;

    async fn open_full(_store: &str) -> Answer<Store<Self>> {
        Err("the server's setting is what counts".into())
    }
}

struct Task<E> {
    worker: String,
    store: Store<E>,
    queue: Queue<E>,
    stream: Stream<E>,
}

impl<E: OpenFull> Peer for Ours<E> {
    const NAME: &'static str = "ours";
    const VERSION: &'static str = "this repository";
    const CAN: &'static [Workload] = Workload::ALL;
    const CAN_BE_FULL: bool = E::CAN;

    type Caller = Task<E>;

    async fn open(store: &str, _tasks: usize) -> Answer<Self> {
        Ok(Self(Store::open(store).await?))
    }

    async fn open_full(store: &str, _tasks: usize) -> Answer<Self> {
        Ok(Self(E::open_full(store).await?))
    }

    async fn caller(&self, number: usize) -> Answer<Task<E>> {
        Ok(Task {
            worker: format!("worker-{number}"),
            queue: self.0.queue("mail", QueueOpts::default())?,
            store: self.0.clone(),
            stream: self.0.stream("users")?,
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

impl<E: OpenFull> Caller for Task<E> {
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

    async fn put_in_front(&mut self, front: Front, jobs: usize) -> Answer<()> {
        front::put(&self.queue, front, jobs).await
    }

    async fn wake(&mut self) -> Answer<()> {
        self.store.notify(CHANNEL, PAYLOAD).await?;
        Ok(())
    }
}

fn main() {
    let arguments = Arguments::of_process();
    match arguments.as_ref().map(Arguments::engine) {
        Ok(Engine::Postgres) => peer_harness::main::<Ours<Postgres>>(arguments),
        _ => peer_harness::main::<Ours<Sqlite>>(arguments),
    }
}
