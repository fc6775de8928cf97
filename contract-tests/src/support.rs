//! What the cases share.

use std::error::Error as _;
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::task::Poll;

use alkstore::{Engine, Error, Job, Result, Store, StoreClosed, StreamEvent};
use futures::FutureExt;
use serde::{Serialize, Serializer};

use crate::Harness;

/// A job like another one, or like none, but for the fields that are named.
macro_rules! job_of {
    ($($field:ident $(: $value:expr)?,)* ..$base:expr) => {{
        let mut job: alkstore::Job = $base;
        $(job.$field = $crate::support::job_of!(@value $field $($value)?);)*
        job
    }};
    (@value $field:ident) => { $field };
    (@value $field:ident $value:expr) => { $value };
    ($($field:ident $(: $value:expr)?),* $(,)?) => {
        $crate::support::job_of! {
            $($field $(: $value)?,)* ..alkstore::Job::new(0, "", Vec::new())
        }
    };
}
pub(crate) use job_of;

/// What must happen, within the harness's patience.
#[track_caller]
pub(crate) fn within<H, F>(h: &H, what: F) -> impl Future<Output = F::Output> + use<H, F>
where
    H: Harness,
    F: Future,
{
    let (caller, patience) = (Location::caller(), h.patience());
    async move {
        match tokio::time::timeout(patience, what).await {
            Ok(output) => output,
            Err(_) => panic!("{caller}: this did not happen within {patience:?}"),
        }
    }
}

/// Fails if `what` happens while the harness watches.
#[track_caller]
pub(crate) fn never<H, F>(h: &H, what: F) -> impl Future<Output = ()> + use<H, F>
where
    H: Harness,
    F: Future<Output: Debug>,
{
    let (caller, quiet) = (Location::caller(), h.quiet());
    async move {
        if let Ok(output) = tokio::time::timeout(quiet, what).await {
            panic!("{caller}: this must not happen: {output:?}");
        }
    }
}

/// Tries until `done` returns something, within the harness's patience.
#[track_caller]
pub(crate) fn eventually<H, T, F, R>(
    h: &H,
    mut done: F,
) -> impl Future<Output = T> + use<H, T, F, R>
where
    H: Harness,
    F: FnMut() -> R,
    R: Future<Output = Option<T>>,
{
    within(h, async move {
        loop {
            if let Some(found) = done().await {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    })
}

/// The error of what must fail.
#[track_caller]
pub(crate) fn error_of<T>(result: Result<T>) -> Error {
    match result {
        Ok(_) => panic!("this must fail"),
        Err(error) => error,
    }
}

/// The error of a call that is refused by what it was given alone: it makes no round trip, so
/// it never waits.
#[track_caller]
pub(crate) fn refused<T>(call: impl Future<Output = Result<T>>) -> Error {
    error_of(
        call.now_or_never()
            .expect("a call that is refused waits for nothing"),
    )
}

/// Whether an error says, in its chain of sources, that the store is closed.
pub(crate) fn says_closed(error: &Error) -> bool {
    let mut cause = match error {
        Error::Database(_) => error.source(),
        _ => None,
    };
    while let Some(source) = cause {
        if source.is::<StoreClosed>() {
            return true;
        }
        cause = source.source();
    }
    error.to_string().contains("closed")
}

/// The events' payloads as numbers.
pub(crate) fn numbers(events: &[StreamEvent]) -> Vec<i64> {
    events.iter().map(number).collect()
}

/// The event's payload as a number.
pub(crate) fn number(event: &StreamEvent) -> i64 {
    event.payload_as().expect("the payload is a number")
}

/// The events' offsets.
pub(crate) fn offsets(events: &[StreamEvent]) -> Vec<i64> {
    events.iter().map(|event| event.offset).collect()
}

/// All events of a stream.
pub(crate) async fn read_all<E: Engine>(store: &Store<E>, stream: &str) -> Vec<StreamEvent> {
    let stream = store.stream(stream).expect("the name is valid");
    stream.read_since(0, i64::MAX).await.expect("reading works")
}

/// The job as any other process sees it now.
pub(crate) async fn find_job<E: Engine>(store: &Store<E>, queue: &str, id: i64) -> Option<Job> {
    let queue = store
        .queue(queue, alkstore::QueueOpts::default())
        .expect("the name is valid");
    queue.get_job(id).await.expect("reading works")
}

/// Whether the outbox has a message that is ready, which is delivered then.
pub(crate) async fn deliver_one<E: Engine>(store: &Store<E>, outbox: &str) -> bool {
    let outbox = store.outbox(outbox).expect("the name is valid");
    let deliver = async |_| Ok::<_, Error>(());
    outbox
        .run_once("worker", deliver)
        .await
        .expect("a delivery works")
}

/// The count of committed business rows.
pub(crate) async fn count_rows<H: Harness>(store: &Store<H::Engine>) -> i64 {
    let mut tx = store.begin_tx().await.expect("a transaction begins");
    let count = H::count_rows(tx.connection())
        .await
        .expect("counting works");
    tx.rollback().await.expect("a rollback works");
    count
}

/// A payload that must not be looked at.
pub(crate) struct Untouchable;

impl Serialize for Untouchable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("the payload was touched")
    }
}

