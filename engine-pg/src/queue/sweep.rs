//! Sweeps, and what a claim sees to before it picks.

use alkstore::engine::{
    EXPIRED, FEW_EXPIRED, MAX_ATTEMPTS_EXCEEDED, MOST_LAPSED_PER_CLAIM, MOST_PER_STEP,
};

use crate::backend::Statement;
use crate::queue::{MOST_BYTES_PER_STEP, OF_QUEUE, bury};
use crate::schema::NOW;

const DOING: &str = "sweeping";

/// Ends some lapsed claims of queue `$2`, most overdue first, and moves expired jobs to dead if
/// they are few. What others hold locked they deal with.
pub(super) fn sweep(schema: &str) -> Statement {
    let now = "(SELECT now FROM clock)";
    let bury = bury(schema, "true");
    let one_more = FEW_EXPIRED + 1;
    let text = format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
         lapsed AS MATERIALIZED (
             SELECT id, CASE WHEN expires_at <= {now} THEN '{EXPIRED}'
                 WHEN attempts >= max_attempts THEN '{MAX_ATTEMPTS_EXCEEDED}' END AS last_error
             FROM {schema}.jobs
             WHERE {OF_QUEUE} AND claim_expires_at IS NOT NULL AND claim_expires_at < {now}
             ORDER BY claim_expires_at, id
             LIMIT {MOST_LAPSED_PER_CLAIM}
             FOR UPDATE SKIP LOCKED
         ),
         expired AS MATERIALIZED (
             SELECT id FROM {schema}.jobs
             WHERE {OF_QUEUE} AND expires_at IS NOT NULL AND expires_at <= {now}
                 AND id <> ALL (ARRAY(SELECT id FROM lapsed))
             ORDER BY expires_at, id
             LIMIT {one_more}
             FOR UPDATE SKIP LOCKED
         ),
         doomed (id, last_error) AS MATERIALIZED (
             SELECT id, '{EXPIRED}' FROM expired
             WHERE (SELECT count(*) FROM expired) <= {FEW_EXPIRED}
             UNION ALL
             SELECT id, last_error FROM lapsed WHERE last_error IS NOT NULL
         ),
         {bury},
         freed AS (
             UPDATE {schema}.jobs SET worker_id = NULL, claim_expires_at = NULL
             WHERE id = ANY (ARRAY(SELECT id FROM lapsed WHERE last_error IS NULL))
         )
         SELECT"
    );
    Statement::new(DOING, text)
}

/// Of rows with `id`, `at` and `size`, those that one step takes.
fn fitting(rows: &str) -> String {
    format!(
        "SELECT id FROM (
             SELECT id, sum(size) OVER (ORDER BY at, id ROWS UNBOUNDED PRECEDING) - size AS before
             FROM {rows}
         ) AS summed WHERE before < {MOST_BYTES_PER_STEP}"
    )
}

/// Moves expired jobs of queue `$2` to dead, deletes dead ones past their retention, as many as
/// one step takes, and returns how many those were and whether there may be more.
///
/// A statement does not see what it inserts: a job that is past its retention as it dies is not
/// inserted at all.
pub(super) fn sweep_step(schema: &str) -> Statement {
    let now = "(SELECT now FROM clock)";
    let bury = bury(schema, "dead_letter_retention_s IS DISTINCT FROM 0");
    let (first, first_dead) = (fitting("expired"), fitting("over"));
    let size = "pg_column_size(payload)::bigint AS size";
    let text = format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
         expired AS MATERIALIZED (
             SELECT id, expires_at AS at, {size} FROM {schema}.jobs
             WHERE {OF_QUEUE} AND expires_at IS NOT NULL AND expires_at <= {now}
             ORDER BY expires_at, id LIMIT {MOST_PER_STEP}
             FOR UPDATE SKIP LOCKED
         ),
         doomed (id, last_error) AS MATERIALIZED (
             SELECT id, '{EXPIRED}' FROM ({first}) AS first
         ),
         {bury},
         over AS MATERIALIZED (
             SELECT id, purge_at AS at, {size} FROM {schema}.dead_jobs
             WHERE queue = $2 AND purge_at IS NOT NULL AND purge_at <= {now}
             ORDER BY purge_at, id LIMIT {MOST_PER_STEP} - (SELECT count(*) FROM expired)
             FOR UPDATE SKIP LOCKED
         ),
         past AS MATERIALIZED ({first_dead}),
         purged AS (
             DELETE FROM {schema}.dead_jobs WHERE id = ANY (ARRAY(SELECT id FROM past))
         )
         SELECT (SELECT count(*) FROM doomed),
             (SELECT count(*) FROM past)
                 + (SELECT count(*) FROM gone WHERE dead_letter_retention_s = 0),
             (SELECT count(*) FROM expired) + (SELECT count(*) FROM over) >= {MOST_PER_STEP}
                 OR (SELECT count(*) FROM doomed) < (SELECT count(*) FROM expired)
                 OR (SELECT count(*) FROM past) < (SELECT count(*) FROM over)"
    );
    Statement::new(DOING, text)
}
