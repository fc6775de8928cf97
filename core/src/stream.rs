//! Streams: durable events, read in order by any number of consumers.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{After, At, Engine, NewEvent, Topic};
use crate::notify::WakeReceiver;
use crate::payload::Encoded;
use crate::queue::only;
use crate::{EventReceiver, Result, Store, name, payload};

impl<E: Engine> Store<E> {
    /// A handle on a stream. Nothing is created: a stream is a name.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName),
    /// [`Error::ReservedName`](crate::Error::ReservedName).
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>) -> Result<()> {
    /// let orders = store.stream("orders")?;
    /// let offset = orders.publish(&"created").await?;
    /// let mut events = orders.subscribe("billing").await?;
    /// while let Some(event) = events.recv().await {
    ///     println!("{}", event?.payload_as::<String>()?);
    ///     events.save_offset().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn stream(&self, name: &str) -> Result<Stream<E>> {
        name::check_shared(name)?;
        Ok(Stream {
            store: self.clone(),
            name: name.into(),
        })
    }
}

/// A handle on a stream, cheap to clone.
#[derive(Debug)]
pub struct Stream<E> {
    store: Store<E>,
    name: Arc<str>,
}

impl<E: Engine> Clone for Stream<E> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            name: Arc::clone(&self.name),
        }
    }
}

impl<E: Engine> Stream<E> {
    /// The stream's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Publishes an event, committed when this returns, and returns its offset: 1, 2, 3 … in
    /// commit order, never used again.
    ///
    /// # Errors
    ///
    /// [`Error::Codec`](crate::Error::Codec); [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the event or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Stream};
    /// # async fn example<E: Engine>(orders: Stream<E>) -> Result<()> {
    /// let offset = orders.publish(&"created").await?;
    /// # Ok(()) }
    /// ```
    pub async fn publish<P>(&self, payload: &P) -> Result<i64>
    where
        P: Serialize + Sync + ?Sized,
    {
        self.publish_with_key(None, payload).await
    }

    /// Publishes an event with a key. The key is carried, nothing more: order is by offset.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName) for a key that is empty or has a NUL
    /// character; else as for [`Stream::publish`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published the event or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Stream};
    /// # async fn example<E: Engine>(orders: Stream<E>) -> Result<()> {
    /// orders.publish_with_key(Some("customer-7"), &"created").await?;
    /// # Ok(()) }
    /// ```
    pub async fn publish_with_key<P>(&self, key: Option<&str>, payload: &P) -> Result<i64>
    where
        P: Serialize + Sync + ?Sized,
    {
        key.map_or(Ok(()), name::check_key)?;
        let payload = payload::encode(payload)?;
        let event = NewEvent {
            stream: &self.name,
            key,
            payload: &payload,
        };
        only(self.store.append_events(&[event]).await?)
    }