/// When a future is dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dropped {
    /// Right after so many polls, with its work on its way.
    AfterPolls(usize),
    /// After so many polls and once more woken: with its work done and not looked at.
    Woken(usize),
}

impl Dropped {
    /// All points at which the cases drop futures.
    pub(crate) fn points() -> impl Iterator<Item = Self> {
        (0..16).map(Self::AfterPolls).chain((1..8).map(Self::Woken))
    }

    /// Runs a future to that point; its output, if it came to its end before.
    pub(crate) async fn run<F: Future>(self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut polled = 0;
        poll_fn(|cx| {
            let (most, woken) = match self {
                Self::AfterPolls(most) => (most, false),
                Self::Woken(most) => (most, true),
            };
            if polled < most {
                polled += 1;
                if let Poll::Ready(output) = future.as_mut().poll(cx) {
                    return Poll::Ready(Some(output));
                }
                if woken || polled < most {
                    return Poll::Pending;
                }
            }
            Poll::Ready(None)
        })
        .await
    }
}

/// The engine's clock, read from what it stamps. Seconds tick while a case runs: a probe of
/// one exact second goes to it, looks, and counts only if the clock still shows it.
pub(crate) struct Clock<'h, H: Harness> {
    h: &'h H,
    queue: alkstore::Queue<H::Engine>,
}

impl<'h, H: Harness> Clock<'h, H> {
    /// The clock as this store sees it.
    pub(crate) fn new(h: &'h H, store: &Store<H::Engine>) -> Self {
        let opts = alkstore::QueueOpts::default();
        let queue = store.queue("clock", opts).expect("the name is valid");
        Self { h, queue }
    }

    /// The unix second that the clock shows.
    pub(crate) async fn now(&self) -> i64 {
        let opts = alkstore::EnqueueOpts::default();
        let id = self
            .queue
            .enqueue(&(), opts)
            .await
            .expect("enqueuing works");
        let job = self.queue.get_job(id).await.expect("reading works");
        job.expect("the job is there").created_at
    }

    /// Moves the clock to `instant`, unless that is over.
    pub(crate) async fn go_to(&self, instant: i64) {
        let ahead = instant.saturating_sub(self.now().await);
        if ahead > 0 {
            self.h.advance(ahead);
        }
    }

    /// Whether the clock shows `instant`. After [`Clock::go_to`]: whether all since then
    /// happened in that very second.
    pub(crate) async fn shows(&self, instant: i64) -> bool {
        self.now().await == instant
    }
}

/// Attempts at a probe that counts only within one second: it ends by returning.
pub(crate) fn attempts() -> impl Iterator<Item = ()> {
    let too_slow = || panic!("the second ticked in each of 100 attempts");
    std::iter::repeat_n((), 100).chain(std::iter::once_with(too_slow))
}
