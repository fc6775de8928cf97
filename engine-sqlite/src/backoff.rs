//! Pauses between attempts on a database that others keep busy.

use std::time::{Duration, Instant};

use alkstore::Result;

use crate::error::Busy;

/// Waits between attempts on a database that others keep busy, until a deadline.
#[derive(Debug)]
pub(crate) struct Backoff {
    deadline: Option<Instant>,
    attempts: u32,
}

impl Backoff {
    pub(crate) fn new(most: Duration) -> Self {
        Self {
            deadline: Instant::now().checked_add(most),
            attempts: 0,
        }
    }

    /// Waits as [`Backoff::pause`] does, for the reason that its error names.
    pub(crate) async fn busy(&mut self, doing: &str, why: Busy) -> Result<()> {
        let paused = self.pause().await;
        paused.map_err(|()| why.into_error(doing))
    }

    /// How much time is left.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.map_or(Duration::MAX, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        })
    }

    /// Lets others run, the longer the more often it was called; `Err` past the deadline.
    pub(crate) async fn pause(&mut self) -> Result<(), ()> {
        /// A write transaction of this crate's is shorter than this many yields.
        const YIELDS: u32 = 3;
        /// So that a writer that waits is not overtaken for long, in milliseconds.
        const LONGEST: u64 = 8;
        let left = self.left();
        if left.is_zero() {
            return Err(());
        }
        if self.attempts < YIELDS {
            tokio::task::yield_now().await;
        } else {
            let longest = (1 << (self.attempts - YIELDS).min(8)).min(LONGEST);
            let pause = Duration::from_millis(fastrand::u64(1..=longest));
            tokio::time::sleep(pause.min(left)).await;
        }
        self.attempts += 1;
        Ok(())
    }
}
