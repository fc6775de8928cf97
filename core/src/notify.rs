//! Wake-ups: hints that something changed, for whoever listens at that moment.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::task::AtomicWaker;
use serde::Serialize;

use crate::engine::{At, Engine};
use crate::name::{self, LISTENER_RECONNECTED};
use crate::{Error, Result, Store, payload};

impl<E: Engine> Store<E> {
    /// Wakes who listens to `channel` now. Nothing is stored.
    ///
    /// The payload is for listeners outside this library: on Postgres it is the payload of
    /// the `NOTIFY`, and a [`Wake`] does not carry it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::ReservedName`]; [`Error::Codec`];
    /// [`Error::PayloadTooLarge`] on Postgres from 8000 encoded bytes on;
    /// [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has notified or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>) -> Result<()> {
    /// let mut wakes = store.listen("prices").await?;
    /// store.notify("prices", &"changed").await?;
    /// assert!(wakes.recv().await.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn notify<P>(&self, channel: &str, payload: &P) -> Result<()>
    where
        P: Serialize + Sync + ?Sized,
    {
        let payload = encode(self.engine(), channel, payload)?;
        let engine = self.live()?;
        engine.send_notify(At::Auto, channel, &payload).await
    }

    /// A receiver of the wakes of `channel` that commit after this returns.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::ReservedName`]; [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call leaves nothing behind.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>) -> Result<()> {
    /// let mut wakes = store.listen("prices").await?;
    /// while let Some(wake) = wakes.recv().await {
    ///     println!("{} changed: read it again", wake.channel());
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn listen(&self, channel: &str) -> Result<WakeReceiver> {
        name::check_shared(channel)?;
        self.live()?.listen(Topic::channel(channel)).await
    }
}

/// Checks and encodes what `notify` and `notify_tx` are given.
pub(crate) fn encode<E: Engine, P>(engine: &E, channel: &str, payload: &P) -> Result<Vec<u8>>
where
    P: Serialize + ?Sized,
{
    name::check_shared(channel)?;
    let payload = payload::encode(payload)?;
    match engine.notify_limit() {
        Some(limit) if payload.len() >= limit => Err(Error::PayloadTooLarge { limit }),
        _ => Ok(payload),
    }
}

/// "Something changed, read again." Wakes are hints: they merge, they may repeat, and one
/// that was sent while nobody could hear it is gone.
///
/// ```
/// # fn example(wake: alkstore::Wake) {
/// assert_eq!(wake.channel(), "prices");
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wake {
    channel: Arc<str>,
}

impl Wake {
    /// The name of the channel, stream, queue or outbox that was listened to, or
    /// [`LISTENER_RECONNECTED`](crate::LISTENER_RECONNECTED) after a gap in which wakes may
    /// have been missed.
    #[must_use]
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// Whether this wake says that others may have been missed.
    #[must_use]
    pub fn is_reconnect(&self) -> bool {
        &*self.channel == LISTENER_RECONNECTED
    }
}

/// What a receiver listens to, and what a change wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic<'a> {
    /// The kind: a queue and a channel of one name are two topics.
    pub kind: TopicKind,
    /// The name within its kind.
    pub name: &'a str,
}

/// The kinds of topics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TopicKind {
    /// A channel of `notify`.
    Channel,
    /// A stream: something was published.
    Stream,
    /// A queue: a job became ready or will.
    Queue,
    /// The schedules: one was added or changed.
    Schedules,
}

impl<'a> Topic<'a> {
    /// The one topic of all schedules.
    pub const SCHEDULES: Topic<'static> = Topic {
        kind: TopicKind::Schedules,
        name: "schedules",
    };

    /// The topic of a channel.
    #[must_use]
    pub fn channel(name: &'a str) -> Self {
        Self {
            kind: TopicKind::Channel,
            name,
        }
    }

    /// The topic of a stream.
    #[must_use]
    pub fn stream(name: &'a str) -> Self {
        Self {
            kind: TopicKind::Stream,
            name,
        }
    }

    /// The topic of a queue.
    #[must_use]
    pub fn queue(name: &'a str) -> Self {
        Self {
            kind: TopicKind::Queue,
            name,
        }
    }
}

