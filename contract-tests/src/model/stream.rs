//! Operations on streams.

use alkstore::Result;

use super::dice::{Dice, Payload};
use super::seen::Seen;
use super::side::Side;
use crate::Harness;

pub(super) const STREAMS: [&str; 2] = ["s0", "s1"];
pub(super) const CONSUMERS: [&str; 2] = ["c0", "c1"];

type Key = Option<&'static str>;

/// An operation on the stream of that number, and for the consumer of that number.
#[derive(Debug, Clone)]
pub(super) enum StreamOperation {
    Publish(usize, Payload),
    PublishWithKey(usize, Key, Payload),
    PublishBatch(usize, Vec<(Key, Payload)>),
    ReadSince(usize, i64, i64),
    ReadFromConsumer(usize, usize, i64),
    SaveOffset(usize, usize, i64),
    GetOffset(usize, usize),
    Trim(usize, i64),
}

impl StreamOperation {
    pub(super) fn random(dice: &mut Dice) -> Self {
        let (stream, consumer) = (dice.two(), dice.two());
        match dice.below(12) {
            0..2 => Self::Publish(stream, dice.payload()),
            2..4 => Self::PublishWithKey(stream, dice.key(), dice.payload()),
            4 => Self::PublishBatch(stream, dice.some(4, |dice| (dice.key(), dice.payload()))),
            5..7 => Self::ReadSince(stream, dice.offset(), dice.limit()),
            7 => Self::ReadFromConsumer(stream, consumer, dice.limit()),
            8..10 => Self::SaveOffset(stream, consumer, dice.offset()),
            10 => Self::GetOffset(stream, consumer),
            _ => Self::Trim(stream, dice.offset()),
        }
    }
}

impl<H: Harness> Side<'_, H> {
    pub(super) async fn stream(
        &mut self,
        store: usize,
        operation: &StreamOperation,
    ) -> Result<Seen> {
        use StreamOperation as Op;
        let stream = |number: &usize| self.stores[store].stream(STREAMS[*number]);
        match operation {
            Op::Publish(number, payload) => {
                let offset = stream(number)?.publish(payload).await?;
                Ok(Seen::Offsets(vec![offset]))
            }
            Op::PublishWithKey(number, key, payload) => {
                let offset = stream(number)?.publish_with_key(*key, payload).await?;
                Ok(Seen::Offsets(vec![offset]))
            }
            Op::PublishBatch(number, events) => {
                Ok(Seen::Offsets(stream(number)?.publish_batch(events).await?))
            }
            Op::ReadSince(number, offset, limit) => {
                let events = stream(number)?.read_since(*offset, *limit).await?;
                Ok(Seen::Events(events))
            }
            Op::ReadFromConsumer(number, consumer, limit) => {
                let consumer = CONSUMERS[*consumer];
                let events = stream(number)?.read_from_consumer(consumer, *limit).await?;
                Ok(Seen::Events(events))
            }
            Op::SaveOffset(number, consumer, offset) => {
                let consumer = CONSUMERS[*consumer];
                let moved = stream(number)?.save_offset(consumer, *offset).await?;
                Ok(Seen::Landed(moved))
            }
            Op::GetOffset(number, consumer) => {
                let saved = stream(number)?.get_offset(CONSUMERS[*consumer]).await?;
                Ok(Seen::Count(saved))
            }
            Op::Trim(number, horizon) => {
                let trimmed = stream(number)?.trim_to(*horizon).await?;
                Ok(Seen::Count(i64::try_from(trimmed).unwrap_or(i64::MAX)))
            }
        }
    }
}
