//! Who may write: one at a time in this process.
//!
//! The gate is free or held. When it becomes free the oldest of those who wait is called, and
//! goes through when it is polled. Nobody is handed the gate: a future that is not polled within
//! [`GRACE`] is passed by the others, and holds up nobody until it is polled again.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use alkstore::{Error, Result};
use tokio::time::timeout;

use crate::backend::Writer;

#[cfg(test)]
mod tests;

/// How long the oldest of those who wait has to go through a free gate.
const GRACE: Duration = Duration::from_millis(5);
/// How often one who waits looks at the gate, whatever became of the others.
const LOOK: Duration = Duration::from_millis(10);

/// The connection that writes, and the line before it.
#[derive(Debug)]
pub(crate) struct Gate {
    line: Mutex<Line>,
    writer: Mutex<Writer>,
}

#[derive(Debug, Default)]
struct Line {
    held: bool,
    /// Only who closes the store goes through from now on.
    closed: bool,
    /// Whose turn it is, and since when.
    called: Option<(u64, Instant)>,
    waiting: VecDeque<Waiting>,
    /// The number of the last ticket.
    last: u64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    waker: Option<Waker>,
    /// It was called and has not been polled since.
    asleep: bool,
}

impl Gate {
    pub(crate) fn new(writer: Writer) -> Self {
        Self {
            line: Mutex::default(),
            writer: Mutex::new(writer),
        }
    }

    /// Goes through if the gate is free and nobody waits.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<Entered> {
        let mut line = self.line();
        let first = line.waiting.iter().all(|waiting| waiting.asleep);
        (line.is_free() && first && !line.closed).then(|| line.pass(self))
    }

    /// Waits for the gate, until the store is closed. Dropped, or not polled, it holds nothing.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<Entered> {
        if let Some(entered) = self.try_enter() {
            return Ok(entered);
        }
        Ticket::new(self, false).through().await
    }

    /// Ends all waiting, and goes through last.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<Entered> {
        let ticket = Ticket::new(self, true);
        let wakers = self.line().shut();
        wakers.into_iter().for_each(Waker::wake);
        ticket.through().await
    }

    /// Waits for the gate in a thread of its own.
    pub(crate) fn enter_blocking(self: &Arc<Self>) -> Result<Entered> {
        let ticket = Ticket::new(self, false);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        loop {
            if let Poll::Ready(entered) = ticket.poll(&Context::from_waker(&waker)) {
                return entered;
            }
            thread::park_timeout(LOOK);
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Nothing in here can be left half done by a panic.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// Whether the gate is free, and nobody was called who still may come.
    fn is_free(&self) -> bool {
        !self.held && self.called.is_none_or(|(_, since)| since.elapsed() > GRACE)
    }

    fn pass(&mut self, gate: &Arc<Gate>) -> Entered {
        self.held = true;
        self.called = None;
        Entered(Arc::clone(gate))
    }

    /// Closes the gate, and returns who has to hear of it.
    fn shut(&mut self) -> Vec<Waker> {
        self.closed = true;
        let wakers = self.waiting.iter_mut();
        wakers.filter_map(|waiting| waiting.waker.take()).collect()
    }

    /// Calls the oldest of those who wait, if the gate is free.
    fn call_next(&mut self) -> Option<Waker> {
        if self.held {
            return None;
        }
        let next = self.waiting.iter_mut().find(|waiting| !waiting.asleep)?;
        next.asleep = true;
        self.called = Some((next.number, Instant::now()));
        next.waker.take()
    }
}

/// A place in the line.
struct Ticket<'g> {
    gate: &'g Arc<Gate>,
    number: u64,
    closing: bool,
}

impl<'g> Ticket<'g> {
    fn new(gate: &'g Arc<Gate>, closing: bool) -> Self {
        let mut line = gate.line();
        line.last += 1;
        let number = line.last;
        line.waiting.push_back(Waiting {
            number,
            waker: None,
            asleep: false,
        });
        drop(line);
        Self {
            gate,
            number,
            closing,
        }
    }

    async fn through(self) -> Result<Entered> {
        loop {
            let through = poll_fn(|cx| self.poll(cx));
            if let Ok(entered) = timeout(LOOK, through).await {
                return entered;
            }
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Result<Entered>> {
        let mut line = self.gate.line();
        if line.closed && !self.closing {
            return Poll::Ready(Err(Error::store_closed()));
        }
        let own = |called: (u64, Instant)| called.0 == self.number;
        if line.is_free() || !line.held && line.called.is_some_and(own) {
            line.waiting.retain(|waiting| waiting.number != self.number);
            return Poll::Ready(Ok(line.pass(self.gate)));
        }
        let mut waiting = line.waiting.iter_mut();
        if let Some(waiting) = waiting.find(|waiting| waiting.number == self.number) {
            waiting.asleep = false;
            waiting.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut line = self.gate.line();
        line.waiting.retain(|waiting| waiting.number != self.number);
        if line.called.is_some_and(|(called, _)| called == self.number) {
            line.called = None;
            wake_next(line);
        }
    }
}

/// Having the gate. Dropping it lets the next one through.
#[derive(Debug)]
pub(crate) struct Entered(Arc<Gate>);

impl Entered {
    /// The connection that writes, for as long as nothing is awaited.
    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        // A statement that panics leaves a transaction that the next begin rolls back.
        self.0.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut line = self.0.line();
        line.held = false;
        wake_next(line);
    }
}

/// Calls the next one once the lock is free.
fn wake_next(mut line: MutexGuard<'_, Line>) {
    let next = line.call_next();
    drop(line);
    if let Some(next) = next {
        next.wake();
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
