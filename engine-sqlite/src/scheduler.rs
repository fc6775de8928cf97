//! Schedules.

use std::time::Duration;

use alkstore::Result;
use alkstore::engine::{
    Advance, Agenda, At, DueSchedule, NewSchedule, Results, Schedules, Stamps, Topic,
};
use sqlx::SqliteConnection;

use crate::Sqlite;
use crate::error::Answer;
use crate::exec::{Awaiting, Exec, Inline, Row, Value, ready};
use crate::notify::bump;

impl Schedules for Sqlite {
    async fn upsert_schedule(&self, schedule: &NewSchedule<'_>) -> Result<i64> {
        let upsert = |x: &mut Inline<'_>, now| ready(upsert(x, now, schedule));
        let touched = |_: &i64, wake: &mut dyn FnMut(Topic<'_>)| wake(Topic::SCHEDULES);
        self.inner().write("scheduling", upsert, touched).await
    }

    async fn delete_schedule(&self, name: &str) -> Result<bool> {
        let delete = |x: &mut Inline<'_>, _| ready(x.execute(DELETE, &[Value::Text(name)]));
        Ok(self
            .inner()
            .write("unscheduling", delete, |_, _| {})
            .await?
            .changes
            > 0)
    }

    async fn read_agenda(&self, at: At<'_, SqliteConnection>, limit: i64) -> Result<Agenda> {
        const DOING: &str = "reading the schedules";
        let instant = || self.inner().instant();
        match at {
            At::Auto => {
                let read = |x: &mut Inline<'_>, _| ready(read(x, instant(), limit));
                self.inner().read(DOING, read).await
            }
            At::In(conn) => {
                let read = async |x: &mut Awaiting<'_>, _| read(x, instant(), limit).await;
                self.inner().join(DOING, conn, read).await
            }
        }
    }

    async fn reset_boundaries(&self) -> Result<()> {
        let reset = |x: &mut Inline<'_>, now| ready(x.execute(RESET, &[Value::Int(now)]));
        let doing = "resetting boundaries that a clock ahead has left";
        self.inner().write(doing, reset, |_, _| {}).await?;
        Ok(())
    }

    async fn advance_schedules(
        &self,
        at: At<'_, SqliteConnection>,
        steps: &[Advance<'_>],
    ) -> Result<Results<bool>> {
        const DOING: &str = "advancing schedules";
        match at {
            _ if steps.is_empty() => Ok(Results::new()),
            At::Auto => {
                let advance = |x: &mut Inline<'_>, _| ready(advance(x, steps));
                self.inner().write(DOING, advance, |_, _| {}).await
            }
            At::In(conn) => {
                let advance = async |x: &mut Awaiting<'_>, _| advance(x, steps).await;
                self.inner().join_whole(DOING, conn, advance).await
            }
        }
    }
}

const UPSERT: &str = "INSERT INTO __alkstore_schedules (name, spec, interval_s, next_at, queue,
         priority, expires, max_attempts, visibility_timeout_s, backoff_base_s,
         dead_letter_retention_s, payload)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
     ON CONFLICT (name) DO UPDATE SET
         next_at = CASE WHEN spec = excluded.spec THEN min(next_at, excluded.next_at)
             ELSE excluded.next_at END,
         spec = excluded.spec, interval_s = excluded.interval_s, queue = excluded.queue,
         priority = excluded.priority, expires = excluded.expires,
         max_attempts = excluded.max_attempts,
         visibility_timeout_s = excluded.visibility_timeout_s,
         backoff_base_s = excluded.backoff_base_s,
         dead_letter_retention_s = excluded.dead_letter_retention_s,
         payload = excluded.payload
     RETURNING next_at";
const DELETE: &str = "DELETE FROM __alkstore_schedules WHERE name = ?1";
const NEXT: &str = "SELECT min(next_at) FROM __alkstore_schedules";
const DUE: &str = "SELECT name, interval_s, next_at, queue, priority, expires, max_attempts,
         visibility_timeout_s, backoff_base_s, dead_letter_retention_s, payload
     FROM __alkstore_schedules WHERE next_at <= ?1 ORDER BY next_at, name LIMIT ?2";
// A sum beyond the largest integer would be a float.
const RESET: &str = "UPDATE __alkstore_schedules SET next_at = ?1 + interval_s
     WHERE next_at > ?1 AND interval_s <= 9223372036854775807 - max(?1, 0)
         AND next_at > ?1 + interval_s";
const ADVANCE: &str =
    "UPDATE __alkstore_schedules SET next_at = ?3 WHERE name = ?1 AND next_at = ?2";

async fn upsert<X: Exec>(x: &mut X, now: i64, schedule: &NewSchedule<'_>) -> Answer<i64> {
    let first = now.saturating_add(schedule.interval_s);
    let values = [
        Value::Text(schedule.name),
        Value::Text(schedule.spec),
        Value::Int(schedule.interval_s),
        Value::Int(first),
        Value::Text(schedule.queue),
        Value::Int(schedule.priority),
        Value::maybe(schedule.expires),
        Value::Int(schedule.stamps.max_attempts),
        Value::Int(schedule.stamps.visibility_timeout_s),
        Value::Int(schedule.stamps.backoff_base_s),
        Value::maybe(schedule.stamps.dead_letter_retention_s),
        Value::Blob(schedule.payload),
    ];
    let next = x.rows(UPSERT, &values, |row| row.int(0)).await?;
    bump(x, Topic::SCHEDULES).await?;
    Ok(next.first().copied().unwrap_or(first))
}

async fn read<X: Exec>(x: &mut X, (now, subsec): (i64, Duration), limit: i64) -> Answer<Agenda> {
    let due = x
        .rows(DUE, &[Value::Int(now), Value::Int(limit)], due)
        .await?;
    // The most overdue one is the earliest of all; only without one is there more to read.
    let next_at = match due.first() {
        Some(earliest) => Some(earliest.next_at),
        None => x
            .rows(NEXT, &[], |row| row.maybe_int(0))
            .await?
            .first()
            .copied()
            .flatten(),
    };
    Ok(Agenda {
        now,
        subsec,
        next_at,
        due,
    })
}

fn due(row: &Row<'_>) -> Answer<DueSchedule> {
    Ok(DueSchedule {
        name: row.text(0)?,
        interval_s: row.int(1)?,
        next_at: row.int(2)?,
        queue: row.text(3)?,
        priority: row.int(4)?,
        expires: row.maybe_int(5)?,
        stamps: Stamps {
            max_attempts: row.int(6)?,
            visibility_timeout_s: row.int(7)?,
            backoff_base_s: row.int(8)?,
            dead_letter_retention_s: row.maybe_int(9)?,
        },
        payload: row.blob(10)?,
    })
}

async fn advance<X: Exec>(x: &mut X, steps: &[Advance<'_>]) -> Answer<Results<bool>> {
    let mut moved = Results::with_capacity(steps.len());
    for step in steps {
        let values = [
            Value::Text(step.name),
            Value::Int(step.from),
            Value::Int(step.to),
        ];
        moved.push(x.execute(ADVANCE, &values).await?.changes > 0);
    }
    Ok(moved)
}
