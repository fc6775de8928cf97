//! Schedules in SQL.

use std::time::Duration;

use alkstore::Result;
use alkstore::engine::{
    Advance, Agenda, At, DueSchedule, NewSchedule, Results, Schedules, Stamps, Topic,
};
use sqlx::PgConnection;
use sqlx::postgres::PgRow;

use crate::Postgres;
use crate::backend::{Arguments, Statement, patience};
use crate::notify::{Waking, wake_all};
use crate::queue::get;
use crate::schema::{NOW, sum, sum_up};

/// The statements of this mechanism.
#[derive(Debug)]
pub(crate) struct Statements {
    upsert: Statement,
    delete: Statement,
    read: Statement,
    read_and_keep: Statement,
    reset: Statement,
    advance: Statement,
}

impl Statements {
    pub(crate) fn new(schema: &str, channel: &str) -> Self {
        let delete = format!(
            "DELETE FROM {schema}.schedules WHERE name = $1 AND {patience} RETURNING name",
            patience = patience(2)
        );
        Self {
            upsert: upsert(schema, channel),
            delete: Statement::waiting("deleting a schedule", delete),
            read: Statement::reading("reading the schedules", agenda(schema, "")),
            read_and_keep: Statement::new("reading the schedules", agenda(schema, "FOR UPDATE")),
            reset: reset(schema),
            advance: advance(schema),
        }
    }
}

fn upsert(schema: &str, channel: &str) -> Statement {
    let next_at = sum("(SELECT now FROM clock)", "$4");
    let wake = wake_all(channel, "$12::text[]");
    let patience = patience(14);
    let text = format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
         stored AS (
             INSERT INTO {schema}.schedules AS known (
                 name, spec, interval_s, queue, payload, priority, expires,
                 visibility_timeout_s, max_attempts, backoff_base_s, dead_letter_retention_s,
                 next_at
             )
             SELECT $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $13, {next_at} WHERE {patience}
             ON CONFLICT (name) DO UPDATE SET
                 spec = excluded.spec,
                 interval_s = excluded.interval_s,
                 queue = excluded.queue,
                 payload = excluded.payload,
                 priority = excluded.priority,
                 expires = excluded.expires,
                 visibility_timeout_s = excluded.visibility_timeout_s,
                 max_attempts = excluded.max_attempts,
                 backoff_base_s = excluded.backoff_base_s,
                 dead_letter_retention_s = excluded.dead_letter_retention_s,
                 next_at = CASE WHEN known.spec = excluded.spec
                     THEN least(known.next_at, excluded.next_at) ELSE excluded.next_at END
             RETURNING next_at
         )
         SELECT next_at, {wake} FROM stored"
    );
    Statement::waiting("storing a schedule", text)
}

/// One row at least, with the server's now, the microseconds since, and the earliest boundary.
fn agenda(schema: &str, keep: &str) -> String {
    format!(
        "WITH clock AS MATERIALIZED (
             SELECT {NOW} AS now,
                 date_part('microseconds', statement_timestamp())::bigint % 1000000 AS subsec
         ),
         due AS MATERIALIZED (
             SELECT name, interval_s, next_at, queue, payload, priority, expires,
                 visibility_timeout_s, max_attempts, backoff_base_s, dead_letter_retention_s
             FROM {schema}.schedules
             WHERE next_at <= (SELECT now FROM clock)
             ORDER BY next_at, name
             LIMIT $2
             {keep}
         )
         SELECT now, (SELECT next_at FROM {schema}.schedules ORDER BY next_at, name LIMIT 1), due.*,
             subsec
         FROM clock LEFT JOIN due ON true
         ORDER BY due.next_at, due.name"
    )
}

/// A row that somebody else moves on has a boundary that is near, so none is waited for.
fn reset(schema: &str) -> Statement {
    let one_away = sum_up("clock.now", "schedules.interval_s");
    let text = format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
         astray AS MATERIALIZED (
             SELECT schedules.name, {one_away} AS next_at
             FROM {schema}.schedules, clock
             WHERE schedules.next_at > {one_away}
             FOR UPDATE OF schedules SKIP LOCKED
         )
         UPDATE {schema}.schedules SET next_at = astray.next_at
         FROM astray WHERE schedules.name = astray.name"
    );
    Statement::new("resetting boundaries that a clock ahead has left", text)
}

