//! Enqueue.

use alkstore::Result;
use alkstore::engine::{At, NewJob, Ready, Results, Topic};
use sqlx::PgConnection;

use crate::Postgres;
use crate::backend::{Arguments, Statement};
use crate::notify::{Waking, wake_all};
use crate::queue::get;
use crate::schema::{NOW, sum};

const DOING: &str = "enqueueing";

/// What an enqueue sets, in the order of the arguments after the clock's.
const COLUMNS: &str = "queue, payload, run_at, priority, created_at, expires_at, \
     visibility_timeout_s, max_attempts, backoff_base_s, dead_letter_retention_s";

/// How many ids the server draws at once: the step of the identity column in the schema. Those
/// that follow a drawn one are its statement's, used or not.
const BLOCK: usize = 1000;

/// The subqueries `clock` and `times`, from the arguments `$4`, `$5` and `$7`; `$4` says whether
/// `$5` counts from now on.
fn times() -> String {
    let from_now = sum("now", "$5::bigint");
    let expires_at = sum("now", "$7::bigint");
    format!(
        "clock AS MATERIALIZED (SELECT {NOW} AS now),
         times AS MATERIALIZED (
             SELECT now, CASE WHEN $4::bool THEN {from_now} ELSE $5 END AS run_at,
                 {expires_at} AS expires_at
             FROM clock
         )"
    )
}

/// The values of [`COLUMNS`] for one payload; all else is worked out once for the statement.
fn values(payload: &str) -> String {
    format!(
        "$2::text, {payload}, (SELECT run_at FROM times), $6::bigint, (SELECT now FROM times),
         (SELECT expires_at FROM times), $8::bigint, $9::bigint, $10::bigint, $11::bigint"
    )
}

/// One job, its payload `$3`: the shortest way for what happens most.
pub(super) fn insert_one(schema: &str, channel: &str) -> Statement {
    let (times, values) = (times(), values("$3::bytea"));
    let wake = wake_all(channel, "$12::text[]");
    let text = format!(
        "WITH {times}
         INSERT INTO {schema}.jobs ({COLUMNS}) SELECT {values} RETURNING id, {wake}"
    );
    Statement::new(DOING, text)
}

/// Jobs that differ in their payloads `$3` alone. Returns the first id of each block of them.
///
/// Only the first job of a block draws an id and hands it back. Without it, and without columns
/// that say the same thousand times, the row and its index entries are all that a job costs. The
/// payloads come one by one from a target list, in their order and past no intermediate store.
pub(super) fn insert_alike(schema: &str, channel: &str) -> Statement {
    let times = times();
    let head = values(&format!("($3::bytea[])[1 + {BLOCK} * block]"));
    let payload = values("payload");
    let wake = wake_all(channel, "$12::text[]");
    let text = format!(
        "WITH {times},
         heads AS (
             INSERT INTO {schema}.jobs ({COLUMNS})
             SELECT {head}
             FROM generate_series(0, (cardinality($3) - 1) / {BLOCK}) AS block
             ORDER BY block
             RETURNING id
         ),
         rest AS (
             INSERT INTO {schema}.jobs (id, {COLUMNS}) OVERRIDING SYSTEM VALUE
             SELECT (ARRAY(SELECT id FROM heads ORDER BY id))[1 + nth / {BLOCK}] + nth % {BLOCK},
                 {payload}
             FROM (
                 SELECT unnest($3::bytea[]) AS payload,
                     generate_series(0, cardinality($3) - 1) AS nth
             ) AS given
             WHERE nth % {BLOCK} <> 0
         )
         SELECT id, {wake} FROM heads ORDER BY id"
    );
    Statement::new(DOING, text)
}

/// Any jobs: `$2` to `$11` are a column each.
pub(super) fn insert(schema: &str, channel: &str) -> Statement {
    let from_now = sum("now", "ready");
    let expires_at = sum("now", "expires");
    let wake = wake_all(channel, "$12::text[]");
    // Ids are drawn in the order of the rows that the sort below them hands up.
    let text = format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
         given AS (
             SELECT * FROM unnest(
                 $2::text[], $3::bytea[], $4::bool[], $5::bigint[], $6::bigint[],
                 $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[]
             ) WITH ORDINALITY AS given (
                 queue, payload, relative, ready, priority,
                 expires, visibility, attempts, backoff, retention, ordinal
             )
         ),
         inserted AS (
             INSERT INTO {schema}.jobs ({COLUMNS})
             SELECT queue, payload, CASE WHEN relative THEN {from_now} ELSE ready END, priority,
                 now, {expires_at}, visibility, attempts, backoff, retention
             FROM given CROSS JOIN clock
             ORDER BY ordinal
             RETURNING id
         )
         SELECT id, {wake} FROM inserted ORDER BY id"
    );
    Statement::new(DOING, text)
}

