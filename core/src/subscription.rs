//! Following a stream: the loop behind [`Stream::subscribe`](crate::Stream::subscribe).

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use pin_project::pin_project;
use tokio::time::{Instant, Sleep};

use crate::engine::Engine;
use crate::notify::WakeReceiver;
use crate::{Error, Result, Stream, StreamEvent};

/// A page ends with the event that fills so many bytes.
const PAGE_BYTES: usize = 1 << 20;
const FIRST_PAGE: usize = 32;
const LARGEST_PAGE: usize = 512;

/// How long a read that failed waits before it is tried again, unless a wake comes first.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// The events of a stream, from a consumer's saved offset on, as they come;
/// [`Stream::subscribe`](crate::Stream::subscribe) makes it.
///
/// Nothing is saved by itself, see [`EventReceiver::save_offset`]. It holds one page of
/// events at most, 512 of them or 1 MiB and the event that goes beyond it, so a slow consumer
/// slows its own feed only. A lost wake delays an event by
/// the engine's re-read interval at most. Connections that are lost and made anew end
/// nothing and hide nothing.
///
/// As a [`futures::Stream`] it yields what [`EventReceiver::recv`] returns.
#[pin_project]
pub struct EventReceiver<E: Engine> {
    stream: Stream<E>,
    consumer: String,
    #[pin]
    wakes: WakeReceiver,
    #[pin]
    read: Option<BoxFuture<'static, Result<Vec<StreamEvent>>>>,
    #[pin]
    pause: Option<Pin<Box<Sleep>>>,
    page: std::vec::IntoIter<StreamEvent>,
    /// The most events of the next page, judged by the sizes of those in the last one.
    page_size: usize,
    /// The offset of the last event that was read.
    fetched: i64,
    /// The offset of the last event that was yielded; 0 before.
    yielded: i64,
    /// Everything that was there at the last read has been read.
    caught_up: bool,
}

impl<E: Engine> fmt::Debug for EventReceiver<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventReceiver")
            .field("stream", &self.stream.name())
            .field("consumer", &self.consumer)
            .field("offset", &self.yielded)
            .finish_non_exhaustive()
    }
}

impl<E: Engine> EventReceiver<E> {
    pub(crate) fn new(stream: Stream<E>, consumer: &str, start: i64, wakes: WakeReceiver) -> Self {
        Self {
            stream,
            consumer: consumer.to_owned(),
            wakes,
            read: None,
            pause: None,
            page: Vec::new().into_iter(),
            page_size: FIRST_PAGE,
            fetched: start,
            yielded: 0,
            caught_up: false,
        }
    }

