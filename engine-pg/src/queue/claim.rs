//! Claims, and what they sweep before they pick.

use std::cmp::Reverse;

use alkstore::engine::{At, ClaimRequest, EXPIRED, MAX_ATTEMPTS_EXCEEDED, MOST_SWEPT_PER_CLAIM};
use alkstore::{Job, Result};
use sqlx::postgres::PgRow;

use crate::Postgres;
use crate::backend::Statement;
use crate::queue::{LIVE, NEAR_QUEUE, OF_QUEUE, bury, get, job};
use crate::schema::{NOW, sum};

/// Claims the jobs at the head of queue `$2`, as many as the last of `$4`, for the workers
/// `$3`, of whom each gets as many as its element of `$4` is above the one before.
///
/// If something is to be swept first and `$5` asks to look, nothing is claimed and one row
/// without a job says so.
///
/// The pick goes down the priorities that pending jobs have, one look into the index for each,
/// and takes the head of each level: jobs that are not ready stand in nobody's way. It is made
/// once, into an array. A queue whose number in the indexes is the same adds a look or a sweep
/// that finds nothing. Under another plan a subquery could be run, and lock, once per row.
pub(super) fn claim(schema: &str) -> Statement {
    let now = "(SELECT now FROM clock)";
    let deadline = sum(now, "visibility_timeout_s");
    let pending = format!("{schema}.jobs WHERE {NEAR_QUEUE} AND claim_expires_at IS NULL");
    let text = format!(
        "WITH RECURSIVE clock AS MATERIALIZED (SELECT {NOW} AS now),
         overdue AS MATERIALIZED (
             SELECT FROM clock WHERE $5 AND (
                 EXISTS (
                     SELECT FROM {schema}.jobs
                     WHERE {NEAR_QUEUE} AND claim_expires_at IS NOT NULL
                         AND claim_expires_at < {now}
                 ) OR EXISTS (
                     SELECT FROM {schema}.jobs
                     WHERE {NEAR_QUEUE} AND expires_at IS NOT NULL AND expires_at <= {now}
                 )
             )
         ),
         levels (level) AS (
             SELECT level FROM (
                 SELECT priority AS level FROM {pending} ORDER BY priority DESC LIMIT 1
             ) AS highest
             WHERE NOT EXISTS (SELECT FROM overdue)
             UNION ALL
             SELECT below.level FROM levels CROSS JOIN LATERAL (
                 SELECT priority AS level FROM {pending} AND priority < levels.level
                 ORDER BY priority DESC LIMIT 1
             ) AS below
         ),
         picked AS MATERIALIZED (
             SELECT head.* FROM levels CROSS JOIN LATERAL (
                 SELECT id, priority, run_at FROM {pending}
                     AND queue = $2 AND priority = levels.level AND run_at <= {now}
                     AND (expires_at IS NULL OR expires_at > {now})
                 ORDER BY run_at, id
                 LIMIT ($4::bigint[])[cardinality($4)]
                 FOR UPDATE SKIP LOCKED
             ) AS head
             LIMIT ($4::bigint[])[cardinality($4)]
         ),
         claimed AS (
             UPDATE {schema}.jobs SET
                 attempts = attempts + 1,
                 worker_id = ($3::text[])[1 + width_bucket(ordinal - 1, $4)],
                 claimed_at = {now},
                 claim_expires_at = {deadline}
             FROM unnest(ARRAY(SELECT id FROM picked ORDER BY priority DESC, run_at, id))
                 WITH ORDINALITY AS pick (picked_id, ordinal)
             -- The second condition is what no plan passes by: with the first alone, one that was
             -- made while the table was empty reads all of it.
             WHERE id = picked_id AND id = ANY (ARRAY(SELECT id FROM picked))
             RETURNING {LIVE}
         )
         SELECT claimed.* FROM (SELECT) AS always LEFT JOIN claimed ON true
         WHERE claimed.id IS NOT NULL OR EXISTS (SELECT FROM overdue)"
    );
    Statement::new("claiming", text)
}

/// Moves some expired jobs of queue `$2` to dead and ends as many lapsed claims, most overdue
/// first. What others hold locked they deal with.
pub(super) fn sweep(schema: &str) -> Statement {
    let now = "(SELECT now FROM clock)";
    let bury = bury(schema, "true");
    let text = format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
         expired AS MATERIALIZED (
             SELECT id FROM {schema}.jobs
             WHERE {OF_QUEUE} AND expires_at IS NOT NULL AND expires_at <= {now}
             ORDER BY expires_at, id
             LIMIT {MOST_SWEPT_PER_CLAIM}
             FOR UPDATE SKIP LOCKED
         ),
         lapsed AS MATERIALIZED (
             SELECT id, attempts >= max_attempts AS spent FROM {schema}.jobs
             WHERE {OF_QUEUE} AND claim_expires_at IS NOT NULL AND claim_expires_at < {now}
                 AND (expires_at IS NULL OR expires_at > {now})
             ORDER BY claim_expires_at, id
             LIMIT {MOST_SWEPT_PER_CLAIM}
             FOR UPDATE SKIP LOCKED
         ),
         doomed (id, last_error) AS MATERIALIZED (
             SELECT id, '{EXPIRED}' FROM expired
             UNION ALL
             SELECT id, '{MAX_ATTEMPTS_EXCEEDED}' FROM lapsed WHERE spent
         ),
         {bury},
         freed AS (
             UPDATE {schema}.jobs SET worker_id = NULL, claim_expires_at = NULL
             WHERE id = ANY (ARRAY(SELECT id FROM lapsed WHERE NOT spent))
         )
         SELECT"
    );
    Statement::new("sweeping", text)
}

