//! What a task does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alkstore::{Engine, EnqueueOpts, JobHandle, Queue, QueueOpts, Result, Store, Tx};
use fastrand::Rng;

use super::call::{End, make, to_the_end};
use super::ledger::{Ended, Ledger, Stored};

/// The queue and the stream of the test.
pub(super) const NAME: &str = "stress";
/// The worker names of runtimes that live on begin so: their dropped claims come back for sure.
pub(super) const LIVES_ON: &str = "lives on";

pub(super) struct Task<E: Engine> {
    store: Store<E>,
    queue: Queue<E>,
    ledger: Arc<Ledger<E>>,
    dice: Rng,
    lifetime: Lifetime,
}

/// What becomes of a task's runtime.
#[derive(Debug, Clone)]
pub(super) enum Lifetime {
    Endless,
    /// It may end; then this is set before.
    Ending(Arc<AtomicBool>),
}

/// The queue of the test. No claim lapses, and no job dies.
pub(super) fn queue<E: Engine>(store: &Store<E>) -> Queue<E> {
    let endless = QueueOpts::default()
        .visibility_timeout(Duration::MAX)
        .max_attempts(i64::MAX);
    store.queue(NAME, endless).expect("the name is valid")
}

impl<E: Engine> Task<E> {
    pub(super) fn new(
        store: Store<E>,
        ledger: Arc<Ledger<E>>,
        dice: Rng,
        lifetime: Lifetime,
    ) -> Self {
        Self {
            queue: queue(&store),
            store,
            ledger,
            dice,
            lifetime,
        }
    }

    pub(super) async fn run(mut self) {
        for _ in 0..self.dice.u8(1..6) {
            match self.dice.u8(..10) {
                0..3 => self.store_some(false).await,
                3..5 => self.store_some(true).await,
                5..8 => self.work().await,
                _ => self.transaction().await,
            }
        }
    }

    /// Enqueues or publishes by itself.
    async fn store_some(&mut self, event: bool) {
        let keys = self.begin(event);
        let stored = if event {
            let stream = self.store.stream(NAME).expect("the name is valid");
            let events: Vec<_> = keys.iter().map(|key| (None, *key)).collect();
            make(&mut self.dice, stream.publish_batch(&events)).await
        } else {
            let call = self.queue.enqueue_batch(&keys, EnqueueOpts::default());
            make(&mut self.dice, call).await
        };
        if let Some(numbers) = self.done(stored) {
            let mut entries = self.ledger.entries();
            for (key, number) in std::iter::zip(keys, numbers) {
                entries.note(event, key, Stored::Acknowledged, Some(number));
            }
        }
    }

    /// Claims some jobs, and ends some of the claims.
    async fn work(&mut self) {
        let worker = format!("{} {}", self.runtime(), self.ledger.number());
        let claim = self.queue.claim_batch(&worker, self.dice.i64(1..4));
        let claimed = make(&mut self.dice, claim).await;
        let Some(jobs) = self.done(claimed) else {
            return;
        };
        jobs.iter()
            .for_each(|job| self.ledger.entries().claimed(job));
        for job in jobs {
            let key = job.payload_as().unwrap_or_default();
            match self.dice.u8(..6) {
                0 => self.ledger.entries().held.push(job),
                1 => {
                    let retried = job.retry("again", Some(0));
                    let retried = to_the_end(retried).await;
                    self.landed(retried);
                }
                _ => {
                    self.ledger.entries().ended(key, Ended::Unknown);
                    let acked = make(&mut self.dice, job.ack()).await;
                    if self.landed(acked) {
                        self.ledger.entries().ended(key, Ended::Acknowledged);
                    }
                }
            }
        }
    }

    /// Stores some jobs and events, and ends a claim, in a transaction that may be dropped.
    async fn transaction(&mut self) {
        let (jobs, events) = (self.begin(false), self.begin(true));
        let claim = self.queue.claim_one("transaction");
        let claimed = to_the_end(claim).await;
        let job = self.done(claimed).flatten();
        if let Some(job) = &job {
            self.ledger.entries().claimed(job);
        }
        let begun = to_the_end(self.store.begin_tx()).await;
        let Some(mut tx) = self.done(begun) else {
            return self.keep(job);
        };
        let written = to_the_end(self.write(&mut tx, &jobs, &events, job.as_ref())).await;
        if self.done(written).is_none() || self.dice.bool() {
            if self.dice.bool() {
                drop(tx);
            } else {
                let rolled_back = to_the_end(tx.rollback()).await;
                self.done(rolled_back);
            }
            self.note(&jobs, &events, Stored::RolledBack);
            return self.keep(job);
        }
        let key = job
            .and_then(|job| job.payload_as().ok())
            .unwrap_or_default();
        self.ledger.entries().ended(key, Ended::Unknown);
        let committed = make(&mut self.dice, tx.commit()).await;
        if self.done(committed).is_some() {
            self.note(&jobs, &events, Stored::Acknowledged);
            self.ledger.entries().ended(key, Ended::Acknowledged);
        }
    }

    /// Notes some jobs or events that are about to be stored, all or none.
    fn begin(&mut self, event: bool) -> Vec<u64> {
        let group = self.ledger.number();
        let keys: Vec<_> = (0..self.dice.u8(1..4))
            .map(|_| self.ledger.number())
            .collect();
        let mut entries = self.ledger.entries();
        keys.iter()
            .for_each(|key| entries.begin(event, *key, group));
        keys
    }

    async fn write(
        &self,
        tx: &mut Tx<E>,
        jobs: &[u64],
        events: &[u64],
        job: Option<&JobHandle<E>>,
    ) -> Result<()> {
        for key in jobs {
            let id = self
                .queue
                .enqueue_tx(tx, key, EnqueueOpts::default())
                .await?;
            self.ledger
                .entries()
                .note(false, *key, Stored::Unknown, Some(id));
        }
        for key in events {
            let offset = tx.publish_tx(NAME, key).await?;
            self.ledger
                .entries()
                .note(true, *key, Stored::Unknown, Some(offset));
        }
        if let Some(job) = job {
            let landed = tx.ack_tx(job).await?;
            self.landed(End::Done(landed));
        }
        Ok(())
    }

    fn note(&self, jobs: &[u64], events: &[u64], stored: Stored) {
        let mut entries = self.ledger.entries();
        jobs.iter()
            .for_each(|key| entries.note(false, *key, stored, None));
        events
            .iter()
            .for_each(|key| entries.note(true, *key, stored, None));
    }

    fn keep(&self, job: Option<JobHandle<E>>) {
        self.ledger.entries().held.extend(job);
    }

    /// Whether the end of a claim landed. A claim that its holder knows of cannot be lost here.
    fn landed(&self, end: End<bool>) -> bool {
        let landed = self.done(end);
        if landed == Some(false) {
            self.ledger
                .complain("a claim that nothing ended was lost".into());
        }
        landed == Some(true)
    }

    fn done<T>(&self, end: End<T>) -> Option<T> {
        match end {
            End::Done(value) => Some(value),
            End::Dropped => None,
            End::Failed(complaint) => {
                let ends = match &self.lifetime {
                    Lifetime::Endless => false,
                    Lifetime::Ending(ends) => ends.load(Ordering::SeqCst),
                };
                if !ends {
                    self.ledger
                        .complain(format!("{}: {complaint}", self.runtime()));
                }
                None
            }
        }
    }

    fn runtime(&self) -> &'static str {
        match self.lifetime {
            Lifetime::Endless => LIVES_ON,
            Lifetime::Ending(_) => "may end",
        }
    }
}
