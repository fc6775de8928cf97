//! Operations on outboxes.

use alkstore::{EnqueueOpts, Result};

use super::claim::Chance;
use super::dice::{Dice, Payload};
use super::queue::{WORKERS, enqueue_opts};
use super::seen::Seen;
use super::side::Side;
use crate::Harness;

/// Named like the queues, which they have nothing to do with.
pub(super) const OUTBOXES: [&str; 2] = ["q0", "q1"];

/// An operation on the outbox of that number.
#[derive(Debug, Clone)]
pub(super) enum OutboxOperation {
    Enqueue(usize, EnqueueOpts, Payload),
    RunOnce {
        outbox: usize,
        worker: &'static str,
        heartbeat: Option<i64>,
        succeeds: bool,
        luck: u64,
    },
    GetJob(usize, usize),
    Sweep(usize),
}

impl OutboxOperation {
    pub(super) fn random(dice: &mut Dice) -> Self {
        let outbox = dice.mostly_one();
        match dice.below(8) {
            0..3 => Self::Enqueue(outbox, enqueue_opts(dice), dice.payload()),
            3..6 => Self::RunOnce {
                outbox,
                worker: dice.of(&WORKERS),
                heartbeat: dice.maybe(Dice::lease),
                succeeds: dice.one_in(3),
                luck: dice.luck(),
            },
            6 => Self::GetJob(outbox, dice.pick()),
            _ => Self::Sweep(outbox),
        }
    }
}

impl<H: Harness> Side<'_, H> {
    pub(super) async fn outbox(
        &mut self,
        store: usize,
        operation: &OutboxOperation,
    ) -> Result<Seen> {
        use OutboxOperation as Op;
        let outbox = |number: usize| self.stores[store].outbox(OUTBOXES[number]);
        match operation {
            Op::Enqueue(number, opts, payload) => {
                let id = outbox(*number)?.enqueue(payload, opts.clone()).await?;
                Ok(self.kept.enqueued(&[id]))
            }
            Op::GetJob(number, pick) => {
                let job = outbox(*number)?.get_job(self.kept.id(*pick)).await?;
                Ok(self.kept.found(job.as_ref()))
            }
            Op::Sweep(number) => Ok(Seen::Swept(outbox(*number)?.sweep_expired().await?)),
            Op::RunOnce { .. } => self.run_once(store, operation).await,
        }
    }

    /// Delivers a message, or fails to. The job as the delivery sees it, and after it.
    async fn run_once(&mut self, store: usize, operation: &OutboxOperation) -> Result<Seen> {
        let OutboxOperation::RunOnce {
            outbox,
            worker,
            heartbeat,
            succeeds,
            luck,
        } = *operation
        else {
            return Ok(Seen::Nothing);
        };
        let outbox = self.stores[store].outbox(OUTBOXES[outbox])?;
        let (mut delivered, mut chance, mut held) = (None, None, Seen::Nothing);
        let (job, changed, extended) = (&mut delivered, &mut chance, &mut held);
        let ran = outbox.run_once(worker, async move |message| {
            *job = Some((*message).clone());
            if let Some(extend) = heartbeat {
                *extended = Seen::of(message.heartbeat(extend).await.map(Seen::Landed));
            }
            // The delay of the next attempt is drawn in the poll in which this ends.
            *changed = Some(Chance::set(luck));
            if succeeds { Ok(()) } else { Err("undelivered") }
        });
        let ran = ran.await;
        if let Some(chance) = chance {
            chance.free();
        }
        let mut seen = vec![Seen::Landed(ran?), held];
        if let Some(job) = delivered {
            let after = outbox.get_job(job.id).await?;
            seen.extend([self.kept.found(Some(&job)), self.kept.found(after.as_ref())]);
        }
        Ok(Seen::All(seen))
    }
}
