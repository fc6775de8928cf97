//! An engine whose only table is a list of entries.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard};

use super::super::{Lanes, batched};
use crate::engine::{
    Backend, Batch, BatchError, Batches, Batching, ClaimId, NewJob, Ready, Stamps, Transaction,
    Wakes, Write, Written,
};
use crate::queue::{Job, JobState};
use crate::{Error, Result};

#[derive(Debug, Clone)]
pub(super) struct Ledger(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    plan: Plan,
    lanes: Arc<Lanes>,
    /// Not fair by itself: whoever is not polled must not be handed it.
    writer: Arc<AsyncMutex<()>>,
    landed: Mutex<Landed>,
    pauses: AtomicBool,
    paused: Notify,
    go_on: Notify,
}

/// How the ledger behaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) inline: bool,
    pub(super) timeout: Duration,
    pub(super) seed: u64,
    /// One in so many commits fails; none if 0.
    pub(super) failing: usize,
}

#[derive(Default, Debug)]
struct Landed {
    rng: Rng,
    /// The entries in the order of their commits.
    entries: Vec<u32>,
    commits: usize,
    /// Entries that a failed commit had; nobody may try them again.
    lost: Vec<u32>,
    alone: usize,
    largest: usize,
    released: usize,
    /// What so many of the next batches come to.
    answer: Option<(usize, fn() -> BatchError)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Entry {
    pub(super) name: u32,
    pub(super) bad: bool,
    /// Entries of different books do not go together.
    pub(super) book: u8,
    pub(super) bytes: usize,
}

impl Entry {
    pub(super) fn good(name: u32) -> Self {
        Self {
            name,
            bad: false,
            book: 0,
            bytes: 1,
        }
    }
}

static BYTES: [u8; 1 << 20] = [0; 1 << 20];

impl Plan {
    pub(super) fn inline() -> Self {
        Self {
            inline: true,
            timeout: Duration::from_millis(500),
            seed: 0,
            failing: 0,
        }
    }

    pub(super) fn on_tasks() -> Self {
        Self {
            inline: false,
            ..Self::inline()
        }
    }
}

impl Ledger {
    pub(super) fn new(plan: Plan) -> Self {
        Self(Arc::new(Inner {
            plan,
            lanes: Arc::default(),
            writer: Arc::default(),
            landed: Mutex::new(Landed {
                rng: Rng::with_seed(plan.seed),
                ..Landed::default()
            }),
            pauses: AtomicBool::new(false),
            paused: Notify::new(),
            go_on: Notify::new(),
        }))
    }

    /// Writes entries, each of which comes back with its place in the ledger.
    pub(super) async fn write(&self, entries: &[Entry]) -> Result<Vec<i64>> {
        let alone = async {
            let turn = tokio::time::timeout(self.0.plan.timeout, self.turn()).await;
            let writer = turn.map_err(|_| self.timed_out())?;
            self.locked().alone += 1;
            match self.commit(entries) {
                Ok(places) => Ok(places),
                Err(BatchError::Refused(error) | BatchError::Failed(error)) => Err(error),
                Err(error) => Err(Error::database("alone", format!("{error:?}"))),
            }
            .inspect(|_| drop(writer))
        };
        let place = |written| match written {
            Written::Inserted(place) => place,
            _ => -1,
        };
        let places = |written: Vec<_>| written.into_iter().map(place).collect();
        let jobs: Vec<_> = entries.iter().map(job).collect();
        batched(&self.0.lanes, self, &jobs, Write::Insert, alone, places).await
    }

    pub(super) async fn write_one(&self, name: u32) -> Result<Vec<i64>> {
        self.write(&[Entry::good(name)]).await
    }

    pub(super) async fn hold(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.0.writer).lock_owned().await
    }