fn advance(schema: &str) -> Statement {
    let patience = patience(4);
    let text = format!(
        "WITH seen AS MATERIALIZED (
             SELECT schedules.name, given.next_at, ordinal
             FROM unnest($1::text[], $2::bigint[], $3::bigint[])
                 WITH ORDINALITY AS given (name, seen_at, next_at, ordinal)
             JOIN {schema}.schedules ON schedules.name = given.name
                 AND schedules.next_at = given.seen_at
             WHERE {patience}
             ORDER BY schedules.next_at, schedules.name
             FOR UPDATE OF schedules
         ),
         known AS MATERIALIZED (SELECT DISTINCT ON (name) * FROM seen ORDER BY name, ordinal),
         moved AS (
             UPDATE {schema}.schedules SET next_at = known.next_at
             FROM known WHERE schedules.name = known.name
         )
         SELECT ordinal FROM known"
    );
    Statement::waiting("moving schedules on", text)
}

impl Schedules for Postgres {
    async fn upsert_schedule(&self, schedule: &NewSchedule<'_>) -> Result<i64> {
        let inner = self.inner();
        let waking = Waking::new(inner, &At::Auto, [Topic::SCHEDULES]);
        let stamps = schedule.stamps;
        let arguments = |along: &[String]| {
            inner
                .arguments()
                .add(schedule.name)
                .add(schedule.spec)
                .add(schedule.interval_s)
                .add(schedule.queue)
                .add(schedule.payload)
                .add(schedule.priority)
                .add(schedule.expires)
                .add(stamps.visibility_timeout_s)
                .add(stamps.max_attempts)
                .add(stamps.backoff_base_s)
                .add(along)
                .add(stamps.dead_letter_retention_s)
        };
        let upsert = &inner.statements.schedule.upsert;
        let rows = waking.run(At::Auto, &[upsert], arguments).await?;
        rows.first().map_or(Ok(0), |row| get(row, 0))
    }

    async fn delete_schedule(&self, name: &str) -> Result<bool> {
        let inner = self.inner();
        let arguments = || Arguments::default().add(name);
        let rows = inner
            .run(At::Auto, &inner.statements.schedule.delete, arguments)
            .await?;
        Ok(!rows.is_empty())
    }

    async fn read_agenda(&self, at: At<'_, PgConnection>, limit: i64) -> Result<Agenda> {
        let (inner, statements) = (self.inner(), &self.inner().statements.schedule);
        let statement = match at {
            At::Auto => &statements.read,
            At::In(_) => &statements.read_and_keep,
        };
        let arguments = || inner.arguments().add(limit);
        let rows = inner.run(at, statement, arguments).await?;
        let mut agenda = Agenda::default();
        for row in &rows {
            agenda.now = get(row, 0)?;
            agenda.next_at = get(row, 1)?;
            let micros: i64 = get(row, 13)?;
            agenda.subsec = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
            if get::<Option<String>>(row, 2)?.is_some() {
                agenda.due.push(due(row)?);
            }
        }
        Ok(agenda)
    }

    async fn reset_boundaries(&self) -> Result<()> {
        let inner = self.inner();
        let statement = &inner.statements.schedule.reset;
        inner
            .run(At::Auto, statement, || inner.arguments())
            .await
            .map(drop)
    }

    async fn advance_schedules(
        &self,
        at: At<'_, PgConnection>,
        steps: &[Advance<'_>],
    ) -> Result<Results<bool>> {
        if steps.is_empty() {
            return Ok(Results::new());
        }
        let inner = self.inner();
        let arguments = || {
            Arguments::default()
                .add(steps.iter().map(|step| step.name).collect::<Vec<_>>())
                .add(steps.iter().map(|step| step.from).collect::<Vec<_>>())
                .add(steps.iter().map(|step| step.to).collect::<Vec<_>>())
        };
        let rows = inner
            .run(at, &inner.statements.schedule.advance, arguments)
            .await?;
        let mut moved = Results::from_elem(false, steps.len());
        for row in &rows {
            let position: i64 = get(row, 0)?;
            let index = usize::try_from(position - 1).unwrap_or(usize::MAX);
            if let Some(moved) = moved.get_mut(index) {
                *moved = true;
            }
        }
        Ok(moved)
    }
}

fn due(row: &PgRow) -> Result<DueSchedule> {
    Ok(DueSchedule {
        name: get(row, 2)?,
        interval_s: get(row, 3)?,
        next_at: get(row, 4)?,
        queue: get(row, 5)?,
        payload: get(row, 6)?,
        priority: get(row, 7)?,
        expires: get(row, 8)?,
        stamps: Stamps {
            visibility_timeout_s: get(row, 9)?,
            max_attempts: get(row, 10)?,
            backoff_base_s: get(row, 11)?,
            dead_letter_retention_s: get(row, 12)?,
        },
    })
}
