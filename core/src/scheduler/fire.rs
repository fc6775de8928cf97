//! Firing: boundaries move on and their jobs are enqueued, in one transaction.

use crate::engine::{Advance, At, DueSchedule, Engine, NewJob, Ready, Topic};
use crate::{Result, Store};

/// The most jobs that one schedule fires at once after a time without a runner.
const MOST_CATCH_UP: i64 = 64;
/// The most schedules that fire in one transaction.
const MOST_DUE: i64 = 16;

/// Fires the most overdue schedules.
pub(super) async fn some<E: Engine>(store: &Store<E>) -> Result<()> {
    let mut tx = store.begin_tx().await?;
    let (engine, conn, wakes) = tx.parts();
    let agenda = engine.read_agenda(At::In(&mut *conn), MOST_DUE).await?;
    let catch_ups: Vec<_> = agenda
        .due
        .iter()
        .map(|due| catch_up(due, agenda.now))
        .collect();
    let steps: Vec<_> = std::iter::zip(&agenda.due, &catch_ups)
        .map(|(due, step)| Advance {
            name: &due.name,
            from: due.next_at,
            to: step.next_at,
        })
        .collect();
    let moved = engine.advance_schedules(At::In(&mut *conn), &steps).await?;
    let mut jobs = Vec::new();
    for ((due, step), moved) in std::iter::zip(&agenda.due, &catch_ups).zip(moved) {
        if !moved {
            continue;
        }
        if step.skipped > 0 {
            tracing::warn!(
                schedule = due.name,
                skipped = step.skipped,
                "old boundaries skipped"
            );
        }
        wakes.add(Topic::queue(&due.queue));
        jobs.extend((0..step.fires).map(|_| job(due, agenda.now)));
    }
    if !jobs.is_empty() {
        engine.insert_jobs(At::In(conn), &jobs).await?;
    }
    tx.commit().await
}

/// A job is ready from the boundary at which its schedule was due: one that a clock far ahead
/// fired need not wait until the clock is there again.
fn job(due: &DueSchedule, now: i64) -> NewJob<'_> {
    NewJob {
        queue: &due.queue,
        payload: &due.payload,
        ready: Ready::At(due.next_at.min(now)),
        priority: due.priority,
        expires: due.expires,
        stamps: due.stamps,
    }
}

#[derive(Debug, PartialEq, Eq)]
struct CatchUp {
    fires: i64,
    skipped: i64,
    next_at: i64,
}

/// The boundaries of a due schedule that have passed, and the first that has not.
fn catch_up(due: &DueSchedule, now: i64) -> CatchUp {
    let late = now.saturating_sub(due.next_at).max(0);
    let passed = (late / due.interval_s.max(1)).saturating_add(1);
    let fires = passed.min(MOST_CATCH_UP);
    let next_at = due
        .next_at
        .saturating_add(due.interval_s.saturating_mul(passed));
    CatchUp {
        fires,
        skipped: passed - fires,
        next_at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QueueOpts;
    use rstest::rstest;

    fn due(next_at: i64, interval_s: i64) -> DueSchedule {
        DueSchedule {
            name: "s".into(),
            interval_s,
            next_at,
            queue: "q".into(),
            payload: Vec::new(),
            priority: 0,
            expires: None,
            stamps: QueueOpts::default()
                .stamps()
                .expect("the defaults are valid"),
        }
    }

    #[rstest]
    #[case(due(100, 10), 100, CatchUp { fires: 1, skipped: 0, next_at: 110 })]
    #[case(due(100, 10), 109, CatchUp { fires: 1, skipped: 0, next_at: 110 })]
    #[case(due(100, 10), 110, CatchUp { fires: 2, skipped: 0, next_at: 120 })]
    #[case(due(100, 10), 735, CatchUp { fires: 64, skipped: 0, next_at: 740 })]
    #[case(due(100, 10), 740, CatchUp { fires: 64, skipped: 1, next_at: 750 })]
    #[case(due(0, i64::MAX), 5, CatchUp { fires: 1, skipped: 0, next_at: i64::MAX })]
    #[case(due(i64::MIN, 1), i64::MAX, CatchUp { fires: 64, skipped: i64::MAX - 64, next_at: -1 })]
    fn boundaries_keep_their_phase(
        #[case] due: DueSchedule,
        #[case] now: i64,
        #[case] expected: CatchUp,
    ) {
        assert_eq!(catch_up(&due, now), expected);
    }
}
