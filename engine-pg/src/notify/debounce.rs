//! At most one `NOTIFY` for a topic in each interval: when topics were notified, and what is owed.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error;
use crate::outage::Outage;

/// How many topics are remembered after their debounce time.
const MOST_REMEMBERED: usize = 1024;
/// How long a `NOTIFY` that failed waits for its next attempt, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Which topics were notified of when, and which still have to be.
#[derive(Debug)]
pub(crate) struct Notifier {
    /// Tells this engine's wakes from others': it wakes its own receivers without the server.
    pub(crate) sender: u32,
    debounce: Duration,
    table: Mutex<Table>,
}

#[derive(Debug)]
pub(super) struct Table {
    last: HashMap<String, Instant>,
    pub(super) owed: HashSet<String>,
    /// Whether a task is there to pay what is owed.
    pub(super) paying: bool,
    /// When a wake last found no room in the server.
    without_room: Option<Instant>,
    pub(super) outage: Outage,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            last: HashMap::new(),
            owed: HashSet::new(),
            paying: false,
            without_room: None,
            outage: Outage::new(RETRY.0, RETRY.1),
        }
    }
}

impl Notifier {
    pub(crate) fn new(debounce: Duration, sender: u32) -> Self {
        Self {
            sender,
            debounce,
            table: Mutex::default(),
        }
    }

    /// Whether a change of the topic takes its `NOTIFY` along.
    pub(super) fn admit(&self, wake: &str) -> Ride {
        let now = Instant::now();
        let mut table = self.table();
        match table.last.get_mut(wake) {
            Some(last) if now.duration_since(*last) < self.debounce => return Ride::Later,
            Some(last) => *last = now,
            None => {
                if table.last.len() >= MOST_REMEMBERED {
                    table
                        .last
                        .retain(|_, last| now.duration_since(*last) < self.debounce);
                }
                table.last.insert(wake.to_owned(), now);
            }
        }
        // One that is still owed is for a commit before this one, which pays for both.
        Ride::Along {
            paid: table.owed.remove(wake),
        }
    }

    /// What is owed and due, or when something is.
    pub(super) fn due(&self) -> Due {
        let now = Instant::now();
        let mut table = self.table();
        let due_at = |last: Option<&Instant>| last.map_or(now, |last| *last + self.debounce);
        let due: Vec<_> = {
            let Table { last, owed, .. } = &mut *table;
            owed.extract_if(|wake| due_at(last.get(wake)) <= now)
                .collect()
        };
        for wake in &due {
            table.last.insert(wake.clone(), now);
        }
        if !due.is_empty() {
            return Due::Now(due);
        }
        match table
            .owed
            .iter()
            .map(|wake| due_at(table.last.get(wake)))
            .min()
        {
            Some(next) => Due::At(next),
            None => {
                table.paying = false;
                Due::Nothing
            }
        }
    }

    /// A wake found no room in the server.
    pub(super) fn has_no_room(&self) {
        let now = Instant::now();
        let mut table = self.table();
        table.without_room = Some(now);
        if table.outage.is_to_be_told(now) {
            drop(table);
            tracing::warn!("wakes wait: {}", error::NOTIFY_QUEUE_FULL);
        }
    }

    /// Whether a wake found no room in the server since then.
    pub(super) fn had_no_room_since(&self, began: Instant) -> bool {
        self.table().without_room.is_some_and(|at| at >= began)
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here can be left half done by a panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ride {
    /// In the statement; `paid` if it stands for an earlier one as well.
    Along { paid: bool },
    /// After the debounce time.
    Later,
}

pub(super) enum Due {
    Now(Vec<String>),
    At(Instant),
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_has_one_notify_and_one_more_is_owed() {
        let notifier = Notifier::new(Duration::from_secs(60), 1);
        assert_eq!(notifier.admit("a"), Ride::Along { paid: false });
        assert_eq!(notifier.admit("a"), Ride::Later);
        assert_eq!(notifier.admit("b"), Ride::Along { paid: false });
        notifier.table().owed.insert("a".into());
        assert!(matches!(notifier.due(), Due::At(_)));
        let at_once = Notifier::new(Duration::ZERO, 1);
        at_once.table().owed.insert("a".into());
        assert_eq!(at_once.admit("a"), Ride::Along { paid: true });
        assert!(matches!(at_once.due(), Due::Nothing));
    }
}