impl Postgres {
    pub(crate) async fn insert(
        &self,
        at: At<'_, PgConnection>,
        jobs: &[NewJob<'_>],
    ) -> Result<Results<i64>> {
        let Some(first) = jobs.first() else {
            return Ok(Results::new());
        };
        let inner = self.inner();
        let statements = &inner.statements.queue;
        let alike = jobs.iter().all(|job| are_alike(job, first));
        let topics = if alike { &jobs[..1] } else { jobs };
        let topics = topics.iter().map(|job| Topic::queue(job.queue));
        let waking = Waking::new(inner, &at, topics);
        let arguments = || {
            let arguments = inner.arguments();
            let arguments = if alike {
                add_alike(arguments, first, jobs)
            } else {
                add_columns(arguments, jobs)
            };
            arguments.add(&waking.along[..])
        };
        let statement = match jobs {
            [_] => &statements.insert_one,
            _ if alike => &statements.insert_alike,
            _ => &statements.insert,
        };
        let rows = inner.run(at, statement, arguments).await;
        let rows = waking.ended(rows)?;
        let ids = rows.iter().map(|row| get(row, 0));
        if !alike {
            return ids.collect();
        }
        let heads = ids.collect::<Result<Results<i64>>>()?;
        let blocks = std::iter::zip(heads, jobs.chunks(BLOCK));
        Ok(blocks
            .flat_map(|(head, block)| std::iter::zip(head.., block))
            .map(|(id, _)| id)
            .collect())
    }
}

/// Whether two jobs differ in their payloads at most.
fn are_alike(a: &NewJob<'_>, b: &NewJob<'_>) -> bool {
    a.queue == b.queue
        && a.ready == b.ready
        && a.priority == b.priority
        && a.expires == b.expires
        && a.stamps == b.stamps
}

/// What [`values`] and [`times`] take.
fn add_alike(arguments: Arguments, first: &NewJob<'_>, jobs: &[NewJob<'_>]) -> Arguments {
    let (relative, time) = ready(first);
    let arguments = arguments.add(first.queue);
    let arguments = match jobs {
        [job] => arguments.add(job.payload),
        _ => arguments.add(jobs.iter().map(|job| job.payload).collect::<Vec<_>>()),
    };
    arguments
        .add(relative)
        .add(time)
        .add(first.priority)
        .add(first.expires)
        .add(first.stamps.visibility_timeout_s)
        .add(first.stamps.max_attempts)
        .add(first.stamps.backoff_base_s)
        .add(first.stamps.dead_letter_retention_s)
}

fn add_columns(arguments: Arguments, jobs: &[NewJob<'_>]) -> Arguments {
    let column = |of: fn(&NewJob<'_>) -> i64| jobs.iter().map(of).collect::<Vec<_>>();
    let optional = |of: fn(&NewJob<'_>) -> Option<i64>| jobs.iter().map(of).collect::<Vec<_>>();
    arguments
        .add(jobs.iter().map(|job| job.queue).collect::<Vec<_>>())
        .add(jobs.iter().map(|job| job.payload).collect::<Vec<_>>())
        .add(jobs.iter().map(|job| ready(job).0).collect::<Vec<_>>())
        .add(column(|job| ready(job).1))
        .add(column(|job| job.priority))
        .add(optional(|job| job.expires))
        .add(column(|job| job.stamps.visibility_timeout_s))
        .add(column(|job| job.stamps.max_attempts))
        .add(column(|job| job.stamps.backoff_base_s))
        .add(optional(|job| job.stamps.dead_letter_retention_s))
}

/// Whether the time counts from now on, and the time.
fn ready(job: &NewJob<'_>) -> (bool, i64) {
    match job.ready {
        Ready::Now => (true, 0),
        Ready::In(delay) => (true, delay),
        Ready::At(run_at) => (false, run_at),
    }
}