/// The topics that a transaction touched, each once.
#[derive(Debug, Clone, Default)]
pub struct Wakes(Vec<(TopicKind, Box<str>)>);

impl Wakes {
    /// Adds a topic unless it is there.
    pub fn add(&mut self, topic: Topic<'_>) {
        if !self.iter().any(|known| known == topic) {
            self.0.push((topic.kind, topic.name.into()));
        }
    }

    /// The topics in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = Topic<'_>> {
        self.0
            .iter()
            .map(|(kind, name)| Topic { kind: *kind, name })
    }
}

/// Where an engine tells of changes and receivers hear of them, within one process.
///
/// Made by the engine, one for each database that it opened; cheap to clone.
///
/// ```
/// use alkstore::engine::{Topic, WakeHub};
///
/// let hub = WakeHub::new();
/// let mut receiver = hub.attach(Topic::queue("mail"));
/// hub.wake(Topic::channel("mail"));
/// assert_eq!(receiver.try_recv()?, None, "a channel is not a queue");
/// hub.wake(Topic::queue("mail"));
/// assert!(receiver.try_recv()?.is_some());
/// # Ok::<(), alkstore::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct WakeHub(Arc<Hub>);

#[derive(Debug, Default)]
struct Hub {
    topics: Mutex<Topics>,
    /// How many receivers are attached, so that a wake without any takes no lock.
    attached: AtomicUsize,
}

#[derive(Debug, Default)]
struct Topics {
    closed: bool,
    by_kind: HashMap<TopicKind, HashMap<Arc<str>, Vec<Arc<Slot>>>>,
}

impl WakeHub {
    /// A hub that nobody listens to yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A receiver of the topic's wakes from now on; closed at once if the hub is.
    #[must_use]
    pub fn attach(&self, topic: Topic<'_>) -> WakeReceiver {
        let mut topics = self.0.lock();
        let names = topics.by_kind.entry(topic.kind).or_default();
        let name = match names.get_key_value(topic.name) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(topic.name),
        };
        let slot = Arc::new(Slot::default());
        names
            .entry(Arc::clone(&name))
            .or_default()
            .push(Arc::clone(&slot));
        self.0.attached.fetch_add(1, Ordering::SeqCst);
        if topics.closed {
            slot.raise(CLOSED);
        }
        drop(topics);
        WakeReceiver {
            kind: topic.kind,
            shown: Arc::clone(&name),
            name,
            slot,
            hub: self.clone(),
        }
    }

    /// Wakes who listens to the topic.
    pub fn wake(&self, topic: Topic<'_>) {
        if !self.is_attached() {
            return;
        }
        let topics = self.0.lock();
        let slots = topics
            .by_kind
            .get(&topic.kind)
            .and_then(|names| names.get(topic.name));
        slots
            .into_iter()
            .flatten()
            .for_each(|slot| slot.raise(WOKEN));
    }

    /// Tells every receiver that wakes may have been missed.
    pub fn reconnected(&self) {
        self.0
            .lock()
            .slots()
            .for_each(|slot| slot.raise(RECONNECTED));
    }

    /// Closes every receiver, those attached later included.
    pub fn close(&self) {
        let mut topics = self.0.lock();
        topics.closed = true;
        topics.slots().for_each(|slot| slot.raise(CLOSED));
    }

    /// Whether anyone listens to anything.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.0.attached.load(Ordering::SeqCst) > 0
    }

    /// The topics that someone listens to, in no order.
    #[must_use]
    pub fn topics(&self) -> Vec<(TopicKind, Arc<str>)> {
        let topics = self.0.lock();
        let of_kind = |(kind, names): (&TopicKind, &HashMap<Arc<str>, _>)| {
            names
                .keys()
                .map(|name| (*kind, Arc::clone(name)))
                .collect::<Vec<_>>()
        };
        topics.by_kind.iter().flat_map(of_kind).collect()
    }

    fn detach(&self, kind: TopicKind, name: &Arc<str>, slot: &Arc<Slot>) {
        let mut topics = self.0.lock();
        if let Some(names) = topics.by_kind.get_mut(&kind)
            && let Some(slots) = names.get_mut(name)
        {
            slots.retain(|other| !Arc::ptr_eq(other, slot));
            if slots.is_empty() {
                names.remove(name);
            }
        }
        self.0.attached.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, Topics> {
        // Nothing in here can be left half done by a panic.
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Topics {
    fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.by_kind.values().flat_map(HashMap::values).flatten()
    }
}

const WOKEN: u8 = 1;
const RECONNECTED: u8 = 2;
const CLOSED: u8 = 4;

/// What one receiver has not heard yet: wakes merge into a bit each.
#[derive(Debug, Default)]
struct Slot {
    flags: AtomicU8,
    waker: AtomicWaker,
}

impl Slot {
    fn raise(&self, flag: u8) {
        self.flags.fetch_or(flag, Ordering::AcqRel);
        self.waker.wake();
    }
}

/// Receives the wakes of one channel, queue or stream; [`Store::listen`] and its kin make it.
///
/// As a [`futures::Stream`] it yields the same wakes and ends when the receiver is closed.
pub struct WakeReceiver {
    kind: TopicKind,
    name: Arc<str>,
    /// The name that its wakes carry.
    shown: Arc<str>,
    slot: Arc<Slot>,
    hub: WakeHub,
}

impl fmt::Debug for WakeReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeReceiver")
            .field("kind", &self.kind)
            .field("channel", &self.shown)
            .finish_non_exhaustive()
    }
}

