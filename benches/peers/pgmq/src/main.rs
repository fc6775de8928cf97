//! pgmq: a message queue in SQL functions of the server. A read hides messages for a time, as a
//! claim does; a delete is the ack.

#![forbid(unsafe_code)]

use peer_harness::{Answer, Arguments, Caller, Front, PAYLOAD, Peer, ROWS, Workload};
use pgmq::{Message, PGMQueueExt};

const QUEUE: &str = "mail";

/// How long a read hides messages, in seconds.
const HIDDEN: i32 = 300;

/// Far enough from now for any run, in seconds.
const LATER: i32 = 3600;

struct Pgmq(PGMQueueExt);

struct Task(PGMQueueExt);

impl Peer for Pgmq {
    const NAME: &'static str = "pgmq";
    const VERSION: &'static str = "0.33.7";
    const CAN: &'static [Workload] = &[
        Workload::Enqueue,
        Workload::EnqueueBatch,
        Workload::ClaimAck,
        Workload::ClaimBatchAck,
        Workload::ClaimWithReadyBehind,
        Workload::ClaimWithInFront(Front::Delayed),
    ];

    type Caller = Task;

    async fn open(store: &str, tasks: usize) -> Answer<Self> {
        // A connection for each task: none waits for another's.
        // It wants a password in the URL, also where the server asks for none.
        let url = store.replacen("//postgres@", "//postgres:unused@", 1);
        let queue = PGMQueueExt::new(url, u32::try_from(tasks)?).await?;
        queue.install_sql_from_embedded().await?;
        queue.create(QUEUE).await?;
        Ok(Self(queue))
    }

    async fn caller(&self, _number: usize) -> Answer<Task> {
        Ok(Task(self.0.clone()))
    }
}

impl Caller for Task {
    async fn enqueue(&mut self) -> Answer<()> {
        self.0.send(QUEUE, &PAYLOAD).await?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, jobs: usize) -> Answer<()> {
        self.0.send_batch(QUEUE, &vec![PAYLOAD; jobs]).await?;
        Ok(())
    }

    /// It has no priorities: what was sent first comes first. The only front that it is asked for
    /// is of delayed messages.
    async fn put_in_front(&mut self, _front: Front, jobs: usize) -> Answer<()> {
        let mut left = jobs;
        while left > 0 {
            let batch = vec![PAYLOAD; left.min(ROWS)];
            self.0.send_batch_with_delay(QUEUE, &batch, LATER).await?;
            left -= batch.len();
        }
        Ok(())
    }

    async fn claim_ack(&mut self) -> Answer<bool> {
        let read: Option<Message<String>> = self.0.read(QUEUE, HIDDEN).await?;
        let Some(message) = read else {
            return Ok(false);
        };
        if self.0.delete(QUEUE, message.msg_id).await? {
            Ok(true)
        } else {
            Err("a delete did not land".into())
        }
    }

    async fn claim_batch_ack(&mut self, jobs: usize) -> Answer<usize> {
        let jobs = i32::try_from(jobs)?;
        let messages: Vec<Message<String>> = self.0.read_batch(QUEUE, HIDDEN, jobs).await?;
        let ids: Vec<_> = messages.iter().map(|message| message.msg_id).collect();
        Ok(self.0.delete_batch(QUEUE, &ids).await?)
    }
}

fn main() {
    peer_harness::main::<Pgmq>(Arguments::of_process());
}
