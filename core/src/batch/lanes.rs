//! Where calls wait.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Id;
use tokio::time::{Instant, Sleep, sleep_until};

use super::call::{Call, Outcome};
use super::{LOOK, MOST_BYTES, MOST_WRITES, STALE};
use crate::engine::Write;
use crate::{Error, Result};

/// A lane's number, and the runtime that its batches run on.
pub(super) type Key = (u64, Option<Id>);

/// Batches of one lane that run at the same time at most, each on a task: the second and later
/// ones begin where those before them are slow.
const MOST_IN_FLIGHT: usize = 4;
/// The longest pause of a lane that is blocked.
const LONGEST_PAUSE: Duration = Duration::from_millis(40);
/// One in so many calls lets others run first, to see whether there are any.
const PROBE: u32 = 16;

/// The lanes of a store.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    state: Mutex<State>,
    pub(super) crowd: Crowd,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    passes: u64,
    lanes: HashMap<Key, Lane>,
}

#[derive(Debug, Default)]
struct Lane {
    /// How many have a pass.
    in_flight: usize,
    /// The newest pass, and when its holder was last known to be alive.
    newest: Option<(u64, Instant)>,
    waiting: VecDeque<Arc<Call>>,
    blocked: Option<Blocked>,
}

/// Why a lane pauses, and until when.
#[derive(Debug)]
struct Blocked {
    times: u32,
    until: Instant,
    reason: Error,
}

/// How a call finds its lane.
pub(super) enum Entry {
    /// Nobody is there.
    First(Pass),
    Taken,
}

/// What a call that waits does next.
pub(super) enum Turn {
    Lead(Pass),
    /// It waits on; while the lane pauses, until then.
    Follow(Option<Instant>),
}

impl Lanes {
    /// Takes a lane in which nobody is.
    pub(super) fn enter(self: &Arc<Self>, key: Key) -> Result<Entry> {
        let mut state = self.open()?;
        let lane = state.lanes.entry(key).or_default();
        if lane.in_flight > 0 || !lane.waiting.is_empty() {
            return Ok(Entry::Taken);
        }
        Ok(Entry::First(state.pass(self, key)))
    }

    /// Puts a call at the end of its lane, and returns whether it is the only one there. Else
    /// one that came before it has been asked to look, or will be. A call that `leads` came first:
    /// it goes to the front.
    pub(super) fn stand(&self, key: Key, call: &Arc<Call>, leads: bool) -> Result<bool> {
        let mut state = self.open()?;
        let lane = state.lanes.entry(key).or_default();
        if leads {
            lane.waiting.push_front(Arc::clone(call));
        } else {
            lane.waiting.push_back(Arc::clone(call));
        }
        Ok(lane.waiting.len() == 1)
    }

    /// Takes a lane for those who wait in it, if it is free.
    pub(super) fn take(self: &Arc<Self>, key: Key, inline: bool) -> Turn {
        let now = Instant::now();
        let mut state = self.state();
        let Some(lane) = state.lanes.get(&key) else {
            return Turn::Follow(None);
        };
        if let Some(blocked) = &lane.blocked
            && blocked.until > now
        {
            return Turn::Follow(Some(blocked.until));
        }
        let heard = |(_, seen)| now.saturating_duration_since(seen) < STALE;
        let full = !inline && lane.in_flight >= MOST_IN_FLIGHT;
        if full || lane.newest.is_some_and(heard) {
            return Turn::Follow(None);
        }
        Turn::Lead(state.pass(self, key))
    }

    /// Notes that the holder of a pass is alive.
    pub(super) fn touch(&self, key: Key, pass: u64) {
        if let Some(lane) = self.state().lanes.get_mut(&key)
            && let Some((newest, seen)) = &mut lane.newest
            && *newest == pass
        {
            *seen = Instant::now();
        }
    }

    pub(super) fn anyone_waits(&self, key: Key) -> bool {
        let state = self.state();
        state
            .lanes
            .get(&key)
            .is_some_and(|lane| !lane.waiting.is_empty())
    }

    /// Takes out of a lane the calls of the next batch: the first, and those behind it that can
    /// share with it.
    pub(super) fn gather(
        &self,
        key: Key,
        can_share: impl Fn(&Write<'_>, &Write<'_>) -> bool,
    ) -> Vec<Arc<Call>> {
        let mut state = self.state();
        let Some(lane) = state.lanes.get_mut(&key) else {
            return Vec::new();
        };
        let (mut batch, mut later) = (Vec::<Arc<Call>>::new(), VecDeque::new());
        let (mut writes, mut bytes) = (0, 0);
        for call in lane.waiting.drain(..) {
            let fits = batch.is_empty()
                || writes + call.writes.len() <= MOST_WRITES && bytes + call.bytes <= MOST_BYTES;
            let first = batch.first().and_then(|first| first.writes.first());
            let shares = first.is_none_or(|first| {
                let first = first.borrow();
                let share = |write: &super::OwnedWrite| can_share(&first, &write.borrow());
                call.writes.iter().all(share)
            });
            if !(fits && shares) {
                later.push_back(call);
            } else if call.begin() {
                writes += call.writes.len();
                bytes += call.bytes;
                batch.push(call);
            }
        }
        lane.waiting = later;
        self.crowd.note(batch.len());
        batch
    }