    /// Publishes events, each with an optional key, in one commit and returns their offsets
    /// in the order given. All of them are published or none.
    ///
    /// # Errors
    ///
    /// As for [`Stream::publish_with_key`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has published all events or none.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Stream};
    /// # async fn example<E: Engine>(orders: Stream<E>) -> Result<()> {
    /// let offsets = orders.publish_batch(&[(Some("customer-7"), 1), (None, 2)]).await?;
    /// assert_eq!(offsets.len(), 2);
    /// # Ok(()) }
    /// ```
    pub async fn publish_batch<P>(&self, events: &[(Option<&str>, P)]) -> Result<Vec<i64>>
    where
        P: Serialize + Sync,
    {
        events
            .iter()
            .filter_map(|(key, _)| *key)
            .try_for_each(name::check_key)?;
        let payloads = Encoded::new(events.iter().map(|(_, payload)| payload))?;
        let events: Vec<_> = std::iter::zip(events, payloads.iter())
            .map(|((key, _), payload)| NewEvent {
                stream: &self.name,
                key: *key,
                payload,
            })
            .collect();
        self.store.live()?;
        if events.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.store.append_events(&events).await?.into_vec())
    }

    /// Up to `limit` events with an offset greater than `offset`, ascending. Zero or a
    /// negative limit reads nothing. All of them are in memory at once, however large: a
    /// subscription reads in pages of a bounded size.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// Nothing changes.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Stream};
    /// # async fn example<E: Engine>(orders: Stream<E>) -> Result<()> {
    /// let first = orders.read_since(0, 100).await?;
    /// # Ok(()) }
    /// ```
    pub async fn read_since(&self, offset: i64, limit: i64) -> Result<Vec<StreamEvent>> {
        read(
            self.store.live()?,
            At::Auto,
            &self.name,
            After::Offset(offset),
            limit,
        )
        .await
    }

    /// Up to `limit` events after the offset that `consumer` saved, ascending; all of them are in
    /// memory at once.
    ///
    /// It holds nothing: instances of one consumer that read at once read the same events. To
    /// share them out, use [`Tx::read_from_consumer_tx`](crate::Tx::read_from_consumer_tx).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName) for the consumer;
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// Nothing changes.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Stream};
    /// # async fn example<E: Engine>(orders: Stream<E>) -> Result<()> {
    /// let new = orders.read_from_consumer("billing", 100).await?;
    /// # Ok(()) }
    /// ```
    pub async fn read_from_consumer(&self, consumer: &str, limit: i64) -> Result<Vec<StreamEvent>> {
        name::check_local(consumer)?;
        read(
            self.store.live()?,
            At::Auto,
            &self.name,
            After::SavedBy(consumer),
            limit,
        )
        .await
    }

    /// Saves how far `consumer` has come. Never backwards: `false` if this offset or a greater
    /// one is saved already, or it is below 1, and then nothing changed.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName) for the consumer;
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has saved the offset or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Stream};
    /// # async fn example<E: Engine>(orders: Stream<E>) -> Result<()> {
    /// let moved = orders.save_offset("billing", 42).await?;
    /// # Ok(()) }
    /// ```
    pub async fn save_offset(&self, consumer: &str, offset: i64) -> Result<bool> {
        name::check_local(consumer)?;
        self.store
            .live()?
            .save_offset(At::Auto, &self.name, consumer, offset)
            .await
    }

    /// The offset that `consumer` saved, 0 if it never did.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName) for the consumer;
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// Nothing changes.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Stream};
    /// # async fn example<E: Engine>(orders: Stream<E>) -> Result<()> {
    /// let behind = orders.get_offset("billing").await?;
    /// # Ok(()) }
    /// ```
    pub async fn get_offset(&self, consumer: &str) -> Result<i64> {
        name::check_local(consumer)?;
        self.store
            .live()?
            .find_offset(At::Auto, &self.name, consumer)
            .await
    }

    /// Deletes the events up to and including `horizon` and returns how many. Wakes nobody;
    /// later events keep their offsets, saved offsets stay, and no offset is used again.
    ///
    /// It works from the oldest event on in bounded steps, each a commit of its own: other
    /// callers pass in between, however much there is to trim.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database). The steps before the one that failed stay
    /// done; another call goes on from there.
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves whole steps done, and the rest for the next call.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Stream};
    /// # async fn example<E: Engine>(orders: Stream<E>) -> Result<()> {
    /// let slowest = orders.get_offset("billing").await?;
    /// let trimmed = orders.trim_to(slowest).await?;
    /// # Ok(()) }
    /// ```
    pub async fn trim_to(&self, horizon: i64) -> Result<u64> {
        let (mut trimmed, mut after) = (0, 0);
        loop {
            let engine = self.store.live()?;
            let step = engine.trim_events(&self.name, after, horizon).await?;
            trimmed += step.trimmed;
            match step.next {
                Some(next) if next < horizon => after = next,
                _ => return Ok(trimmed),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Follows the stream from the offset that `consumer` saved: everything that is there,
    /// then everything that comes. Instances of one consumer get all events each; for effects
    /// that happen once see [`Tx::save_offset_tx`](crate::Tx::save_offset_tx).
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName) for the consumer;
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves nothing behind.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Stream};
    /// # async fn example<E: Engine>(orders: Stream<E>) -> Result<()> {
    /// let mut events = orders.subscribe("billing").await?;
    /// # Ok(()) }
    /// ```
    pub async fn subscribe(&self, consumer: &str) -> Result<EventReceiver<E>> {
        name::check_local(consumer)?;
        // Attached before anything is read, so that no commit falls between the two.
        let wakes = self.listen().await?;
        let start = self.get_offset(consumer).await?;
        Ok(EventReceiver::new(self.clone(), consumer, start, wakes))
    }

    /// A receiver of this stream's wakes: a publish wakes it, with no notify call. To read
    /// events, [`Stream::subscribe`] is the whole tool.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves nothing behind.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Stream};
    /// # async fn example<E: Engine>(orders: Stream<E>) -> Result<()> {
    /// let mut wakes = orders.listen().await?;
    /// wakes.recv().await;
    /// # Ok(()) }
    /// ```
    pub async fn listen(&self) -> Result<WakeReceiver> {
        self.store.live()?.listen(Topic::stream(&self.name)).await
    }

    /// See [`Streams::read_page`](crate::engine::Streams::read_page).
    pub(crate) async fn read_page(
        &self,
        offset: i64,
        limit: i64,
        bytes: i64,
    ) -> Result<Vec<StreamEvent>> {
        let engine = self.store.live()?;
        engine.read_page(&self.name, offset, limit, bytes).await
    }

    pub(crate) fn store(&self) -> &Store<E> {
        &self.store
    }
}

