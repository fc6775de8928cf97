//! Streams: events in a row without holes, and how far each consumer has come.

use std::collections::BTreeMap;

use alkstore::engine::{After, At, MOST_PER_STEP, NewEvent, Results, Streams, Topic, TrimStep};
use alkstore::{Result, StreamEvent};

use super::database::{State, Work};
use super::rules::Rules;
use super::{Fault, Reference, ReferenceConn};

/// A stream that was published to at least once.
#[derive(Debug, Clone, Default)]
pub(super) struct Stream {
    /// The greatest offset given so far; it stays when the events are trimmed.
    head: i64,
    events: BTreeMap<i64, StreamEvent>,
}

impl Streams for Reference {
    async fn append_events(
        &self,
        at: At<'_, ReferenceConn>,
        events: &[NewEvent<'_>],
    ) -> Result<Results<i64>> {
        let offsets = self.write(at, |work| work.append_events(events)).await;
        offsets.map(Results::from)
    }

    async fn read_events(
        &self,
        at: At<'_, ReferenceConn>,
        stream: &str,
        after: After<'_>,
        limit: i64,
    ) -> Result<Vec<StreamEvent>> {
        self.read(at, |work| work.read_events(stream, after, limit))
            .await
    }

    async fn read_page(
        &self,
        stream: &str,
        offset: i64,
        limit: i64,
        bytes: i64,
    ) -> Result<Vec<StreamEvent>> {
        self.read(At::Auto, |work| {
            work.read_page(stream, offset, limit, bytes)
        })
        .await
    }

    async fn save_offset(
        &self,
        at: At<'_, ReferenceConn>,
        stream: &str,
        consumer: &str,
        offset: i64,
    ) -> Result<bool> {
        self.write(at, |work| work.save_offset(stream, consumer, offset))
            .await
    }

    async fn find_offset(
        &self,
        at: At<'_, ReferenceConn>,
        stream: &str,
        consumer: &str,
    ) -> Result<i64> {
        self.read(at, |work| work.find_offset(stream, consumer))
            .await
    }

    async fn trim_events(&self, stream: &str, after: i64, horizon: i64) -> Result<TrimStep> {
        self.write(At::Auto, |work| work.trim_events(stream, after, horizon))
            .await
    }
}

impl Work<'_> {
    pub(super) fn append_events(&mut self, events: &[NewEvent<'_>]) -> Vec<i64> {
        let mut offsets: Vec<_> = events
            .iter()
            .map(|event| self.append_event(event))
            .collect();
        if self.rules.breaks(Fault::PublishBatchReversed) {
            offsets.reverse();
        }
        offsets
    }

    fn append_event(&mut self, new: &NewEvent<'_>) -> i64 {
        let rules = self.rules;
        let highest = self.state.streams.values().map(|stream| stream.head).max();
        let stream = self
            .state
            .streams
            .entry(rules.stream_key(new.stream))
            .or_default();
        let offset = 1 + match rules.fault {
            Some(Fault::StreamsShareOffsets) => highest.unwrap_or(0),
            Some(Fault::OffsetsReusedAfterTrim) => stream
                .events
                .last_key_value()
                .map_or(0, |(offset, _)| *offset),
            _ => stream.head,
        };
        stream.head = offset;
        let created_at = match rules.fault {
            Some(Fault::EventTimeForgotten) => 0,
            _ => rules.now,
        };
        let payload = rules.payload(new.payload);
        let mut event = StreamEvent::new(new.stream, offset, payload, created_at);
        event.key = match rules.fault {
            Some(Fault::KeyLost) => None,
            Some(Fault::KeyBlank) => Some(new.key.unwrap_or_default().into()),
            _ => new.key.map(Into::into),
        };
        stream.events.insert(offset, event);
        if !rules.breaks(Fault::PublishWakesNobody) {
            self.wakes.add(Topic::stream(new.stream));
        }
        offset
    }

    fn read_events(&self, stream: &str, after: After<'_>, limit: i64) -> Vec<StreamEvent> {
        let rules = self.rules;
        let start = match after {
            After::Offset(offset) => offset,
            After::SavedBy(_) if rules.breaks(Fault::ReadIgnoresConsumer) => 0,
            After::SavedBy(consumer) => self.find_offset(stream, consumer),
        };
        let limit = match rules.fault {
            Some(Fault::ReadIgnoresLimit) => usize::MAX,
            _ => usize::try_from(limit).unwrap_or(0),
        };
        let streams = self.state.streams.iter().filter(|(name, _)| {
            **name == rules.stream_key(stream) || rules.breaks(Fault::ReadCrossesStreams)
        });
        let events = streams.flat_map(|(_, stream)| stream.events.values());
        let events = events.filter(|event| match rules.fault {
            Some(Fault::ReadInclusive) => event.offset >= start,
            _ => event.offset > start,
        });
        let mut events: Vec<_> = events.take(limit).cloned().collect();
        if rules.breaks(Fault::ReadDescending) {
            events.reverse();
        }
        events
    }

    fn read_page(&self, stream: &str, offset: i64, limit: i64, bytes: i64) -> Vec<StreamEvent> {
        let events = self.read_events(stream, After::Offset(offset), limit);
        let mut left = match self.rules.fault {
            Some(Fault::PageIgnoresBytes) => usize::MAX,
            _ => usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        let fits = |event: &StreamEvent| {
            let fits = left > 0;
            left = left.saturating_sub(event.size());
            fits
        };
        events.into_iter().take_while(fits).collect()
    }

    fn save_offset(&mut self, stream: &str, consumer: &str, offset: i64) -> bool {
        let rules = self.rules;
        let head = self
            .state
            .streams
            .get(stream)
            .map_or(0, |stream| stream.head);
        let saved = self.find_offset(stream, consumer);
        let stored = match rules.fault {
            Some(Fault::SavedOffsetMovesBack) if offset >= 1 => offset,
            Some(Fault::NegativeSaveStored) if saved == 0 => offset,
            Some(Fault::SaveStopsAtHead) => offset.min(head).max(saved),
            _ => offset.max(saved),
        };
        if stored != 0 {
            self.state
                .offsets
                .insert(consumer_key(stream, consumer, rules.fault), stored);
        }
        match rules.fault {
            Some(Fault::SaveAlwaysMoves) => true,
            Some(Fault::SaveNeverMoves) => false,
            _ => stored > saved,
        }
    }

    fn find_offset(&self, stream: &str, consumer: &str) -> i64 {
        let key = consumer_key(stream, consumer, self.rules.fault);
        self.state.offsets.get(&key).copied().unwrap_or(0)
    }

    fn trim_events(&mut self, name: &str, after: i64, horizon: i64) -> TrimStep {
        let rules = self.rules;
        let limit = match rules.fault {
            Some(Fault::TrimInOneStep) => usize::MAX,
            _ => usize::try_from(MOST_PER_STEP).unwrap_or(usize::MAX),
        };
        let events = self.state.streams.get(name);
        let offsets = events.into_iter().flat_map(|stream| stream.events.keys());
        let mut step = offsets.filter(|offset| **offset > after && **offset <= horizon);
        let next = limit
            .checked_sub(1)
            .and_then(|last| step.nth(last))
            .copied();
        let goes = |offset: i64| match rules.fault {
            Some(Fault::TrimExclusive) => offset < next.unwrap_or(horizon),
            _ => offset > after && offset <= next.unwrap_or(horizon),
        };
        let mut trimmed = 0;
        for (stream, Stream { events, .. }) in &mut self.state.streams {
            if stream == name || rules.breaks(Fault::TrimCrossesStreams) {
                let before = events.len();
                events.retain(|offset, _| !goes(*offset));
                trimmed += before - events.len();
            }
        }
        match rules.fault {
            Some(Fault::TrimWakes) => self.wakes.add(Topic::stream(name)),
            Some(Fault::TrimForgetsConsumers) => {
                self.state.offsets.retain(|(stream, _), _| stream != name);
            }
            Some(Fault::TrimMiscounts) => trimmed = usize::try_from(horizon).unwrap_or(0),
            _ => {}
        }
        TrimStep {
            trimmed: trimmed as u64,
            next: next.filter(|_| !rules.breaks(Fault::TrimStopsEarly)),
        }
    }
}

impl State {
    /// Takes over the business rows and the offsets that another transaction committed.
    pub(super) fn merge(&mut self, of: &State) {
        self.rows.extend(of.rows.iter().cloned());
        for (consumer, offset) in &of.offsets {
            let saved = self.offsets.entry(consumer.clone()).or_default();
            *saved = (*saved).max(*offset);
        }
    }

    /// Takes the offsets that were given into account and none of the events.
    pub(super) fn keep_heads(&mut self, of: &State) {
        for (name, stream) in &of.streams {
            self.streams.entry(name.clone()).or_default().head = stream.head;
        }
    }
}

impl Rules {
    fn stream_key(self, name: &str) -> String {
        match self.fault {
            Some(Fault::StreamsFoldCase) => name.to_lowercase(),
            _ => name.into(),
        }
    }
}

fn consumer_key(stream: &str, consumer: &str, fault: Option<Fault>) -> (String, String) {
    match fault {
        Some(Fault::ConsumersShareOffset) => (stream.into(), String::new()),
        Some(Fault::StreamsShareConsumers) => (String::new(), consumer.into()),
        _ => (stream.into(), consumer.into()),
    }
}