    /// Puts the calls of a batch that was blocked back to the front, and lets the lane pause.
    pub(super) fn put_back(&self, key: Key, calls: Vec<Arc<Call>>, reason: Error) {
        let mut state = self.state();
        let closed = state.closed;
        let lane = state.lanes.entry(key).or_default();
        for call in calls.into_iter().rev() {
            if call.put_back() {
                lane.waiting.push_front(call);
            }
        }
        if closed {
            end_all(&mut lane.waiting, &Error::store_closed());
            return;
        }
        let times = lane.blocked.as_ref().map_or(0, |blocked| blocked.times + 1);
        let longest = Duration::from_millis(4 << times.min(4)).min(LONGEST_PAUSE);
        let pause = longest.mul_f64(0.5 + fastrand::f64() / 2.0);
        lane.blocked = Some(Blocked {
            times,
            until: Instant::now() + pause,
            reason,
        });
    }

    /// Notes that the lane is not blocked.
    pub(super) fn unblock(&self, key: Key) {
        if let Some(lane) = self.state().lanes.get_mut(&key) {
            lane.blocked = None;
        }
    }

    /// Tells all that wait in a lane of an error.
    pub(super) fn fail(&self, key: Key, error: &Error) {
        if let Some(lane) = self.state().lanes.get_mut(&key) {
            end_all(&mut lane.waiting, error);
        }
    }

    /// What the lane is blocked by.
    pub(super) fn reason(&self, key: Key) -> Option<Error> {
        let state = self.state();
        let blocked = state.lanes.get(&key)?.blocked.as_ref();
        blocked.map(|blocked| blocked.reason.share())
    }

    /// Removes a call that has gone. If it was asked to look, another is.
    pub(super) fn forget(&self, key: Key, call: &Arc<Call>) {
        let mut state = self.state();
        let Some(lane) = state.lanes.get_mut(&key) else {
            return;
        };
        let before = lane.waiting.len();
        lane.waiting.retain(|other| !Arc::ptr_eq(other, call));
        if lane.waiting.len() < before {
            state.tidy(key);
        }
    }

    /// Whether nobody is in any lane.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        let idle = |lane: &Lane| lane.in_flight == 0 && lane.waiting.is_empty();
        state.lanes.values().all(idle)
    }

    /// Ends all waiting, for good.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        for lane in state.lanes.values_mut() {
            end_all(&mut lane.waiting, &Error::store_closed());
        }
    }

    fn leave(&self, key: Key, pass: u64) {
        let mut state = self.state();
        let Some(lane) = state.lanes.get_mut(&key) else {
            return;
        };
        lane.in_flight = lane.in_flight.saturating_sub(1);
        if lane.newest.is_some_and(|(newest, _)| newest == pass) {
            lane.newest = None;
        }
        state.tidy(key);
    }

    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state();
        if state.closed {
            return Err(Error::store_closed());
        }
        Ok(state)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here can be left half done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn pass(&mut self, lanes: &Arc<Lanes>, key: Key) -> Pass {
        self.passes += 1;
        let number = self.passes;
        let lane = self.lanes.entry(key).or_default();
        lane.in_flight += 1;
        lane.newest = Some((number, Instant::now()));
        Pass {
            lanes: Arc::clone(lanes),
            key,
            number,
        }
    }

    /// Asks one that waits in a free lane to look at it; removes a lane that nobody is in, but
    /// for the one that all share.
    fn tidy(&mut self, key: Key) {
        let Some(lane) = self.lanes.get(&key) else {
            return;
        };
        match lane.waiting.iter().find(|call| call.waits()) {
            Some(call) if lane.newest.is_none() => call.look(),
            None if lane.in_flight == 0 && key.1.is_some() => drop(self.lanes.remove(&key)),
            _ => {}
        }
    }
}

fn end_all(waiting: &mut VecDeque<Arc<Call>>, error: &Error) {
    for call in waiting.drain(..) {
        // One that has gone needs no end.
        call.end(Outcome::Done(Err(error.share()))).ok();
    }
}

/// Being the one who works in a lane. Dropping it frees the lane.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) lanes: Arc<Lanes>,
    pub(super) key: Key,
    pub(super) number: u64,
}

impl Pass {
    /// Does some work, and shows for as long as it is polled that it is.
    pub(super) async fn watch<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut beat: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| {
            let polled = work.as_mut().poll(cx);
            if polled.is_pending() {
                self.lanes.touch(self.key, self.number);
                let beat = beat.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + LOOK)));
                while beat.as_mut().poll(cx).is_ready() {
                    beat.as_mut().reset(Instant::now() + LOOK);
                }
            }
            polled
        })
        .await
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.lanes.leave(self.key, self.number);
    }
}

/// Whether calls come alone or not, as far as is known.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    calls: AtomicU32,
    /// The last batch had more than one call.
    together: AtomicBool,
}

impl Crowd {
    /// Whether this call is to see who else there is.
    pub(super) fn probe(&self) -> bool {
        self.are_together() || self.calls.fetch_add(1, Ordering::Relaxed) % PROBE == PROBE - 1
    }

    pub(super) fn are_together(&self) -> bool {
        self.together.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, calls: usize) {
        let together = calls > 1;
        if self.are_together() != together {
            self.together.store(together, Ordering::Relaxed);
        }
    }
}
