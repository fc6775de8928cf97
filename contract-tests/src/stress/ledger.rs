//! The callers' record of their calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use alkstore::{Engine, JobHandle};

/// The results of all calls since the last comparison.
pub(super) struct Ledger<E: Engine> {
    last: AtomicU64,
    entries: Mutex<Entries<E>>,
}

pub(super) struct Entries<E: Engine> {
    /// Jobs by what they carry.
    pub(super) jobs: BTreeMap<u64, Item>,
    /// Events by what they carry.
    pub(super) events: BTreeMap<u64, Item>,
    /// Claims that their callers still have.
    pub(super) held: Vec<JobHandle<E>>,
    /// The last number at the comparison before.
    remembered: u64,
    /// What must not have happened.
    pub(super) complaints: Vec<String>,
}

/// A job or event that was to be stored.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Item {
    pub(super) stored: Stored,
    /// The call or transaction that it is of.
    pub(super) group: u64,
    /// The id or offset, once it is known.
    pub(super) number: Option<i64>,
    /// How often a caller got a claim of the job.
    pub(super) claims: i64,
    pub(super) ended: Ended,
}

/// What a caller knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Stored {
    Acknowledged,
    /// The transaction was rolled back, or never committed.
    RolledBack,
    /// The call did not come to its end.
    #[default]
    Unknown,
}

/// Whether a job was ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Ended {
    #[default]
    No,
    Acknowledged,
    Unknown,
}

impl<E: Engine> Default for Ledger<E> {
    fn default() -> Self {
        Self {
            last: AtomicU64::new(0),
            entries: Mutex::new(Entries {
                jobs: BTreeMap::new(),
                events: BTreeMap::new(),
                held: Vec::new(),
                remembered: 0,
                complaints: Vec::new(),
            }),
        }
    }
}

impl<E: Engine> Ledger<E> {
    /// A number that no other has.
    pub(super) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn complain(&self, complaint: String) {
        self.entries().complaints.push(complaint);
    }

    pub(super) fn entries(&self) -> MutexGuard<'_, Entries<E>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Engine> Entries<E> {
    /// Notes what is to be stored before the call is made.
    pub(super) fn begin(&mut self, event: bool, key: u64, group: u64) {
        let item = Item {
            group,
            ..Item::default()
        };
        self.items(event).insert(key, item);
    }

    /// Notes what became of it.
    pub(super) fn note(&mut self, event: bool, key: u64, stored: Stored, number: Option<i64>) {
        if let Some(item) = self.items(event).get_mut(&key) {
            item.stored = stored;
            item.number = number.or(item.number);
        }
    }

    /// Notes that a caller got a claim, or complains of a job that was not to be claimed.
    pub(super) fn claimed(&mut self, job: &JobHandle<E>) {
        let key: u64 = job.payload_as().unwrap_or_default();
        match self.jobs.get_mut(&key) {
            Some(item)
                if item.stored != Stored::RolledBack && item.ended != Ended::Acknowledged =>
            {
                item.claims += 1;
                if job.attempts != item.claims {
                    let complaint =
                        format!("{key} was claimed {} times: {:?}", item.claims, job.job());
                    self.complaints.push(complaint);
                }
            }
            other => {
                let complaint = format!("{other:?} was claimed: {:?}", job.job());
                self.complaints.push(complaint);
            }
        }
    }

    pub(super) fn ended(&mut self, key: u64, ended: Ended) {
        if let Some(item) = self.jobs.get_mut(&key) {
            item.ended = ended;
        }
    }

    /// Forgets what has been compared. A call of unknown end may land a moment later: it is
    /// remembered until the next comparison.
    pub(super) fn forget_known(&mut self, jobs: &BTreeSet<u64>, events: &BTreeSet<u64>) {
        let remembered = self.remembered;
        self.remembered = self
            .jobs
            .keys()
            .chain(self.events.keys())
            .max()
            .copied()
            .unwrap_or(0);
        let lasts = |key: &u64, item: &mut Item, found: &BTreeSet<u64>| {
            *key > remembered && item.stored == Stored::Unknown && !found.contains(key)
        };
        self.jobs.retain(|key, item| lasts(key, item, jobs));
        self.events.retain(|key, item| lasts(key, item, events));
    }

    fn items(&mut self, event: bool) -> &mut BTreeMap<u64, Item> {
        if event {
            &mut self.events
        } else {
            &mut self.jobs
        }
    }
}
