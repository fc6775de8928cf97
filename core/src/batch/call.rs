//! Calls that wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::gather::give_back;
use super::lanes::{Key, Lanes};
use super::owned::OwnedWrite;
use crate::Result;
use crate::engine::{Batches, Written};

/// A call that waits in a lane.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) writes: Vec<OwnedWrite>,
    pub(super) bytes: usize,
    pub(super) deadline: Instant,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    phase: Phase,
    /// Its caller is asked to look at the lane.
    look: bool,
    waker: Option<Waker>,
}

#[derive(Debug)]
enum Phase {
    /// In the lane.
    Waiting,
    /// In a batch.
    Begun,
    Done(Outcome),
    /// The caller has its result, or is gone.
    Left,
}

/// How a call that waited ends.
#[derive(Debug)]
pub(super) enum Outcome {
    Done(Result<Vec<Written>>),
    /// The caller does it by itself.
    Alone,
}

/// Why a caller that waits is woken.
pub(super) enum Signal {
    Done(Outcome),
    Look,
}

impl Call {
    pub(super) fn new(writes: Vec<OwnedWrite>, bytes: usize, timeout: Duration) -> Self {
        Self {
            writes,
            bytes,
            deadline: after(timeout),
            progress: Mutex::new(Progress {
                phase: Phase::Waiting,
                look: false,
                waker: None,
            }),
        }
    }

    pub(super) fn waits(&self) -> bool {
        matches!(self.progress().phase, Phase::Waiting)
    }

    /// Puts the call into a batch; `false` if it is not there any more.
    pub(super) fn begin(&self) -> bool {
        let mut progress = self.progress();
        let waits = matches!(progress.phase, Phase::Waiting);
        if waits {
            progress.phase = Phase::Begun;
        }
        waits
    }

    /// Takes the call out of a batch that was not done; `false` if its caller has gone.
    pub(super) fn put_back(&self) -> bool {
        let mut progress = self.progress();
        let begun = matches!(progress.phase, Phase::Begun);
        if begun {
            progress.phase = Phase::Waiting;
        }
        begun
    }

    /// Hands the call its end, or gives it back if its caller has gone.
    pub(super) fn end(&self, outcome: Outcome) -> Result<(), Outcome> {
        let mut progress = self.progress();
        if matches!(progress.phase, Phase::Left) {
            return Err(outcome);
        }
        progress.phase = Phase::Done(outcome);
        wake(progress);
        Ok(())
    }

    /// Asks the caller to look at its lane.
    pub(super) fn look(&self) {
        let mut progress = self.progress();
        progress.look = true;
        wake(progress);
    }

    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Signal> {
        let mut progress = self.progress();
        if matches!(progress.phase, Phase::Done(_))
            && let Phase::Done(outcome) = std::mem::replace(&mut progress.phase, Phase::Left)
        {
            return Poll::Ready(Signal::Done(outcome));
        }
        if std::mem::take(&mut progress.look) {
            return Poll::Ready(Signal::Look);
        }
        progress.register(cx);
        Poll::Pending
    }

    /// Ready once the call has ended; the end stays where it is.
    pub(super) fn poll_done(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut progress = self.progress();
        if matches!(progress.phase, Phase::Done(_)) {
            return Poll::Ready(());
        }
        progress.register(cx);
        Poll::Pending
    }

    /// Leaves for good; returns what it has not heard of.
    fn leave(&self) -> Option<Outcome> {
        match std::mem::replace(&mut self.progress().phase, Phase::Left) {
            Phase::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Nothing in here can be left half done by a panic.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn register(&mut self, cx: &Context<'_>) {
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.waker = Some(cx.waker().clone()),
        }
    }
}

/// Wakes the caller once the lock is free.
fn wake(mut progress: MutexGuard<'_, Progress>) {
    let waker = progress.waker.take();
    drop(progress);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The moment after so much time, or one that nobody lives to see.
fn after(timeout: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    Instant::now() + timeout.min(FAR)
}

/// A call's place in its lane. Dropped, the call is gone: it is in no batch that begins later,
/// and jobs that were claimed for it go back.
pub(super) struct Place<'p, E: Batches> {
    pub(super) call: Arc<Call>,
    lanes: &'p Arc<Lanes>,
    engine: &'p E,
    key: Key,
    /// Nobody else waited when it came.
    pub(super) first: bool,
}

impl<'p, E: Batches> Place<'p, E> {
    pub(super) fn new(
        lanes: &'p Arc<Lanes>,
        engine: &'p E,
        key: Key,
        call: Call,
        leads: bool,
    ) -> Result<Self> {
        let call = Arc::new(call);
        let first = lanes.stand(key, &call, leads)?;
        Ok(Self {
            first,
            call,
            lanes,
            engine,
            key,
        })
    }
}

impl<E: Batches> Drop for Place<'_, E> {
    fn drop(&mut self) {
        let unheard = self.call.leave();
        self.lanes.forget(self.key, &self.call);
        if let Some(Outcome::Done(Ok(written))) = unheard {
            give_back(self.engine, written);
        }
    }
}
