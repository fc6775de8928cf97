//! What happens in a transaction.

use alkstore::{EnqueueOpts, OnConnection, QueueOpts, Result, Store, Tx};

use super::dice::{Dice, Payload};
use super::outbox::OUTBOXES;
use super::queue::{QUEUES, enqueue_opts, queue_opts};
use super::seen::Seen;
use super::side::Kept;
use super::stream::{CONSUMERS, STREAMS};
use crate::{Conn, Harness};

/// One operation in a transaction.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Enqueue(usize, EnqueueOpts, Payload),
    EnqueueWith(usize, QueueOpts, EnqueueOpts, Payload),
    OutboxEnqueue(usize, EnqueueOpts, Payload),
    PublishWithKey(usize, Option<&'static str>, Payload),
    SaveOffset(usize, usize, i64),
    Ack(usize),
    GetJob(usize, usize),
    GetOffset(usize, usize),
    ReadSince(usize, i64, i64),
    ReadFromConsumer(usize, usize, i64),
    InsertRow(&'static str),
    CountRows,
    /// The clock moves on; not in an application's transaction.
    Advance(i64),
    /// What another process sees meanwhile: a job, a stream.
    LookFromOutside(usize, usize, usize),
}

impl Step {
    pub(super) fn random(dice: &mut Dice) -> Self {
        let (one, other) = (dice.mostly_one(), dice.two());
        match dice.below(20) {
            0..2 => Self::Enqueue(one, enqueue_opts(dice), dice.payload()),
            2 => Self::EnqueueWith(one, queue_opts(dice), enqueue_opts(dice), dice.payload()),
            3..5 => Self::OutboxEnqueue(one, enqueue_opts(dice), dice.payload()),
            5..8 => Self::PublishWithKey(one, dice.key(), dice.payload()),
            8..10 => Self::SaveOffset(one, other, dice.offset()),
            10..12 => Self::Ack(dice.pick()),
            12 => Self::GetJob(one, dice.pick()),
            13 => Self::GetOffset(one, other),
            14 => Self::ReadSince(one, dice.offset(), dice.limit()),
            15 => Self::ReadFromConsumer(one, other, dice.limit()),
            16 => Self::InsertRow(dice.of(&["r0", "r1", "r2", "r3", "r4"])),
            17 => Self::CountRows,
            18 => Self::Advance(dice.seconds()),
            _ => Self::LookFromOutside(one, dice.pick(), other),
        }
    }
}

/// Runs steps and notes what they show.
pub(super) struct Stepper<H: Harness> {
    kept: Kept<H::Engine>,
    outside: Store<H::Engine>,
    seen: Vec<Seen>,
}

impl<H: Harness> Stepper<H> {
    pub(super) fn new(kept: Kept<H::Engine>, outside: Store<H::Engine>) -> Self {
        Self {
            kept,
            outside,
            seen: Vec::new(),
        }
    }

    pub(super) fn end(self) -> (Kept<H::Engine>, Vec<Seen>) {
        (self.kept, self.seen)
    }

    /// Runs the steps up to the first business write that fails; whether there was none.
    pub(super) async fn run<T>(
        &mut self,
        tx: &mut Tx<H::Engine, T>,
        steps: &[Step],
        h: Option<&H>,
    ) -> bool
    where
        T: OnConnection<Conn<H>>,
    {
        for step in steps {
            if let (Step::Advance(seconds), Some(h)) = (step, h) {
                h.advance(*seconds);
            }
            let result = self.try_to(tx, step).await;
            let broken = result.is_err() && matches!(step, Step::InsertRow(_));
            self.seen.push(Seen::of(result));
            if broken {
                return false;
            }
        }
        true
    }

    async fn try_to<T>(&mut self, tx: &mut Tx<H::Engine, T>, step: &Step) -> Result<Seen>
    where
        T: OnConnection<Conn<H>>,
    {
        match step {
            Step::Enqueue(queue, opts, payload) => {
                let id = tx.enqueue_tx(QUEUES[*queue], opts.clone(), payload).await?;
                Ok(self.kept.enqueued(&[id]))
            }
            Step::EnqueueWith(queue, stamps, opts, payload) => {
                let queue = self.outside.queue(QUEUES[*queue], stamps.clone())?;
                let id = queue.enqueue_tx(tx, payload, opts.clone()).await?;
                Ok(self.kept.enqueued(&[id]))
            }
            Step::OutboxEnqueue(outbox, opts, payload) => {
                let outbox = OUTBOXES[*outbox];
                let id = tx.outbox_enqueue_tx(outbox, opts.clone(), payload).await?;
                Ok(self.kept.enqueued(&[id]))
            }
            Step::PublishWithKey(stream, key, payload) => {
                let stream = STREAMS[*stream];
                let offset = tx.publish_with_key_tx(stream, *key, payload).await?;
                Ok(Seen::Offsets(vec![offset]))
            }
            Step::SaveOffset(stream, consumer, offset) => {
                let (stream, consumer) = (STREAMS[*stream], CONSUMERS[*consumer]);
                let moved = tx.save_offset_tx(stream, consumer, *offset).await?;
                Ok(Seen::Landed(moved))
            }
            Step::Ack(pick) => match self.kept.handle(*pick) {
                Some(handle) => Ok(Seen::Landed(tx.ack_tx(handle).await?)),
                None => Ok(Seen::Nothing),
            },
            Step::InsertRow(key) => {
                H::insert_row(tx.connection(), key).await?;
                Ok(Seen::Nothing)
            }
            Step::CountRows => Ok(Seen::Count(H::count_rows(tx.connection()).await?)),
            Step::LookFromOutside(queue, pick, stream) => {
                self.look_from_outside(*queue, *pick, *stream).await
            }
            Step::Advance(_) => Ok(Seen::Nothing),
            look => self.look(tx, look).await,
        }
    }

    /// What the transaction sees.
    async fn look<T>(&self, tx: &mut Tx<H::Engine, T>, step: &Step) -> Result<Seen>
    where
        T: OnConnection<Conn<H>>,
    {
        match *step {
            Step::GetJob(queue, pick) => {
                let job = tx.get_job_tx(QUEUES[queue], self.kept.id(pick)).await?;
                Ok(self.kept.found(job.as_ref()))
            }
            Step::GetOffset(stream, consumer) => {
                let (stream, consumer) = (STREAMS[stream], CONSUMERS[consumer]);
                Ok(Seen::Count(tx.get_offset_tx(stream, consumer).await?))
            }
            Step::ReadSince(stream, offset, limit) => {
                let events = tx.read_since_tx(STREAMS[stream], offset, limit).await?;
                Ok(Seen::Events(events))
            }
            Step::ReadFromConsumer(stream, consumer, limit) => {
                let (stream, consumer) = (STREAMS[stream], CONSUMERS[consumer]);
                let events = tx.read_from_consumer_tx(stream, consumer, limit).await?;
                Ok(Seen::Events(events))
            }
            _ => Ok(Seen::Nothing),
        }
    }

    async fn look_from_outside(&self, queue: usize, pick: usize, stream: usize) -> Result<Seen> {
        let queue = self.outside.queue(QUEUES[queue], QueueOpts::default())?;
        let job = queue.get_job(self.kept.id(pick)).await?;
        let stream = self.outside.stream(STREAMS[stream])?;
        let events = stream.read_since(0, i64::MAX).await?;
        Ok(Seen::All(vec![
            self.kept.found(job.as_ref()),
            Seen::Events(events),
        ]))
    }
}
