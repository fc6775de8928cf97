//! Operations on schedules, and what a runner does with them.

use std::time::Duration;

use alkstore::engine::{
    Advance, Agenda, At, Backend as _, DueSchedule, NewJob, Queues as _, Ready, Schedules as _,
    Transaction as _, Wakes,
};
use alkstore::{Result, ScheduleOpts};

use super::dice::{Dice, Payload};
use super::queue::QUEUES;
use super::seen::Seen;
use super::side::Side;
use crate::Harness;

const SCHEDULES: [&str; 2] = ["t0", "t1"];
const SPECS: [&str; 7] = [
    "@every 3s",
    "@every 3s",
    "@every 10s",
    "@every 10s",
    "@every 1h",
    "@every 9223372036854775807s",
    "@every 0s",
];

/// As many jobs are fired at once at most; the rest of the boundaries is skipped.
const MOST_FIRES: i64 = 3;

/// An operation on the schedule of that number.
#[derive(Debug, Clone)]
pub(super) enum ScheduleOperation {
    Schedule(usize, &'static str, usize, Payload, ScheduleOpts),
    Unschedule(usize),
    /// What a runner does in one transaction, from a boundary that may be a wrong one. The
    /// runner's own loop is the library's, whatever the engine, and would do it at its leisure.
    Tick {
        limit: i64,
        off_by: i64,
        commit: bool,
    },
}

impl ScheduleOperation {
    pub(super) fn random(dice: &mut Dice) -> Self {
        match dice.below(6) {
            0..2 => {
                let mut opts = ScheduleOpts::default().priority(dice.of(&[0, 3, i64::MIN]));
                opts.max_attempts = dice.maybe(|dice| dice.of(&[0, 1, 4]));
                opts.expires = dice.maybe(Dice::any_seconds);
                let (spec, queue) = (dice.of(&SPECS), dice.two());
                Self::Schedule(dice.mostly_one(), spec, queue, dice.payload(), opts)
            }
            2 => Self::Unschedule(dice.mostly_one()),
            _ => Self::Tick {
                limit: dice.of(&[0, 16, 16, 16]),
                off_by: dice.of(&[0, 0, 0, -1]),
                commit: !dice.one_in(4),
            },
        }
    }
}

impl<H: Harness> Side<'_, H> {
    pub(super) async fn schedule(
        &mut self,
        store: usize,
        operation: &ScheduleOperation,
    ) -> Result<Seen> {
        match operation {
            ScheduleOperation::Schedule(name, spec, queue, payload, opts) => {
                let (name, queue) = (SCHEDULES[*name], QUEUES[*queue]);
                let set = self.stores[store].schedule(name, spec, queue, payload, opts.clone());
                Ok(Seen::Schedule(set.await?))
            }
            ScheduleOperation::Unschedule(name) => {
                let there = self.stores[store].unschedule(SCHEDULES[*name]).await?;
                Ok(Seen::Landed(there))
            }
            ScheduleOperation::Tick {
                limit,
                off_by,
                commit,
            } => self.tick(store, *limit, *off_by, *commit).await,
        }
    }

    async fn tick(&mut self, store: usize, limit: i64, off_by: i64, commit: bool) -> Result<Seen> {
        let engine = self.stores[store].engine();
        let mut tx = engine.begin().await?;
        let agenda = engine.read_agenda(At::In(tx.conn()), limit).await?;
        let agenda = in_order(agenda);
        let steps: Vec<_> = agenda.due.iter().map(|due| step(due, agenda.now)).collect();
        let advance: Vec<_> = std::iter::zip(&agenda.due, &steps)
            .map(|(due, (_, to))| Advance {
                name: &due.name,
                from: due.next_at.saturating_add(off_by),
                to: *to,
            })
            .collect();
        let moved = engine
            .advance_schedules(At::In(tx.conn()), &advance)
            .await?;
        let mut jobs = Vec::new();
        for ((due, (fires, _)), moved) in std::iter::zip(&agenda.due, &steps).zip(&moved) {
            jobs.extend((0..*fires).filter(|_| *moved).map(|_| job(due)));
        }
        let ids = engine.insert_jobs(At::In(tx.conn()), &jobs).await?;
        let fired = if commit {
            tx.commit(Wakes::default()).await?;
            self.kept.enqueued(&ids)
        } else {
            tx.rollback().await?;
            Seen::Count(i64::try_from(ids.len()).unwrap_or(i64::MAX))
        };
        let moved = moved.into_iter().map(Seen::Landed).collect();
        Ok(Seen::All(vec![
            Seen::Agenda(agenda),
            Seen::All(moved),
            fired,
        ]))
    }
}

/// How often a due schedule fires, and where it goes on.
fn step(due: &DueSchedule, now: i64) -> (i64, i64) {
    let passed = now.saturating_sub(due.next_at) / due.interval_s + 1;
    let to = due.interval_s.saturating_mul(passed);
    (passed.min(MOST_FIRES), due.next_at.saturating_add(to))
}

fn job(due: &DueSchedule) -> NewJob<'_> {
    NewJob {
        queue: &due.queue,
        payload: &due.payload,
        ready: Ready::Now,
        priority: due.priority,
        expires: due.expires,
        stamps: due.stamps,
    }
}

/// Nothing is said of the order of schedules that are overdue alike, and the parts of a second
/// that pass between two engines are no difference.
pub(super) fn in_order(mut agenda: Agenda) -> Agenda {
    agenda.subsec = Duration::ZERO;
    let most_overdue_first = agenda.due.is_sorted_by_key(|due| due.next_at);
    if most_overdue_first {
        agenda
            .due
            .sort_by(|a, b| (a.next_at, &a.name).cmp(&(b.next_at, &b.name)));
    }
    agenda
}