impl WakeReceiver {
    /// The receiver, whose wakes carry this name from now on.
    pub(crate) fn shown_as(mut self, name: Arc<str>) -> Self {
        self.shown = name;
        self
    }

    /// Waits for the next wake; `None` once the receiver is closed, for good.
    ///
    /// # Cancel safety
    ///
    /// A dropped call takes no wake with it.
    ///
    /// ```
    /// # async fn example(mut wakes: alkstore::WakeReceiver) {
    /// while let Some(_wake) = wakes.recv().await { /* read again */ }
    /// # }
    /// ```
    pub async fn recv(&mut self) -> Option<Wake> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The next wake if there is one now.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    ///
    /// ```
    /// # fn example(mut wakes: alkstore::WakeReceiver) -> alkstore::Result<()> {
    /// let nothing_yet = wakes.try_recv()?.is_none();
    /// # Ok(()) }
    /// ```
    pub fn try_recv(&mut self) -> Result<Option<Wake>> {
        match self.take() {
            Some(Some(wake)) => Ok(Some(wake)),
            Some(None) => Err(Error::Closed),
            None => Ok(None),
        }
    }

    /// Waits for the next wake, `timeout` at most; `None` if that passes first.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call takes no wake with it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn example(mut wakes: alkstore::WakeReceiver) -> alkstore::Result<()> {
    /// let woken = wakes.recv_timeout(Duration::from_secs(1)).await?.is_some();
    /// # Ok(()) }
    /// ```
    pub async fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Wake>> {
        match tokio::time::timeout(timeout, self.recv()).await {
            Ok(Some(wake)) => Ok(Some(wake)),
            Ok(None) => Err(Error::Closed),
            Err(_) => Ok(None),
        }
    }

    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Wake>> {
        if let Some(next) = self.take() {
            return Poll::Ready(next);
        }
        self.slot.waker.register(cx.waker());
        // A wake between the look and the registration would be slept through.
        self.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// What `recv` yields, if it yields now.
    fn take(&self) -> Option<Option<Wake>> {
        let flags = &self.slot.flags;
        if flags.load(Ordering::Acquire) & CLOSED != 0 {
            return Some(None);
        }
        // A reconnect says more than a wake: it goes first and the wake follows.
        if flags.fetch_and(!RECONNECTED, Ordering::AcqRel) & RECONNECTED != 0 {
            return Some(Some(Wake {
                channel: LISTENER_RECONNECTED.into(),
            }));
        }
        if flags.fetch_and(!WOKEN, Ordering::AcqRel) & WOKEN != 0 {
            return Some(Some(Wake {
                channel: Arc::clone(&self.shown),
            }));
        }
        None
    }
}

impl Stream for WakeReceiver {
    type Item = Wake;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Wake>> {
        self.get_mut().poll_recv(cx)
    }
}

impl Drop for WakeReceiver {
    fn drop(&mut self) {
        self.hub.detach(self.kind, &self.name, &self.slot);
    }
}
