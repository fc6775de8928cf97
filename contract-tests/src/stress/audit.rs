//! The comparison of what is stored with what callers know.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use alkstore::{Engine, Store};
use tokio::time::sleep;

use super::ledger::{Ended, Entries, Item, Ledger, Stored};
use super::task::{LIVES_ON, NAME, queue};

type Compared<T = ()> = Result<T, String>;

/// The last event that was compared, and how long to wait for what must come.
pub(super) struct Audit {
    offset: i64,
    patience: Duration,
}

impl Audit {
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            offset: 0,
            patience,
        }
    }

    /// Compares what is stored with the ledger, once all rounds have ended. Leaves no job.
    pub(super) async fn compare<E: Engine>(
        &mut self,
        store: &Store<E>,
        ledger: &Ledger<E>,
    ) -> Compared {
        let held = std::mem::take(&mut ledger.entries().held);
        for job in held {
            let key = job.payload_as().map_err(text)?;
            if !job.ack().await.map_err(text)? {
                return Err(format!("the claim of job {key} was lost by its holder"));
            }
            ledger.entries().ended(key, Ended::Acknowledged);
        }
        let found = self.drain(store, ledger).await?;
        let events = self.read(store, ledger).await?;
        let mut entries = ledger.entries();
        if let Some(complaint) = entries.complaints.first() {
            return Err(format!(
                "{complaint} (the first of {})",
                entries.complaints.len()
            ));
        }
        whole("job", &entries.jobs, &found, |item| item.ended == Ended::No)?;
        whole("event", &entries.events, &events, |_| true)?;
        entries.forget_known(&found, &events);
        Ok(())
    }

    /// Claims and ends all jobs that are left; returns what they carried.
    async fn drain<E: Engine>(
        &self,
        store: &Store<E>,
        ledger: &Ledger<E>,
    ) -> Compared<BTreeSet<u64>> {
        let queue = queue(store);
        let (started, mut found) = (Instant::now(), BTreeSet::new());
        loop {
            loop {
                let jobs = queue.claim_batch("audit", 500).await.map_err(text)?;
                if jobs.is_empty() {
                    break;
                }
                for job in &jobs {
                    let key = job.payload_as().map_err(text)?;
                    if !found.insert(key) {
                        return Err(format!("job {key} is there twice"));
                    }
                    ledger.entries().claimed(job);
                }
                let acked = queue.ack_batch(&jobs).await.map_err(text)?;
                if acked != jobs.len() {
                    return Err(format!("{acked} acks of {} landed", jobs.len()));
                }
            }
            let missing = missing(&ledger.entries(), &found);
            let mut late = Vec::new();
            for (key, id) in missing {
                let job = queue.get_job(id).await.map_err(text)?;
                let worker = job.as_ref().and_then(|job| job.worker_id.as_deref());
                // A claim that ended with its runtime stays until it lapses.
                if worker.is_none_or(|worker| worker.starts_with(LIVES_ON)) {
                    late.push((key, job));
                } else {
                    queue.cancel(id).await.map_err(text)?;
                    found.insert(key);
                }
            }
            if late.is_empty() {
                return Ok(found);
            }
            if started.elapsed() > self.patience {
                return Err(format!("these jobs are missing: {late:#?}"));
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Reads the events since the last comparison; returns what they carried.
    async fn read<E: Engine>(
        &mut self,
        store: &Store<E>,
        ledger: &Ledger<E>,
    ) -> Compared<BTreeSet<u64>> {
        let stream = store.stream(NAME).map_err(text)?;
        let events = stream
            .read_since(self.offset, i64::MAX)
            .await
            .map_err(text)?;
        let mut found = BTreeSet::new();
        let entries = ledger.entries();
        for event in events {
            self.offset += 1;
            let key: u64 = event.payload_as().map_err(text)?;
            let item = entries.events.get(&key).copied().unwrap_or_default();
            let as_told = item.number.is_none_or(|offset| offset == event.offset);
            if event.offset != self.offset || !as_told || !found.insert(key) {
                return Err(format!("{event:?} is not {item:?} at {}", self.offset));
            }
        }
        Ok(found)
    }
}

/// Jobs that were acknowledged and not ended, and that nobody has found.
fn missing<E: Engine>(entries: &Entries<E>, found: &BTreeSet<u64>) -> Vec<(u64, i64)> {
    let jobs = entries.jobs.iter();
    let missing = jobs.filter(|(key, item)| {
        item.stored == Stored::Acknowledged && item.ended == Ended::No && !found.contains(key)
    });
    missing
        .filter_map(|(key, item)| Some((*key, item.number?)))
        .collect()
}

/// Asserts that what was acknowledged was found and what was rolled back was not, and that the
/// calls that nobody knows the end of stored all or nothing.
fn whole(
    what: &str,
    items: &BTreeMap<u64, Item>,
    found: &BTreeSet<u64>,
    remains: impl Fn(&Item) -> bool,
) -> Compared {
    let mut groups = BTreeMap::<u64, (bool, u64)>::new();
    for (key, item) in items {
        let there = found.contains(key);
        let expected = match item.stored {
            Stored::Acknowledged => Some(true),
            Stored::RolledBack => Some(false),
            Stored::Unknown => None,
        };
        if !remains(item) {
            // It was claimed, so it was there.
            continue;
        }
        if expected.is_some_and(|expected| expected != there) {
            return Err(format!("{what} {key} is there: {there}, of {item:?}"));
        }
        // A claim of a job of unknown end may have ended with its runtime.
        let (of_group, first) = *groups.entry(item.group).or_insert((there, *key));
        if what == "event" && of_group != there {
            return Err(format!("of one call {what} {first} and not {key} is there"));
        }
    }
    match found.iter().find(|key| !items.contains_key(key)) {
        Some(key) => Err(format!("nobody stored {what} {key}")),
        None => Ok(()),
    }
}

fn text(error: alkstore::Error) -> String {
    format!("the comparison failed: {error:?}")
}
