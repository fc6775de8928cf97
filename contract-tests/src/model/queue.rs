//! Operations on queues.

use alkstore::{EnqueueOpts, Queue, QueueOpts, Result};

use super::dice::{Dice, Payload};
use super::seen::Seen;
use super::side::Side;
use crate::Harness;

pub(super) const QUEUES: [&str; 2] = ["q0", "q1"];
pub(super) const WORKERS: [&str; 3] = ["w0", "w1", "w2"];

/// An operation on the queue of that number.
#[derive(Debug, Clone)]
pub(super) enum QueueOperation {
    Enqueue(usize, QueueOpts, EnqueueOpts, Payload),
    EnqueueBatch(usize, QueueOpts, EnqueueOpts, Vec<Payload>),
    ClaimOne(usize, &'static str),
    ClaimBatch(usize, &'static str, i64),
    /// Acks the picked claims, of whatever queue, one of them perhaps twice.
    AckBatch(usize, Vec<usize>),
    Cancel(usize, usize),
    GetJob(usize, usize),
    Sweep(usize),
}

impl QueueOperation {
    pub(super) fn random(dice: &mut Dice) -> Self {
        let queue = dice.mostly_one();
        match dice.below(20) {
            0..4 => Self::Enqueue(queue, queue_opts(dice), enqueue_opts(dice), dice.payload()),
            4 => {
                let payloads = dice.some(4, Dice::payload);
                Self::EnqueueBatch(queue, queue_opts(dice), enqueue_opts(dice), payloads)
            }
            5..8 => Self::ClaimOne(queue, dice.of(&WORKERS)),
            8..12 => Self::ClaimBatch(queue, dice.of(&WORKERS), dice.limit()),
            12..14 => Self::AckBatch(queue, dice.some(4, Dice::pick)),
            14..16 => Self::Cancel(queue, dice.pick()),
            16..18 => Self::GetJob(queue, dice.pick()),
            _ => Self::Sweep(queue),
        }
    }
}

/// What a queue says of its jobs; one in many makes no sense.
pub(super) fn queue_opts(dice: &mut Dice) -> QueueOpts {
    let mut opts = QueueOpts::default();
    opts.visibility_timeout_s = dice.lease();
    opts.max_attempts = dice.of(&[1, 2, 3, 3, 4, 5, i64::MAX]);
    opts.backoff_base_s = dice.of(&[0, 1, 5, 5, 9, i64::MAX]);
    opts.dead_letter_retention_s = dice.maybe(|dice| dice.any_seconds().max(-1));
    opts
}

/// What is said of one job.
pub(super) fn enqueue_opts(dice: &mut Dice) -> EnqueueOpts {
    let mut opts = EnqueueOpts::default();
    if dice.one_in(4) {
        opts.delay = Some(dice.any_seconds());
    }
    if dice.one_in(6) {
        // Around 2001, and the ends of time: a job with a time of its own is ready or never is.
        opts.run_at = Some(dice.of(&[i64::MIN, 0, 1_000_000_000, 1_000_000_001, i64::MAX]));
    }
    opts.priority = dice.of(&[0, 0, 0, 0, 1, 2, -1, i64::MAX, i64::MIN]);
    if dice.one_in(4) {
        opts.max_attempts = Some(dice.of(&[0, 1, 2, 5, i64::MAX]));
    }
    if dice.one_in(5) {
        opts.expires = Some(dice.any_seconds());
    }
    opts
}

impl<H: Harness> Side<'_, H> {
    pub(super) async fn queue(&mut self, store: usize, operation: &QueueOperation) -> Result<Seen> {
        use QueueOperation as Op;
        match operation {
            Op::Enqueue(queue, stamps, opts, payload) => {
                let queue = self.stores[store].queue(QUEUES[*queue], stamps.clone())?;
                let id = queue.enqueue(payload, opts.clone()).await?;
                Ok(self.kept.enqueued(&[id]))
            }
            Op::EnqueueBatch(queue, stamps, opts, payloads) => {
                let queue = self.stores[store].queue(QUEUES[*queue], stamps.clone())?;
                let ids = queue.enqueue_batch(payloads, opts.clone()).await?;
                Ok(self.kept.enqueued(&ids))
            }
            Op::ClaimOne(queue, worker) => {
                let claimed = self.plain(store, *queue)?.claim_one(worker).await?;
                Ok(self.kept.claimed(claimed.into_iter().collect()))
            }
            Op::ClaimBatch(queue, worker, n) => {
                let claimed = self.plain(store, *queue)?.claim_batch(worker, *n).await?;
                Ok(self.kept.claimed(claimed))
            }
            Op::AckBatch(queue, picks) => {
                let queue = self.plain(store, *queue)?;
                let handles = picks.iter().filter_map(|pick| self.kept.handle(*pick));
                let handles: Vec<_> = handles.collect();
                let landed = queue.ack_batch(handles).await?;
                Ok(Seen::Count(i64::try_from(landed).unwrap_or(i64::MAX)))
            }
            Op::Cancel(queue, pick) => {
                let id = self.kept.id(*pick);
                Ok(Seen::Landed(self.plain(store, *queue)?.cancel(id).await?))
            }
            Op::GetJob(queue, pick) => {
                let id = self.kept.id(*pick);
                let job = self.plain(store, *queue)?.get_job(id).await?;
                Ok(self.kept.found(job.as_ref()))
            }
            Op::Sweep(queue) => {
                let swept = self.plain(store, *queue)?.sweep_expired().await?;
                Ok(Seen::Swept(swept))
            }
        }
    }

    /// The queue as those see it who enqueue nothing.
    pub(super) fn plain(&self, store: usize, queue: usize) -> Result<Queue<H::Engine>> {
        self.stores[store].queue(QUEUES[queue], QueueOpts::default())
    }
}
