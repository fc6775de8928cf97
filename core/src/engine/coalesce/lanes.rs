//! Where calls wait.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::pulse::Pulse;
use super::serve::serve;
use super::{Crowd, MOST_TOGETHER, Work};
use crate::Result;

/// The lanes of one kind of call, whose items are `W` and come back as `O`. What may make a call
/// wait, such as somebody's transaction, has a lane of its own.
#[derive(Debug)]
pub struct Lanes<W, O> {
    lanes: Mutex<HashMap<String, Lane<W, O>>>,
    pub(super) crowd: Crowd,
}

/// A lane that someone is on.
#[derive(Debug)]
pub(super) struct Lane<W, O> {
    pub(super) holder: Arc<Pulse>,
    /// The holder is a task that serves.
    served: bool,
    pub(super) waiting: Vec<Call<W, O>>,
}

impl<W, O> Lane<W, O> {
    fn stand(&mut self, items: Vec<W>) -> Waiting<O> {
        let (done, result) = oneshot::channel();
        self.waiting.push(Call {
            since: Instant::now(),
            items,
            done,
        });
        let served = self.served;
        Waiting { result, served }
    }
}

/// A call that waits.
#[derive(Debug)]
pub(super) struct Call<W, O> {
    pub(super) since: Instant,
    pub(super) items: Vec<W>,
    pub(super) done: oneshot::Sender<Result<Vec<O>>>,
}

/// The other end of a [`Call`].
pub(super) struct Waiting<O> {
    pub(super) result: oneshot::Receiver<Result<Vec<O>>>,
    pub(super) served: bool,
}

pub(super) enum Place<O> {
    First(Arc<Pulse>),
    Waiting(Waiting<O>),
}

impl<W, O> Default for Lanes<W, O> {
    fn default() -> Self {
        Self {
            lanes: Mutex::default(),
            crowd: Crowd::default(),
        }
    }
}

impl<W, O> Lanes<W, O> {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<String, Lane<W, O>>> {
        // Nothing in here can be left half done by a panic.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lane if nobody is on it, or else stands in it.
    pub(super) fn enter(&self, lane: &str, items: impl Fn() -> Vec<W>) -> Place<O> {
        let mut lanes = self.lock();
        if let Some(lane) = lanes.get_mut(lane) {
            return Place::Waiting(lane.stand(items()));
        }
        let holder = Arc::default();
        let taken = Lane {
            holder: Arc::clone(&holder),
            served: false,
            waiting: Vec::new(),
        };
        lanes.insert(lane.to_owned(), taken);
        Place::First(holder)
    }

    /// Stands with those who wait on a lane that this holder has, to go with them; `None` if
    /// nobody waits.
    pub(super) fn join(
        &self,
        name: &str,
        holder: &Arc<Pulse>,
        items: impl Fn() -> Vec<W>,
    ) -> Option<Waiting<O>> {
        let mut lanes = self.lock();
        let lane = lanes.get_mut(name)?;
        let crowd = Arc::ptr_eq(&lane.holder, holder) && !lane.waiting.is_empty();
        self.crowd.note(1 + lane.waiting.len());
        crowd.then(|| lane.stand(items()))
    }

    /// When the call that waits longest on a lane came; `None`, and the lane is free, if nobody
    /// waits.
    pub(super) fn oldest(&self, name: &str) -> Option<Instant> {
        let mut lanes = self.lock();
        let waiting = &mut lanes.get_mut(name)?.waiting;
        // A call whose future was dropped is as if it had never been made.
        waiting.retain(|call| !call.done.is_closed());
        let oldest = waiting.first().map(|call| call.since);
        if oldest.is_none() {
            lanes.remove(name);
        }
        oldest
    }

    /// The first call that waits.
    pub(super) fn first(&self, name: &str) -> Option<Call<W, O>> {
        let mut lanes = self.lock();
        let waiting = &mut lanes.get_mut(name)?.waiting;
        (!waiting.is_empty()).then(|| waiting.remove(0))
    }

    /// The calls that go next: the first, and all that can go with it.
    pub(super) fn next(&self, name: &str, joins: impl Fn(&W, &W) -> bool) -> Vec<Call<W, O>> {
        let mut lanes = self.lock();
        let Some(lane) = lanes.get_mut(name) else {
            return Vec::new();
        };
        let (mut next, mut later) = (Vec::new(), Vec::new());
        let mut items = 0;
        for call in std::mem::take(&mut lane.waiting) {
            let first = next.first().unwrap_or(&call).items.first();
            let joins = first.is_none_or(|first| call.items.iter().all(|own| joins(own, first)));
            if joins && items + call.items.len() <= MOST_TOGETHER {
                items += call.items.len();
                next.push(call);
            } else {
                later.push(call);
            }
        }
        lane.waiting = later;
        next
    }

    /// Gives the lane up, if it is still this holder's; who waits on it is told.
    pub(super) fn leave(&self, name: &str, holder: &Arc<Pulse>) {
        let mut lanes = self.lock();
        let theirs = |lane: &Lane<W, O>| !Arc::ptr_eq(&lane.holder, holder);
        if lanes.get(name).is_some_and(|lane| !theirs(lane)) {
            lanes.remove(name);
        }
    }
}

/// Gives the lane to whoever waits on it, if it is still this holder's.
pub(super) fn pass_on<E, W>(engine: &E, name: &str, holder: &Arc<Pulse>)
where
    E: Clone + Send + Sync + 'static,
    W: Work<E>,
{
    let mut lanes = W::lanes(engine).lock();
    let Some(lane) = lanes
        .get_mut(name)
        .filter(|lane| Arc::ptr_eq(&lane.holder, holder))
    else {
        return;
    };
    match Handle::try_current() {
        Ok(runtime) if !lane.waiting.is_empty() => {
            lane.holder = Arc::default();
            lane.served = true;
            let holder = Arc::clone(&lane.holder);
            runtime.spawn(serve::<E, W>(engine.clone(), name.to_owned(), holder));
        }
        _ => drop(lanes.remove(name)),
    }
}

/// Being on a lane. Whatever ends it, those who wait go next.
pub(super) struct Turn<'t, E, W>
where
    E: Clone + Send + Sync + 'static,
    W: Work<E>,
{
    pub(super) engine: &'t E,
    lane: &'t str,
    pub(super) holder: Arc<Pulse>,
    work: PhantomData<W>,
}

impl<'t, E, W> Turn<'t, E, W>
where
    E: Clone + Send + Sync + 'static,
    W: Work<E>,
{
    pub(super) fn new(engine: &'t E, lane: &'t str, holder: Arc<Pulse>) -> Self {
        Self {
            engine,
            lane,
            holder,
            work: PhantomData,
        }
    }
}

impl<E, W> Drop for Turn<'_, E, W>
where
    E: Clone + Send + Sync + 'static,
    W: Work<E>,
{
    fn drop(&mut self) {
        pass_on::<E, W>(self.engine, self.lane, &self.holder);
    }
}
