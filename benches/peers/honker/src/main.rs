//! honker: jobs and streams in SQL functions over one connection. Its calls block.

#![forbid(unsafe_code)]

use honker::{Database, EnqueueOpts, Queue, QueueOpts, Stream};
use peer_harness::{Answer, Arguments, Caller, Ear, Front, PAYLOAD, Peer, ROWS, Workload};

/// What is notified and listened to.
const CHANNEL: &str = "news";

/// Far enough from now for any run, in seconds.
const LATER: i64 = 3600;

struct Honker(Database);

struct Task {
    worker: String,
    database: Database,
    queue: Queue,
    stream: Stream,
}

impl Peer for Honker {
    const NAME: &'static str = "honker";
    const VERSION: &'static str = "0.5.0";
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
    const BLOCKS: bool = true;
    const CAN_BE_FULL: bool = true;

    type Caller = Task;

    /// Its connections are in the write-ahead log with `synchronous=NORMAL` by default.
    async fn open(store: &str, _tasks: usize) -> Answer<Self> {
        Ok(Self(Database::open(store)?))
    }

    /// It has no option for it, but gives the one connection that it has away.
    async fn open_full(store: &str, _tasks: usize) -> Answer<Self> {
        let database = Database::open(store)?;
        database.with_conn(|connection| connection.pragma_update(None, "synchronous", "FULL"))?;
        Ok(Self(database))
    }

    /// All tasks share its one connection, as they would in a service: a connection each would
    /// have them wait for each other in `SQLite`, which is dearer than its mutex.
    async fn caller(&self, number: usize) -> Answer<Task> {
        Ok(Task {
            worker: format!("worker-{number}"),
            queue: self.0.queue("mail", QueueOpts::default()),
            stream: self.0.stream("users"),
            database: self.0.clone(),
        })
    }

    async fn listen(&self, ear: Ear) -> Answer<()> {
        let mut subscription = self.0.listen(CHANNEL)?;
        ear.ready();
        while let Some(notification) = subscription.recv() {
            ear.heard();
            notification?;
        }
        Err("the database is closed".into())
    }
}

impl Caller for Task {
    async fn enqueue(&mut self) -> Answer<()> {
        self.queue.enqueue(&PAYLOAD, EnqueueOpts::default())?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, jobs: usize) -> Answer<()> {
        let tx = self.database.transaction()?;
        for _ in 0..jobs {
            self.queue
                .enqueue_tx(&tx, &PAYLOAD, EnqueueOpts::default())?;
        }
        tx.commit()?;
        Ok(())
    }

    /// The only front that it is asked for is of delayed jobs.
    async fn put_in_front(&mut self, _front: Front, jobs: usize) -> Answer<()> {
        let mut left = jobs;
        while left > 0 {
            let batch = left.min(ROWS);
            let tx = self.database.transaction()?;
            for _ in 0..batch {
                let options = EnqueueOpts {
                    delay: Some(LATER),
                    priority: 10,
                    ..EnqueueOpts::default()
                };
                self.queue.enqueue_tx(&tx, &PAYLOAD, options)?;
            }
            tx.commit()?;
            left -= batch;
        }
        Ok(())
    }

    async fn wake(&mut self) -> Answer<()> {
        self.database.notify(CHANNEL, &PAYLOAD)?;
        Ok(())
    }

    async fn claim_ack(&mut self) -> Answer<bool> {
        match self.queue.claim_one(&self.worker)? {
            Some(job) if job.ack()? => Ok(true),
            Some(_) => Err("an ack did not land".into()),
            None => Ok(false),
        }
    }

    async fn claim_batch_ack(&mut self, jobs: usize) -> Answer<usize> {
        let jobs = self.queue.claim_batch(&self.worker, i64::try_from(jobs)?)?;
        let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
        Ok(usize::try_from(self.queue.ack_batch(&ids, &self.worker)?)?)
    }

    async fn publish(&mut self) -> Answer<()> {
        self.stream.publish(&PAYLOAD)?;
        Ok(())
    }

    async fn publish_batch(&mut self, events: usize) -> Answer<()> {
        let tx = self.database.transaction()?;
        for _ in 0..events {
            self.stream.publish_tx(&tx, &PAYLOAD)?;
        }
        tx.commit()?;
        Ok(())
    }

    async fn read_since(&mut self, offset: usize, limit: usize) -> Answer<usize> {
        let (offset, limit) = (i64::try_from(offset)?, i64::try_from(limit)?);
        Ok(self.stream.read_since(offset, limit)?.len())
    }
}

fn main() {
    peer_harness::main::<Honker>(Arguments::of_process());
}