/// Moves all expired jobs of queue `$2` to dead, deletes all dead ones past their retention, and
/// returns how many those were.
///
/// A statement does not see what it inserts: a job that is past its retention as it dies is not
/// inserted at all.
pub(super) fn sweep_all(schema: &str) -> Statement {
    let now = "(SELECT now FROM clock)";
    let bury = bury(schema, "dead_letter_retention_s IS DISTINCT FROM 0");
    let text = format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
         doomed (id, last_error) AS MATERIALIZED (
             SELECT id, '{EXPIRED}' FROM {schema}.jobs
             WHERE {OF_QUEUE} AND expires_at IS NOT NULL AND expires_at <= {now}
             ORDER BY expires_at, id
             FOR UPDATE SKIP LOCKED
         ),
         {bury},
         past AS MATERIALIZED (
             SELECT id FROM {schema}.dead_jobs
             WHERE queue = $2 AND purge_at IS NOT NULL AND purge_at <= {now}
             ORDER BY purge_at, id
             FOR UPDATE SKIP LOCKED
         ),
         purged AS (
             DELETE FROM {schema}.dead_jobs WHERE id = ANY (ARRAY(SELECT id FROM past))
         )
         SELECT (SELECT count(*) FROM doomed),
             (SELECT count(*) FROM past)
                 + (SELECT count(*) FROM gone WHERE dead_letter_retention_s = 0)"
    );
    Statement::new("sweeping", text)
}

impl Postgres {
    pub(crate) async fn claim(&self, requests: &[ClaimRequest<'_>]) -> Result<Vec<Vec<Job>>> {
        let mut claimed: Vec<_> = requests.iter().map(|_| Vec::new()).collect();
        let mut served = vec![false; requests.len()];
        for (first, request) in requests.iter().enumerate() {
            if served[first] {
                continue;
            }
            // Requests for one queue are one statement, which serves them in their order.
            let alike = (first..requests.len()).filter(|at| requests[*at].queue == request.queue);
            let alike: Vec<_> = alike.inspect(|at| served[*at] = true).collect();
            let workers: Vec<_> = alike.iter().map(|at| requests[*at].worker).collect();
            let limits: Vec<_> = alike.iter().map(|at| requests[*at].limit).collect();
            let mut jobs = self
                .claim_from(request.queue, &workers, &limits)
                .await?
                .into_iter();
            for (at, limit) in std::iter::zip(alike, limits) {
                let most = usize::try_from(limit).unwrap_or(usize::MAX);
                claimed[at].extend(jobs.by_ref().take(most));
            }
        }
        Ok(claimed)
    }

    async fn claim_from(&self, queue: &str, workers: &[&str], limits: &[i64]) -> Result<Vec<Job>> {
        let up_to = |sum: &mut i64, limit: &i64| {
            *sum = sum.saturating_add(*limit);
            Some(*sum)
        };
        let bounds: Vec<_> = limits.iter().scan(0, up_to).collect();
        let mut rows = self.pick(queue, workers, &bounds, true).await?;
        if let [row] = &rows[..]
            && get::<Option<i64>>(row, 0)?.is_none()
        {
            self.sweep(queue).await?;
            rows = self.pick(queue, workers, &bounds, false).await?;
        }
        let mut jobs = rows.iter().map(job).collect::<Result<Vec<_>>>()?;
        jobs.sort_unstable_by_key(|job| (Reverse(job.priority), job.run_at, job.id));
        Ok(jobs)
    }

    async fn pick(
        &self,
        queue: &str,
        workers: &[&str],
        bounds: &[i64],
        look: bool,
    ) -> Result<Vec<PgRow>> {
        let inner = self.inner();
        let arguments = || {
            inner
                .arguments()
                .add(queue)
                .add(workers)
                .add(bounds)
                .add(look)
        };
        inner
            .run(At::Auto, &inner.statements.queue.claim, arguments)
            .await
    }

    async fn sweep(&self, queue: &str) -> Result<()> {
        let inner = self.inner();
        let arguments = || inner.arguments().add(queue);
        inner
            .run(At::Auto, &inner.statements.queue.sweep, arguments)
            .await
            .map(drop)
    }
}
