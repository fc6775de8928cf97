//! Enqueue.

use alkstore::Result;
use alkstore::engine::{At, NewJob, Ready, Topic};
use sqlx::PgConnection;

use crate::Postgres;
use crate::backend::Statement;
use crate::notify::{Waking, wake_all};
use crate::queue::get;
use crate::schema::{NOW, sum};

/// `$2` to `$11` are a column each; `$4` says whether `$5` counts from now on.
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
             INSERT INTO {schema}.jobs (
                 queue, payload, run_at, priority, created_at, expires_at,
                 visibility_timeout_s, max_attempts, backoff_base_s, dead_letter_retention_s
             )
             SELECT queue, payload, CASE WHEN relative THEN {from_now} ELSE ready END, priority,
                 now, {expires_at}, visibility, attempts, backoff, retention
             FROM given CROSS JOIN clock
             ORDER BY ordinal
             RETURNING id
         )
         SELECT id, {wake} FROM inserted ORDER BY id"
    );
    Statement::new("enqueueing", text)
}

impl Postgres {
    pub(crate) async fn insert(
        &self,
        at: At<'_, PgConnection>,
        jobs: &[NewJob<'_>],
    ) -> Result<Vec<i64>> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let inner = self.inner();
        let waking = Waking::new(inner, &at, jobs.iter().map(|job| Topic::queue(job.queue)));
        let column = |of: fn(&NewJob<'_>) -> i64| jobs.iter().map(of).collect::<Vec<_>>();
        let optional = |of: fn(&NewJob<'_>) -> Option<i64>| jobs.iter().map(of).collect::<Vec<_>>();
        let arguments = || {
            inner
                .arguments()
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
                .add(&waking.along[..])
        };
        let rows = inner
            .run(at, &inner.statements.queue.insert, arguments)
            .await;
        let rows = waking.ended(rows)?;
        rows.iter().map(|row| get(row, 0)).collect()
    }
}

/// Whether the time counts from now on, and the time.
fn ready(job: &NewJob<'_>) -> (bool, i64) {
    match job.ready {
        Ready::Now => (true, 0),
        Ready::In(delay) => (true, delay),
        Ready::At(run_at) => (false, run_at),
    }
}
