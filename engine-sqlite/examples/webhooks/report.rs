//! What is there at the end, and whether it balances.

use std::fmt;

use alkstore::{BoxedStore, JobState, QueueOpts};

use crate::ingest::Work;
use crate::run::{QUEUE, Tally};
use crate::{Failure, business};

/// The counts: of this run from the tally, of all runs from the database.
#[derive(Default)]
pub(crate) struct Report {
    tally: Tally,
    deliveries: u64,
    done: u64,
    dead: u64,
    events: u64,
    sent: u64,
    guarded: u64,
    fired: u64,
    /// Deliveries of which a job, an event or a message is missing.
    lost: u64,
    /// Jobs, events, messages and effects of deliveries that are not there.
    ghosts: u64,
}

impl Report {
    pub(crate) async fn read(store: &BoxedStore, tally: &Tally) -> Result<Self, Failure> {
        let mut report = Self {
            tally: tally.clone(),
            ..Self::default()
        };
        for (count, name) in business::counts(store).await? {
            let field = match name.as_str() {
                "deliveries" => &mut report.deliveries,
                "seen" => &mut report.events,
                "sent" => &mut report.sent,
                "swept" => &mut report.fired,
                "guarded" => &mut report.guarded,
                "lost" => &mut report.lost,
                _ => &mut report.ghosts,
            };
            *field = u64::try_from(count)?;
        }
        report.count_jobs(store).await?;
        report.count_ghost_events(store).await?;
        Ok(report)
    }

    /// Each delivery's job must have had its effect and be gone, or be dead without it.
    async fn count_jobs(&mut self, store: &BoxedStore) -> Result<(), Failure> {
        let queue = store.queue(QUEUE, QueueOpts::default())?;
        for (job, is_handled) in business::jobs(store).await? {
            let state = queue.get_job(job).await?.map(|job| job.state);
            match (state, is_handled) {
                (None, true) => self.done += 1,
                (Some(JobState::Dead), false) => self.dead += 1,
                (Some(_), true) => self.ghosts += 1,
                (Some(_) | None, false) => self.lost += 1,
            }
        }
        Ok(())
    }

    /// Events that were read although their delivery was rolled back would be in no table.
    async fn count_ghost_events(&mut self, store: &BoxedStore) -> Result<(), Failure> {
        let mut events = 0;
        for repository in business::repositories(store).await? {
            let stream = store.stream(&repository)?;
            for event in stream.read_since(0, i64::MAX).await? {
                event.payload_as::<Work>()?;
                events += 1;
            }
        }
        self.ghosts += u64::abs_diff(events, self.deliveries);
        Ok(())
    }

    pub(crate) fn all_to_do(&self) -> u64 {
        self.deliveries * 3
    }

    pub(crate) fn all_done(&self) -> u64 {
        self.done + self.dead + self.events + self.sent
    }

    /// Nothing is missing, nothing is there that must not be, and everybody has worked.
    pub(crate) fn balances(&self) -> bool {
        self.lost == 0
            && self.ghosts == 0
            && self.done + self.dead == self.deliveries
            && self.events == self.deliveries
            && self.sent == self.deliveries
            && self.guarded > 0
            && self.fired > 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.tally;
        let this_run = [
            ("deliveries taken in", tally.all_taken_in()),
            ("rolled back: came again", tally.all_rolled_back()),
            ("lines left out: malformed", tally.all_malformed()),
            ("attempts retried", tally.all_retried()),
            ("jobs reclaimed", tally.all_reclaimed()),
            ("lock refused", tally.all_refused()),
        ];
        let all_runs = [
            ("deliveries", self.deliveries),
            ("jobs done", self.done),
            ("jobs dead", self.dead),
            ("events seen", self.events),
            ("messages sent", self.sent),
            ("schedule fired", self.fired),
            ("guarded steps", self.guarded),
            ("lost", self.lost),
            ("ghosts", self.ghosts),
        ];
        for (title, rows) in [
            ("this run", &this_run[..]),
            ("in the database", &all_runs[..]),
        ] {
            writeln!(f, "{title}")?;
            for (name, count) in rows {
                writeln!(f, "  {name:<28}{count:>8}")?;
            }
        }
        write!(
            f,
            "{}",
            if self.balances() {
                "balanced"
            } else {
                "NOT BALANCED"
            }
        )
    }
}