/// Reads events where the limit asks for any.
pub(crate) async fn read<E: Engine>(
    engine: &E,
    at: At<'_, E::Conn>,
    stream: &str,
    after: After<'_>,
    limit: i64,
) -> Result<Vec<StreamEvent>> {
    if limit <= 0 {
        return Ok(Vec::new());
    }
    engine.read_events(at, stream, after, limit).await
}

/// A published event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamEvent {
    /// Its place in the stream: 1, 2, 3 … in commit order.
    pub offset: i64,
    /// The stream.
    pub stream: String,
    /// The key it was published with.
    pub key: Option<String>,
    /// The encoded payload, byte for byte as it was published.
    pub payload: Vec<u8>,
    /// When it was published, a unix second; for information, order is by offset.
    pub created_at: i64,
}

impl StreamEvent {
    /// An event without a key, for engines to fill in.
    ///
    /// ```
    /// use alkstore::StreamEvent;
    ///
    /// let mut event = StreamEvent::new("orders", 1, b"1".to_vec(), 1_700_000_000);
    /// event.key = Some("customer-7".to_owned());
    /// ```
    #[must_use]
    pub fn new(stream: impl Into<String>, offset: i64, payload: Vec<u8>, created_at: i64) -> Self {
        Self {
            offset,
            stream: stream.into(),
            key: None,
            payload,
            created_at,
        }
    }

    /// The size in bytes of its payload and its key: what pages of a subscription are bounded by.
    ///
    /// ```
    /// # fn example(event: alkstore::StreamEvent) {
    /// assert!(event.size() >= event.payload.len());
    /// # }
    /// ```
    #[must_use]
    pub fn size(&self) -> usize {
        self.payload.len() + self.key.as_ref().map_or(0, String::len)
    }

    /// Decodes the payload.
    ///
    /// # Errors
    ///
    /// [`Error::Codec`](crate::Error::Codec) if the bytes are not a `T`.
    ///
    /// ```
    /// # fn example(event: alkstore::StreamEvent) -> alkstore::Result<()> {
    /// let text: String = event.payload_as()?;
    /// # Ok(()) }
    /// ```
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T> {
        payload::decode(&self.payload)
    }
}
