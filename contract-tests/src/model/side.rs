//! One of the two sides: an engine, and what is held of it.

use alkstore::{Engine, Job, JobHandle, Lock, Result, Store};

use super::operation::Operation;
use super::seen::Seen;
use crate::Harness;
use crate::support::job_of;

/// As many handles are kept; the oldest go first.
const MOST_KEPT: usize = 12;

/// An engine, opened twice, as two processes would.
pub(super) struct Side<'h, H: Harness> {
    pub(super) h: &'h H,
    pub(super) stores: [Store<H::Engine>; 2],
    pub(super) kept: Kept<H::Engine>,
}

/// What was handed out so far. Both sides keep the same things in the same order.
pub(super) struct Kept<E> {
    /// The ids of all jobs that were enqueued and not rolled back.
    pub(super) jobs: Vec<i64>,
    pub(super) handles: Vec<JobHandle<E>>,
    pub(super) locks: Vec<Lock<E>>,
    /// The tokens of each lock in the order in which they came.
    pub(super) tokens: [Vec<i64>; 2],
}

impl<E> Default for Kept<E> {
    fn default() -> Self {
        Self {
            jobs: Vec::new(),
            handles: Vec::new(),
            locks: Vec::new(),
            tokens: [Vec::new(), Vec::new()],
        }
    }
}

impl<E: Engine> Kept<E> {
    /// Notes jobs that were enqueued.
    pub(super) fn enqueued(&mut self, ids: &[i64]) -> Seen {
        let place = |id: &i64| {
            self.jobs.push(*id);
            place_of(self.jobs.len() - 1)
        };
        Seen::Enqueued(ids.iter().map(place).collect())
    }

    /// The id of a job, or one that no job has.
    pub(super) fn id(&self, pick: usize) -> i64 {
        if pick.is_multiple_of(16) || self.jobs.is_empty() {
            return [0, -1, i64::MAX][pick % 3];
        }
        // Every other time one of the last: the others mostly are at their end.
        let among = if pick.is_multiple_of(2) {
            4
        } else {
            usize::MAX
        };
        let among = among.min(self.jobs.len());
        self.jobs[self.jobs.len() - 1 - pick / 2 % among]
    }

    /// The job with its place for its id, which the engines are free to choose.
    pub(super) fn job(&self, job: &Job) -> Job {
        // A rolled-back id may have been given again, so the last one is meant.
        let place = self.jobs.iter().rposition(|id| *id == job.id);
        job_of! {
            id: place.map_or(-1, place_of),
            ..job.clone()
        }
    }

    pub(super) fn found(&self, job: Option<&Job>) -> Seen {
        Seen::Job(job.map(|job| Box::new(self.job(job))))
    }

    /// Keeps the handles of claims.
    pub(super) fn claimed(&mut self, handles: Vec<JobHandle<E>>) -> Seen {
        let jobs = handles.iter().map(|handle| self.job(handle)).collect();
        self.handles.extend(handles);
        let surplus = self.handles.len().saturating_sub(MOST_KEPT);
        self.handles.drain(..surplus);
        Seen::Claimed(jobs)
    }

    /// A kept handle, if there are any.
    pub(super) fn handle(&self, pick: usize) -> Option<&JobHandle<E>> {
        self.handles.get(pick % self.handles.len().max(1))
    }

    /// Takes a kept handle out, if there are any.
    pub(super) fn take_handle(&mut self, pick: usize) -> Option<JobHandle<E>> {
        let place = pick % self.handles.len().max(1);
        (place < self.handles.len()).then(|| self.handles.remove(place))
    }

    /// Keeps a lock and tells which of its name's tokens it has. One that does not grow is
    /// the place of the wrong one.
    pub(super) fn locked(&mut self, name: usize, lock: Option<Lock<E>>) -> Seen {
        let Some(lock) = lock else {
            return Seen::Locked(None);
        };
        let (token, tokens) = (lock.token(), &mut self.tokens[name]);
        if tokens.last().is_none_or(|last| *last < token) {
            tokens.push(token);
        }
        let place = tokens.iter().position(|known| *known == token);
        self.locks.push(lock);
        let surplus = self.locks.len().saturating_sub(MOST_KEPT);
        self.locks.drain(..surplus);
        Seen::Locked(Some(place.unwrap_or(usize::MAX)))
    }
}

fn place_of(place: usize) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

impl<'h, H: Harness> Side<'h, H> {
    pub(super) async fn new(h: &'h H) -> Self {
        Self {
            h,
            stores: [h.open().await, h.open().await],
            kept: Kept::default(),
        }
    }

    /// Runs one operation.
    pub(super) async fn run(&mut self, operation: &Operation) -> Seen {
        Seen::of(self.try_to(operation).await)
    }

    async fn try_to(&mut self, operation: &Operation) -> Result<Seen> {
        match operation {
            Operation::Queue(store, operation) => self.queue(*store, operation).await,
            Operation::Claim(operation) => self.claim(operation).await,
            Operation::Stream(store, operation) => self.stream(*store, operation).await,
            Operation::Lock(store, operation) => self.lock(*store, operation).await,
            Operation::Outbox(store, operation) => self.outbox(*store, operation).await,
            Operation::Schedule(store, operation) => self.schedule(*store, operation).await,
            Operation::Tx(store, operation) => self.tx(*store, operation).await,
            Operation::Advance(seconds) => {
                self.h.advance(*seconds);
                Ok(Seen::Nothing)
            }
            Operation::Reopen { store, close } => {
                if *close {
                    self.stores[*store].close().await;
                }
                self.stores[*store] = self.h.open().await;
                Ok(Seen::Nothing)
            }
            Operation::LookAtEverything => self.everything().await,
        }
    }
}
