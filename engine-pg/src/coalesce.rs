//! Calls that come while another of their kind is on its way become one statement.
//!
//! A commit costs the same for one row as for many. Whoever finds its lane free goes at once, as
//! if there was no lane. Who comes meanwhile waits, and all who wait go together.

mod owned;

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use alkstore::{Error, Result};
use futures::task::AtomicWaker;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::Postgres;
use crate::backend::Inner;

pub(crate) use owned::{AllLanes, OwnedEnd, OwnedEvent, OwnedJob, OwnedRequest};

/// A call with more items than this goes by itself: it would keep small ones waiting, and gains
/// nothing.
const MOST_OF_ONE: usize = 64;
/// So many items go together at most.
const MOST_TOGETHER: usize = 1000;
/// How often one who waits looks whether the one before it is still at work.
const PATIENCE: Duration = Duration::from_millis(50);

/// A kind of call that can be done together with others.
pub(crate) trait Work: Sized + Send + Sync + fmt::Debug + 'static {
    /// What one item of a call comes back with.
    type Output: Send + fmt::Debug + 'static;

    /// Where calls of this kind wait.
    fn lanes(inner: &Inner) -> &Lanes<Self>;

    /// Does the items in one commit.
    fn run(
        engine: &Postgres,
        items: &[Self],
    ) -> impl Future<Output = Result<Vec<Self::Output>>> + Send;
}

/// The lanes of one kind of call, by what may make a call wait for others' transactions: those
/// on one lane wait together.
#[derive(Debug)]
pub(crate) struct Lanes<W: Work>(Mutex<HashMap<String, Lane<W>>>);

/// A lane that someone is on.
#[derive(Debug)]
struct Lane<W: Work> {
    holder: Arc<Pulse>,
    waiting: Vec<Call<W>>,
}

#[derive(Debug)]
struct Call<W: Work> {
    items: Vec<W>,
    done: oneshot::Sender<Result<Vec<W::Output>>>,
}

impl<W: Work> Default for Lanes<W> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<W: Work> Lanes<W> {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Lane<W>>> {
        // Nothing in here can be left half done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lane if nobody is on it, or else stands in it.
    fn enter(&self, lane: &str, items: impl FnOnce() -> Vec<W>) -> Place<W> {
        let mut lanes = self.lock();
        if let Some(lane) = lanes.get_mut(lane) {
            let (done, result) = oneshot::channel();
            let items = items();
            lane.waiting.push(Call { items, done });
            return Place::Waiting(result);
        }
        let holder = Arc::default();
        let (taken, waiting) = (Arc::clone(&holder), Vec::new());
        lanes.insert(lane.to_owned(), Lane { holder, waiting });
        Place::First(taken)
    }

    /// Gives the lane to whoever waits on it, if it is still this holder's.
    fn pass_on(&self, inner: &Arc<Inner>, name: &str, holder: &Arc<Pulse>) {
        let mut lanes = self.lock();
        let Some(lane) = lanes
            .get_mut(name)
            .filter(|lane| Arc::ptr_eq(&lane.holder, holder))
        else {
            return;
        };
        match Handle::try_current() {
            Ok(runtime) if !lane.waiting.is_empty() => {
                lane.holder = Arc::default();
                let (engine, holder) = (Postgres(Arc::clone(inner)), Arc::clone(&lane.holder));
                runtime.spawn(serve::<W>(engine, name.to_owned(), holder));
            }
            _ => drop(lanes.remove(name)),
        }
    }
}

enum Place<W: Work> {
    First(Arc<Pulse>),
    Waiting(oneshot::Receiver<Result<Vec<W::Output>>>),
}

/// Does `alone`, or with others what it would have done: `items` makes that last.
pub(crate) async fn together<W: Work>(
    engine: &Postgres,
    lane: &str,
    count: usize,
    items: impl FnOnce() -> Vec<W>,
    alone: impl Future<Output = Result<Vec<W::Output>>>,
) -> Result<Vec<W::Output>> {
    if count > MOST_OF_ONE {
        return alone.await;
    }
    let inner = engine.inner();
    match W::lanes(inner).enter(lane, items) {
        Place::First(holder) => {
            let turn = Turn::<W> {
                inner,
                lane,
                holder,
                work: PhantomData,
            };
            turn.holder.watch(alone).await
        }
        Place::Waiting(mut result) => {
            let mut look = Look::default();
            loop {
                match timeout(PATIENCE, &mut result).await {
                    Ok(result) => return result.unwrap_or_else(|_| Err(gone())),
                    Err(_) => look.again::<W>(inner, lane),
                }
            }
        }
    }
}

fn gone() -> Error {
    Error::transient(
        "the operation was not done",
        "the runtime that was to do it has ended",
    )
}

/// Being on a lane. Whatever ends it, those who wait go next.
struct Turn<'t, W: Work> {
    inner: &'t Arc<Inner>,
    lane: &'t str,
    holder: Arc<Pulse>,
    work: PhantomData<W>,
}

