//! Calls that come while others of their kind are on their way become one batch.
//!
//! A commit costs about the same for one row as for many. Whoever finds its lane free goes at
//! once, as if there was no lane. Who comes meanwhile waits, and all who wait go together: one
//! transaction, one wake for each topic, a result for each.
//!
//! An engine says with [`Work`] what one batch is, keeps the [`Lanes`], and sends its calls
//! through [`together`]. The `Owned…` types are the items of the engine's calls, with their
//! borrowed parts copied, so that they can wait.

mod lanes;
mod owned;
mod pulse;
mod serve;
#[cfg(test)]
mod tests;

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::{Error, Result};

use lanes::{Place, Turn};
use pulse::Look;

pub use lanes::Lanes;
pub use owned::{OwnedEnd, OwnedEvent, OwnedJob, OwnedRequest};

/// A call with more items than this goes by itself: it would keep small ones waiting, and gains
/// nothing.
const MOST_OF_ONE: usize = 64;
/// So many items go together at most.
const MOST_TOGETHER: usize = 1000;
/// How often one who waits looks whether the one before it is still at work.
const PATIENCE: Duration = Duration::from_millis(50);
/// One in so many calls lets others run first, to see whether there are any.
const PROBE: u32 = 16;

/// An item of a call that can be done together with others, on the engine `E`.
///
/// ```
/// use std::pin::pin;
/// use std::sync::Arc;
/// use std::time::Instant;
/// use alkstore::Result;
/// use alkstore::engine::coalesce::{Failed, Lanes, Work, together};
///
/// /// A counter that many add to.
/// #[derive(Debug, Clone, Default)]
/// struct Counter(Arc<Inner>);
///
/// #[derive(Debug, Default)]
/// struct Inner {
///     total: tokio::sync::Mutex<u64>,
///     lanes: Lanes<Add, u64>,
/// }
///
/// #[derive(Debug)]
/// struct Add(u64);
///
/// impl Work<Counter> for Add {
///     type Output = u64;
///     type Turn = ();
///     const INLINE: bool = false;
///
///     fn lanes(engine: &Counter) -> &Lanes<Self, u64> {
///         &engine.0.lanes
///     }
///
///     async fn turn(_engine: &Counter, _since: Instant) -> Result<()> {
///         Ok(())
///     }
///
///     async fn run(engine: &Counter, _turn: (), items: &[Self]) -> Result<Vec<u64>, Failed> {
///         let mut total = engine.0.total.lock().await;
///         let add = |Add(amount): &Add| {
///             *total += amount;
///             *total
///         };
///         Ok(items.iter().map(add).collect())
///     }
/// }
///
/// impl Counter {
///     async fn add(&self, amount: u64) -> Result<u64> {
///         let alone = async {
///             let mut total = self.0.total.lock().await;
///             *total += amount;
///             Ok(*total)
///         };
///         let items = || vec![Add(amount)];
///         together(self, "", 1, items, pin!(alone), |totals| totals[0]).await
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let counter = Counter::default();
/// assert_eq!(counter.add(2).await?, 2);
/// # Ok(()) }
/// ```
pub trait Work<E>: fmt::Debug + Sized + Send + Sync + 'static {
    /// What one item comes back with.
    type Output: fmt::Debug + Send + 'static;

    /// What a batch needs before it begins, such as the turn of the only writer.
    type Turn: Send;

    /// Whether a batch ends without having waited for anything. Then nobody comes meanwhile on
    /// the same thread, and whoever serves lets others run before it looks who waits.
    const INLINE: bool;

    /// Whether it can be in a batch whose first item is `first`. Calls share a lane, and are
    /// batches of their own, if those who make the one then make the other: they come back
    /// together.
    fn joins(&self, _first: &Self) -> bool {
        true
    }

    /// Where calls of this kind wait.
    fn lanes(engine: &E) -> &Lanes<Self, Self::Output>;

    /// Waits for what a batch needs, for a call that came at `since`. An error is that call's
    /// alone.
    fn turn(engine: &E, since: Instant) -> impl Future<Output = Result<Self::Turn>> + Send;

    /// Does the items in one commit, and gives a result for each.
    fn run(
        engine: &E,
        turn: Self::Turn,
        items: &[Self],
    ) -> impl Future<Output = Result<Vec<Self::Output>, Failed>> + Send;
}