    /// Waits for the next event; `None` once the store is closed or its database is gone, for
    /// good. A new subscription goes on from the saved offset.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] only. The receiver lives on and the next call tries again.
    ///
    /// # Cancel safety
    ///
    /// A dropped call takes no event with it.
    ///
    /// ```
    /// # use alkstore::{Engine, EventReceiver, Result};
    /// # async fn example<E: Engine>(mut events: EventReceiver<E>) -> Result<()> {
    /// while let Some(event) = events.recv().await {
    ///     let event = event?;
    ///     println!("{}: {} bytes", event.offset, event.payload.len());
    ///     events.save_offset().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn recv(&mut self) -> Option<Result<StreamEvent>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_event(cx)).await
    }

    /// The next event if there is one now; reads the database if none is at hand.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`]; [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call takes no event with it.
    ///
    /// ```
    /// # use alkstore::{Engine, EventReceiver, Result};
    /// # async fn example<E: Engine>(mut events: EventReceiver<E>) -> Result<()> {
    /// while let Some(event) = events.try_recv().await? {
    ///     println!("{}", event.offset);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_recv(&mut self) -> Result<Option<StreamEvent>> {
        if self.stream.store().is_closed() {
            return Err(Error::Closed);
        }
        if self.wakes.try_recv()?.is_some() {
            self.caught_up = false;
        }
        if self.page.len() == 0 {
            // A read that a dropped call left behind may be older than the last commit.
            // Until a new one ends there may be more, also for whoever asks after this is dropped.
            self.read = None;
            self.caught_up = false;
            poll_fn(|cx| Pin::new(&mut *self).poll_page(cx)).await?;
        }
        Ok(self
            .page
            .next()
            .inspect(|event| self.yielded = event.offset))
    }

    /// Up to `limit` events of the stream with an offset greater than `offset`, ascending.
    /// What the receiver yields next stays the same.
    ///
    /// # Errors
    ///
    /// [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// Nothing changes.
    ///
    /// ```
    /// # use alkstore::{Engine, EventReceiver, Result};
    /// # async fn example<E: Engine>(mut events: EventReceiver<E>) -> Result<()> {
    /// let again = events.read_since(events.offset() - 1, 1).await?;
    /// # Ok(()) }
    /// ```
    pub fn read_since(
        &self,
        offset: i64,
        limit: i64,
    ) -> impl Future<Output = Result<Vec<StreamEvent>>> + Send + use<E> {
        let stream = self.stream.clone();
        async move { stream.read_since(offset, limit).await }
    }

    /// Saves the offset of the last event that was yielded, never one that was only fetched.
    /// `false` if nothing changed: no event was yielded yet, or another instance of the consumer
    /// has saved this offset or a greater one.
    ///
    /// # Errors
    ///
    /// [`Error::Database`] only.
    ///
    /// # Cancel safety
    ///
    /// A dropped call has saved the offset or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, EventReceiver, Result};
    /// # async fn example<E: Engine>(mut events: EventReceiver<E>) -> Result<()> {
    /// events.recv().await;
    /// events.save_offset().await?;
    /// # Ok(()) }
    /// ```
    pub async fn save_offset(&mut self) -> Result<bool> {
        if self.yielded == 0 {
            return Ok(false);
        }
        let saved = self.stream.save_offset(&self.consumer, self.yielded).await;
        saved.map_err(Error::into_database)
    }

    /// The offset of the last event that was yielded, 0 before any.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.yielded
    }

    fn poll_event(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<StreamEvent>>> {
        loop {
            if self.stream.store().is_closed() {
                return Poll::Ready(None);
            }
            if let Some(event) = self.page.next() {
                *self.as_mut().project().yielded = event.offset;
                return Poll::Ready(Some(Ok(event)));
            }
            if !self.caught_up {
                match ready!(self.as_mut().poll_page(cx)) {
                    Err(_) if self.stream.store().is_closed() => return Poll::Ready(None),
                    Err(error) => return Poll::Ready(Some(Err(error))),
                    Ok(()) => continue,
                }
            }
            if ready!(self.as_mut().poll_rest(cx)).is_none() {
                return Poll::Ready(None);
            }
        }
    }

    /// Reads the next page, of which nothing is at hand.
    fn poll_page(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut this = self.project();
        if this.read.is_none() {
            let (stream, from) = (this.stream.clone(), *this.fetched);
            let limit = i64::try_from(*this.page_size).unwrap_or(i64::MAX);
            let bytes = i64::try_from(PAGE_BYTES).unwrap_or(i64::MAX);
            this.read.set(Some(Box::pin(async move {
                stream.read_page(from, limit, bytes).await
            })));
        }
        let Some(read) = this.read.as_mut().as_pin_mut() else {
            return Poll::Ready(Ok(()));
        };
        let events = ready!(read.poll(cx));
        this.read.set(None);
        match events {
            Ok(events) => {
                let bytes: usize = events.iter().map(StreamEvent::size).sum();
                *this.caught_up = events.len() < *this.page_size && bytes < PAGE_BYTES;
                if let Some(last) = events.last() {
                    *this.fetched = last.offset;
                    let most = PAGE_BYTES / (bytes / events.len()).max(1);
                    *this.page_size = most.clamp(1, LARGEST_PAGE);
                }
                *this.page = events.into_iter();
                this.pause.set(None);
                Poll::Ready(Ok(()))
            }
            Err(error) => {
                *this.caught_up = true;
                this.pause
                    .set(Some(Box::pin(tokio::time::sleep(AFTER_ERROR))));
                Poll::Ready(Err(error.into_database()))
            }
        }
    }

    /// Waits until it is time to read again; `None` if that never comes.
    fn poll_rest(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        let mut this = self.project();
        match this.wakes.poll_recv(cx) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(_)) => {}
            Poll::Pending => {
                if this.pause.is_none() {
                    let interval = this.stream.store().engine().reread_interval();
                    let soon = Instant::now() + Duration::from_secs(60 * 60 * 24 * 365);
                    let then = Instant::now().checked_add(interval).unwrap_or(soon);
                    this.pause
                        .set(Some(Box::pin(tokio::time::sleep_until(then))));
                }
                if let Some(pause) = this.pause.as_mut().as_pin_mut() {
                    ready!(pause.poll(cx));
                }
            }
        }
        this.pause.set(None);
        *this.caught_up = false;
        Poll::Ready(Some(()))
    }
}

impl<E: Engine> futures::Stream for EventReceiver<E> {
    type Item = Result<StreamEvent>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_event(cx)
    }
}