impl<W: Work> Drop for Turn<'_, W> {
    fn drop(&mut self) {
        W::lanes(self.inner).pass_on(self.inner, self.lane, &self.holder);
    }
}

/// Whether the future of who is on a lane is polled when it is woken.
///
/// The caller may keep it and never poll it again, for instance while it waits for a call of
/// its own that came later. Those who wait must not wait for that.
#[derive(Debug, Default)]
struct Pulse {
    polls: AtomicU64,
    woken: AtomicBool,
    waker: AtomicWaker,
}

impl Wake for Pulse {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Pulse {
    async fn watch<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let waker = Waker::from(Arc::clone(self));
        poll_fn(|cx| {
            self.waker.register(cx.waker());
            self.woken.store(false, Ordering::Release);
            self.polls.fetch_add(1, Ordering::Relaxed);
            work.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }
}

/// What one who waits saw of the holder when it last looked.
#[derive(Debug, Default)]
struct Look(Option<(Arc<Pulse>, u64)>);

impl Look {
    /// Takes the lane from a holder that was woken before the last look and not polled since.
    fn again<W: Work>(&mut self, inner: &Arc<Inner>, lane: &str) {
        let holder = W::lanes(inner)
            .lock()
            .get(lane)
            .map(|lane| Arc::clone(&lane.holder));
        let Some(holder) = holder.filter(|holder| holder.woken.load(Ordering::Acquire)) else {
            self.0 = None;
            return;
        };
        let polls = holder.polls.load(Ordering::Relaxed);
        match self.0.take() {
            Some((before, then)) if Arc::ptr_eq(&before, &holder) && then == polls => {
                W::lanes(inner).pass_on(inner, lane, &holder);
            }
            _ => self.0 = Some((holder, polls)),
        }
    }
}

/// Does what waits on a lane, and what comes meanwhile, until nobody waits.
async fn serve<W: Work>(engine: Postgres, lane: String, holder: Arc<Pulse>) {
    let serving = Serving::<W> {
        engine: &engine,
        lane: &lane,
        holder,
        work: PhantomData,
    };
    while let Some(calls) = serving.next() {
        serve_calls(&engine, calls).await;
    }
}

struct Serving<'s, W: Work> {
    engine: &'s Postgres,
    lane: &'s str,
    holder: Arc<Pulse>,
    work: PhantomData<W>,
}

impl<W: Work> Serving<'_, W> {
    /// The calls that go next; `None`, and the lane is free, if there are none.
    fn next(&self) -> Option<Vec<Call<W>>> {
        let mut lanes = W::lanes(self.engine.inner()).lock();
        let waiting = &mut lanes.get_mut(self.lane)?.waiting;
        // A call whose future was dropped is as if it had never been made.
        waiting.retain(|call| !call.done.is_closed());
        let mut items = 0;
        let fits = |call: &&Call<W>| {
            items += call.items.len();
            items <= MOST_TOGETHER
        };
        let count = waiting.iter().take_while(fits).count();
        if count == 0 {
            lanes.remove(self.lane);
            return None;
        }
        Some(waiting.drain(..count).collect())
    }
}

impl<W: Work> Drop for Serving<'_, W> {
    fn drop(&mut self) {
        // If the runtime has ended first, the lane is free, and who waits is told.
        let mut lanes = W::lanes(self.engine.inner()).lock();
        if lanes
            .get(self.lane)
            .is_some_and(|lane| Arc::ptr_eq(&lane.holder, &self.holder))
        {
            lanes.remove(self.lane);
        }
    }
}

async fn serve_calls<W: Work>(engine: &Postgres, calls: Vec<Call<W>>) {
    let (mut items, mut callers) = (Vec::new(), Vec::new());
    for call in calls {
        callers.push((call.items.len(), call.done));
        items.extend(call.items);
    }
    match W::run(engine, &items).await {
        Ok(outputs) => {
            let mut outputs = outputs.into_iter();
            for (count, done) in callers {
                done.send(Ok(outputs.by_ref().take(count).collect())).ok();
            }
        }
        // It may have landed: nobody may do it again but who asked for it.
        Err(error) if error.is_transient() => {
            let text = error.to_string();
            for (_, done) in callers {
                done.send(Err(Error::transient(
                    "done together with others",
                    text.clone(),
                )))
                .ok();
            }
        }
        // One of them cannot be done, and must not keep the others from it.
        Err(_) => {
            let mut rest = &items[..];
            for (count, done) in callers {
                let (own, others) = rest.split_at(count);
                rest = others;
                done.send(W::run(engine, own).await).ok();
            }
        }
    }
}