/// Why a batch failed.
#[derive(Debug)]
pub enum Failed {
    /// Nothing was done, maybe because of one item: each call is tried again alone.
    Undone(Error),
    /// Nobody knows whether it was done, or trying again is no help: each call hears of it.
    Broken(Error),
}

/// Does `alone`, or with others what it would have done: then `items` makes the call's items,
/// `count` of them, and `result` its result of theirs.
///
/// Calls that name different `lane`s do not wait for each other.
///
/// # Errors
///
/// Those of `alone` and of [`Work`].
///
/// # Cancel safety
///
/// A dropped call has been done or has not, and others that were with it are done. As `alone`
/// is dropped with it, that has to be safe as well.
///
/// See [`Work`] for an example.
pub async fn together<E, W, T>(
    engine: &E,
    lane: &str,
    count: usize,
    items: impl Fn() -> Vec<W> + Send,
    alone: Pin<&mut (impl Future<Output = Result<T>> + Send)>,
    result: impl FnOnce(Vec<W::Output>) -> T + Send,
) -> Result<T>
where
    E: Clone + Send + Sync + 'static,
    W: Work<E>,
{
    if count > MOST_OF_ONE {
        return alone.await;
    }
    let lanes = W::lanes(engine);
    let waiting = match lanes.enter(lane, &items) {
        Place::Waiting(waiting) => waiting,
        Place::First(holder) => {
            let turn = Turn::<E, W>::new(engine, lane, holder);
            let looked = look_around(&turn).await;
            match looked.then(|| lanes.join(lane, &turn.holder, &items)) {
                Some(Some(waiting)) => waiting,
                _ => return turn.holder.watch(alone).await,
            }
        }
    };
    wait::<E, W>(engine, lane, waiting).await.map(result)
}

/// Lets others run first, if some are likely to come; returns whether they were let.
async fn look_around<E, W>(turn: &Turn<'_, E, W>) -> bool
where
    E: Clone + Send + Sync + 'static,
    W: Work<E>,
{
    let looks = W::lanes(turn.engine).crowd.probe(W::INLINE);
    if looks {
        turn.holder.watch(pin!(tokio::task::yield_now())).await;
    }
    looks
}

async fn wait<E, W>(
    engine: &E,
    lane: &str,
    mut waiting: lanes::Waiting<W::Output>,
) -> Result<Vec<W::Output>>
where
    E: Clone + Send + Sync + 'static,
    W: Work<E>,
{
    // Who serves is a task of its own, which nobody can forget to poll.
    let mut look = Look::default();
    while !waiting.served {
        match timeout(PATIENCE, &mut waiting.result).await {
            Ok(result) => return result.unwrap_or_else(|_| Err(gone())),
            Err(_) => look.again::<E, W>(engine, lane),
        }
    }
    waiting.result.await.unwrap_or_else(|_| Err(gone()))
}

fn gone() -> Error {
    Error::transient(
        "the operation was not done",
        "the runtime that was to do it has ended",
    )
}

/// Whether calls come alone or not, as far as is known.
#[derive(Debug, Default)]
struct Crowd {
    calls: AtomicU32,
    /// The last batch had more than one call.
    together: AtomicBool,
}

impl Crowd {
    /// Whether it is this call's turn to see who else there is.
    fn probe(&self, inline: bool) -> bool {
        if inline {
            self.calls.fetch_add(1, Ordering::Relaxed) % PROBE == PROBE - 1
        } else {
            self.together.load(Ordering::Relaxed)
        }
    }

    fn note(&self, calls: usize) {
        let together = calls > 1;
        if self.together.load(Ordering::Relaxed) != together {
            self.together.store(together, Ordering::Relaxed);
        }
    }
}
