//! Batching: calls that arrive while others are on their way share a commit.
//!
//! A call that finds its lane free goes at once, as if there was no lane. Calls that come
//! meanwhile wait in the lane. When the lane is free again one of them is woken; whichever is
//! polled first takes the lane, gathers the calls that wait, does them in one commit and hands
//! each its result. Nobody is handed a lane: a future that is not polled, or a runtime that is
//! not driven, holds up the others for [`STALE`] at most.

mod call;
mod gather;
mod lanes;
mod owned;
#[cfg(test)]
mod tests;
mod writes;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::engine::{Batches, Batching, Write, Written};
use crate::{Error, Result};

use call::{Call, Outcome, Place, Signal};
use lanes::{Entry, Pass, Turn};
use owned::OwnedWrite;

pub use gather::Batch;
pub(crate) use lanes::Lanes;

/// A call with more writes goes by itself: it would keep small ones waiting, and gains nothing.
const MOST_WRITES_OF_ONE: usize = 64;
/// A call with more payload goes by itself, uncopied.
const MOST_BYTES_OF_ONE: usize = 256 << 10;
/// The writes of one batch.
const MOST_WRITES: usize = 1000;
/// The payload bytes of one batch, unless a single call has more.
const MOST_BYTES: usize = 4 << 20;
/// How often a call that waits looks at its lane, and the holder of a lane shows that it is
/// alive.
const LOOK: Duration = Duration::from_millis(20);
/// A holder of a lane that has not been heard of for so long does not keep others from it.
const STALE: Duration = Duration::from_millis(50);

/// Does one call, alone or in a batch with others.
///
/// `alone` does the call by itself; `write` makes a write of each of its `items`, and `results`
/// the call's result of theirs.
pub(crate) async fn batched<'i, E: Batches, I: Copy, T>(
    lanes: &Arc<Lanes>,
    engine: &E,
    items: &[I],
    write: impl Fn(I) -> Write<'i>,
    alone: impl Future<Output = Result<T>>,
    results: impl FnOnce(Vec<Written>) -> T,
) -> Result<T> {
    let bytes = items.iter().map(|item| write(*item).bytes()).sum();
    let (Some(first), true) = (
        items.first(),
        items.len() <= MOST_WRITES_OF_ONE && bytes <= MOST_BYTES_OF_ONE,
    ) else {
        return alone.await;
    };
    let first = write(*first);
    let batching = engine.batching();
    let key = lane_key(&batching, engine.lane(&first))?;
    let mut pass = None;
    if batching.inline
        && let Entry::First(first) = lanes.enter(key)?
    {
        if !lanes.crowd.probe() || !gathers(lanes, &first).await {
            return first.watch(alone).await;
        }
        pass = Some(first);
    }
    let writes = items.iter().map(|item| OwnedWrite::from(&write(*item)));
    let call = Call::new(writes.collect(), bytes, batching.timeout);
    let deadline = call.deadline;
    // What is rare is boxed: a call that goes at once has no room for it.
    match Box::pin(wait(lanes, engine, key, batching, call, pass)).await {
        Ok(Some(Outcome::Done(written))) => written.map(results),
        Ok(Some(Outcome::Alone)) => match timeout_at(deadline, alone).await {
            Ok(result) => result,
            Err(_) => Err(engine.overdue(&first)),
        },
        Ok(None) => Err(engine.overdue(&first)),
        Err(error) => Err(error),
    }
}

/// Lets other tasks run first, and returns whether any of them came into the lane.
async fn gathers(lanes: &Arc<Lanes>, pass: &Pass) -> bool {
    tokio::task::yield_now().await;
    let came = lanes.anyone_waits(pass.key);
    if !came {
        lanes.crowd.note(1);
    }
    came
}

/// The key of a lane: a batch that runs on a task has calls of that task's runtime only, since
/// it ends with that runtime.
fn lane_key(batching: &Batching, lane: u64) -> Result<lanes::Key> {
    if batching.inline {
        return Ok((lane, None));
    }
    match Handle::try_current() {
        Ok(runtime) => Ok((lane, Some(runtime.id()))),
        Err(error) => Err(Error::database(
            "the operation needs a tokio runtime",
            error,
        )),
    }
}

/// Waits in a lane, and takes it when it is free. `None` at the call's deadline.
async fn wait<E: Batches>(
    lanes: &Arc<Lanes>,
    engine: &E,
    key: lanes::Key,
    batching: Batching,
    call: Call,
    mut pass: Option<Pass>,
) -> Result<Option<Outcome>> {
    let place = Place::new(lanes, engine, key, call, pass.is_some())?;
    let call = &place.call;
    let mut looks = place.first || pass.is_some();
    loop {
        let mut until = Instant::now() + LOOK;
        let mut spawned = false;
        if looks && call.waits() {
            let turn = pass.take().map(Turn::Lead);
            match turn.unwrap_or_else(|| lanes.take(key, batching.inline)) {
                Turn::Lead(pass) if batching.inline => lead(engine, pass, call).await,
                Turn::Lead(pass) => {
                    drop(tokio::spawn(serve(engine.clone(), pass)));
                    spawned = true;
                }
                Turn::Follow(pause) => until = pause.map_or(until, |pause| pause.min(until)),
            }
        }
        let signal = poll_fn(|cx| call.poll(cx));
        match timeout_at(until.min(call.deadline), signal).await {
            Ok(Signal::Done(outcome)) => return Ok(Some(outcome)),
            // A call that leads until its deadline asks itself to look as it leaves the lane.
            _ if Instant::now() >= call.deadline => {
                return lanes.reason(key).map_or(Ok(None), Err);
            }
            // A runtime that is shutting down drops what is spawned at once, so the lane is free
            // again: this task is dropped when it lets go of its thread.
            Ok(Signal::Look) if spawned => tokio::task::yield_now().await,
            Ok(Signal::Look) if batching.inline && lanes.crowd.are_together() => {
                // Those who were served together come back together.
                tokio::task::yield_now().await;
            }
            Ok(Signal::Look) | Err(_) => {}
        }
        looks = true;
    }
}

/// Does a batch within this call's own polls, until it is done or this call needs it no more.
async fn lead<E: Batches>(engine: &E, pass: Pass, call: &Call) {
    let mut batch = Batch::new(pass);
    let (lanes, key, number) = batch.lane();
    let result = {
        let mut work = pin!(engine.write_batch(&mut batch));
        loop {
            let beat = (Instant::now() + LOOK).min(call.deadline);
            tokio::select! {
                biased;
                result = &mut work => break Some(result),
                // Another took the lane meanwhile, and did this call as well.
                () = poll_fn(|cx| call.poll_done(cx)) => break None,
                () = tokio::time::sleep_until(beat) => {
                    if Instant::now() >= call.deadline {
                        break None;
                    }
                    lanes.touch(key, number);
                }
            }
        }
    };
    if let Some(result) = result {
        batch.deliver(engine, result).await;
    }
}

/// Does a batch on a task of its own.
async fn serve<E: Batches>(engine: E, pass: Pass) {
    if pass.lanes.crowd.are_together() {
        // Those who were served together come back together.
        tokio::task::yield_now().await;
    }
    let mut batch = Batch::new(pass);
    let result = engine.write_batch(&mut batch).await;
    batch.deliver(&engine, result).await;
}