    /// Polls for the writer, so that it is never handed to one who sleeps.
    async fn turn(&self) -> OwnedMutexGuard<()> {
        loop {
            match Arc::clone(&self.0.writer).try_lock_owned() {
                Ok(writer) => return writer,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }

    fn timed_out(&self) -> Error {
        Error::transient("writing timed out", "the ledger is held")
    }

    fn commit(&self, entries: &[Entry]) -> Result<Vec<i64>, BatchError> {
        let mut landed = self.locked();
        if entries.iter().any(|entry| entry.bad) {
            let error = Error::database("bad", "an entry is bad");
            return Err(BatchError::Refused(error));
        }
        let failing = landed.rng.usize(..self.0.plan.failing.max(1));
        if self.0.plan.failing > 0 && failing == 0 {
            landed.lost.extend(entries.iter().map(|entry| entry.name));
            let error = Error::transient("lost", "the commit failed");
            return Err(BatchError::Failed(error));
        }
        landed.commits += 1;
        let bytes = entries.iter().map(|entry| entry.bytes).sum();
        landed.largest = landed.largest.max(bytes);
        let first = landed.entries.len();
        landed
            .entries
            .extend(entries.iter().map(|entry| entry.name));
        Ok((first..landed.entries.len())
            .map(|place| i64::try_from(place).expect("few"))
            .collect())
    }

    fn locked(&self) -> MutexGuard<'_, Landed> {
        self.0.landed.lock().expect("landed")
    }

    pub(super) fn plan(&self) -> Plan {
        self.0.plan
    }

    pub(super) fn lanes(&self) -> &Arc<Lanes> {
        &self.0.lanes
    }

    pub(super) fn landed(&self) -> Vec<u32> {
        self.locked().entries.clone()
    }

    pub(super) fn lost(&self) -> Vec<u32> {
        self.locked().lost.clone()
    }

    pub(super) fn commits(&self) -> usize {
        self.locked().commits
    }

    pub(super) fn alone(&self) -> usize {
        self.locked().alone
    }

    pub(super) fn largest(&self) -> usize {
        self.locked().largest
    }

    pub(super) fn released(&self) -> usize {
        self.locked().released
    }

    pub(super) fn answer(&self, times: usize, answer: fn() -> BatchError) {
        self.locked().answer = Some((times, answer));
    }

    pub(super) fn pause_after_begin(&self) {
        self.0.pauses.store(true, Ordering::SeqCst);
    }

    pub(super) async fn paused(&self) {
        self.0.paused.notified().await;
    }

    pub(super) fn go_on(&self) {
        self.0.go_on.notify_one();
    }
}

fn job(entry: &Entry) -> NewJob<'static> {
    NewJob {
        queue: if entry.bad { "bad" } else { "good" },
        payload: &BYTES[..entry.bytes],
        ready: Ready::Now,
        priority: entry.name.into(),
        expires: Some(entry.book.into()),
        stamps: Stamps {
            visibility_timeout_s: 1,
            max_attempts: 1,
            backoff_base_s: 1,
            dead_letter_retention_s: None,
        },
    }
}

fn entry(job: &NewJob<'_>) -> Entry {
    Entry {
        name: u32::try_from(job.priority).expect("a name"),
        bad: job.queue == "bad",
        book: u8::try_from(job.expires.expect("a book")).expect("a book"),
        bytes: job.payload.len(),
    }
}

impl Batches for Ledger {
    fn batching(&self) -> Batching {
        Batching {
            inline: self.0.plan.inline,
            timeout: self.0.plan.timeout,
        }
    }

    fn lane(&self, _write: &Write<'_>) -> u64 {
        0
    }

    fn overdue(&self, _write: &Write<'_>) -> Error {
        self.timed_out()
    }

    async fn write_batch(&self, batch: &mut Batch) -> Result<Vec<Written>, BatchError> {
        let writer = self.turn().await;
        let writes = batch.begin(|first, write| match (first, write) {
            (Write::Insert(first), Write::Insert(job)) => first.expires == job.expires,
            _ => false,
        });
        if self.0.pauses.swap(false, Ordering::SeqCst) {
            self.0.paused.notify_one();
            self.0.go_on.notified().await;
        }
        if !self.0.plan.inline && self.locked().rng.bool() {
            tokio::task::yield_now().await;
        }
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        let answer = match &mut self.locked().answer {
            Some((times, answer)) if *times > 0 => {
                *times -= 1;
                Some(answer())
            }
            _ => None,
        };
        if let Some(answer) = answer {
            return Err(answer);
        }
        if let Write::Claim(_) = writes[0] {
            self.locked().commits += 1;
            return Ok(writes
                .iter()
                .map(|_| Written::Claimed(vec![claimed()]))
                .collect());
        }
        let entries: Vec<_> = writes
            .iter()
            .filter_map(|write| match write {
                Write::Insert(job) => Some(entry(job)),
                _ => None,
            })
            .collect();
        let places = self.commit(&entries)?;
        drop(writer);
        Ok(places.into_iter().map(Written::Inserted).collect())
    }

    async fn release_claims(&self, claims: &[ClaimId<'_>]) -> Result<()> {
        self.locked().released += claims.len();
        Ok(())
    }
}

fn claimed() -> Job {
    Job {
        id: 1,
        queue: "q".into(),
        state: JobState::Processing,
        payload: Vec::new(),
        priority: 0,
        run_at: 0,
        attempts: 1,
        max_attempts: 3,
        worker_id: Some("w".into()),
        claimed_at: Some(0),
        claim_expires_at: Some(60),
        created_at: 0,
        expires_at: None,
        visibility_timeout_s: 60,
        backoff_base_s: 5,
        dead_letter_retention_s: None,
        last_error: None,
        died_at: None,
    }
}

/// There are no transactions in a ledger.
#[derive(Debug)]
pub(super) struct NoTx;

impl Transaction for NoTx {
    type Conn = ();

    fn conn(&mut self) -> &mut () {
        unreachable!("there are none")
    }

    async fn commit(self, _wakes: Wakes) -> Result<()> {
        Ok(())
    }

    async fn rollback(self) -> Result<()> {
        Ok(())
    }
}

impl Backend for Ledger {
    type Conn = ();
    type Tx = NoTx;

    async fn begin(&self) -> Result<NoTx> {
        Ok(NoTx)
    }

    fn downcast(connection: &mut (dyn Any + Send)) -> Option<&mut ()> {
        connection.downcast_mut()
    }

    fn upcast(connection: &mut ()) -> &mut (dyn Any + Send) {
        connection
    }

    fn reread_interval(&self) -> Duration {
        Duration::MAX
    }

    async fn close(&self) {}
}
