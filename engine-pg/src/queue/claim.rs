//! Claims, and what they see to by the way.

use std::cmp::Reverse;

use alkstore::engine::{At, ClaimRequest, EXPIRED, FEW_EXPIRED, MOST_EXPIRED_PER_CLAIM};
use alkstore::{Job, Result};
use sqlx::postgres::PgRow;

use crate::Postgres;
use crate::backend::Statement;
use crate::queue::{LIVE, NEAR_QUEUE, OF_QUEUE, bury, get, job, line};
use crate::schema::{NOW, sum_up};

const DOING: &str = "claiming";

/// Where [`claim_head`] says what is left to do, after the columns of [`LIVE`].
const REMAINS: usize = 17;

/// So many jobs get a worker each by their place in an array, which is as many looks into it.
const MOST_PLACED: i64 = 128;

/// The last of `$4`: how many jobs are wanted.
const WANTED: &str = "($4::bigint[])[cardinality($4)]";

/// The update that makes a claim for a worker.
fn take(schema: &str, worker: &str) -> String {
    let now = format!("(SELECT {NOW})");
    let deadline = sum_up(&now, "visibility_timeout_s");
    format!(
        "UPDATE {schema}.jobs SET attempts = attempts + 1, worker_id = {worker},
             claimed_at = {now}, claim_expires_at = {deadline}"
    )
}

/// Claims from the highest level of priority of those jobs of queue `$2` that were ready from the
/// start, as many as the last of `$4`, for the workers `$3`, of whom each gets as many as its
/// element of `$4` is above the one before.
///
/// The last column says what is left to do: 2 if something has to be swept first and 1 if there
/// are other jobs that can be claimed, then nothing is claimed; 1 also if too few were there and
/// there are lower levels, or expired jobs to sweep; 0 if nothing is. There is a row without a job
/// if there is none with one and something is left to do.
///
/// What is picked is an array, made once. Under another plan a subquery could be run, and lock,
/// once per row. The level begins at its first job: what is before that in the index is of jobs
/// that were claimed or are gone, and need not be passed again.
pub(super) fn claim_head(schema: &str) -> Statement {
    let (ready, others) = (line::ready(schema), line::others(schema));
    let take = take(
        schema,
        "CASE WHEN cardinality($4) = 1 THEN ($3::text[])[1] ELSE ($3::text[])[
             1 + width_bucket(array_position((SELECT ids FROM picked), id) - 1, $4)
         ] END",
    );
    let expired = format!(
        "SELECT FROM {schema}.jobs
         WHERE {NEAR_QUEUE} AND expires_at IS NOT NULL AND expires_at <= {NOW}"
    );
    let text = format!(
        "WITH overdue AS MATERIALIZED (
             SELECT WHERE EXISTS (
                 SELECT FROM {schema}.jobs
                 WHERE {NEAR_QUEUE} AND claim_expires_at IS NOT NULL AND claim_expires_at < {NOW}
             ) OR EXISTS ({expired}) AND NOT EXISTS ({expired} OFFSET {FEW_EXPIRED} LIMIT 1)
         ),
         others AS MATERIALIZED (SELECT WHERE {others}),
         top AS MATERIALIZED (
             SELECT priority, run_at, id FROM {ready}
             ORDER BY priority DESC, run_at, id LIMIT 1
         ),
         picked AS MATERIALIZED (SELECT ARRAY(
             SELECT id FROM {ready} AND queue = $2 AND priority = (SELECT priority FROM top)
                 AND (run_at, id) >= ((SELECT run_at FROM top), (SELECT id FROM top))
                 AND run_at <= {NOW}
                 AND NOT EXISTS (SELECT FROM overdue) AND NOT EXISTS (SELECT FROM others)
             ORDER BY run_at, id LIMIT {WANTED}
             FOR NO KEY UPDATE SKIP LOCKED
         ) AS ids),
         claimed AS (
             {take} WHERE id = ANY ((SELECT ids FROM picked)::bigint[]) RETURNING {LIVE}
         ),
         remaining AS MATERIALIZED (
             SELECT CASE WHEN EXISTS (SELECT FROM overdue) THEN 2
                 WHEN EXISTS (SELECT FROM others) THEN 1
                 WHEN (SELECT count(*) FROM claimed) < {WANTED} AND (
                     EXISTS (SELECT FROM {ready} AND priority < (SELECT priority FROM top))
                     OR EXISTS ({expired})
                 ) THEN 1
                 ELSE 0 END AS remains
         )
         SELECT claimed.*, remains FROM remaining LEFT JOIN claimed ON true
         WHERE claimed.id IS NOT NULL OR remains > 0"
    );
    Statement::new(DOING, text)
}

/// Claims as [`claim_head`], from all jobs, whatever should be swept; moves expired jobs to dead
/// where that leaves fewer than are wanted.
///
/// Of those that could be claimed it locks, one by one, as many as are wanted.
pub(super) fn claim(schema: &str) -> Statement {
    let candidates = line::candidates(schema, WANTED);
    let take = take(schema, "($3::text[])[1 + width_bucket(ordinal - 1, $4)]");
    let bury = bury(schema, "true");
    let text = format!(
        "WITH RECURSIVE clock AS MATERIALIZED (SELECT {NOW} AS now),
         {candidates},
         picked AS MATERIALIZED (
             SELECT locked.* FROM candidates CROSS JOIN LATERAL (
                 SELECT id, priority, run_at FROM {schema}.jobs
                 WHERE id = candidates.id AND queue = $2 AND claim_expires_at IS NULL
                     AND run_at <= {NOW} AND (expires_at IS NULL OR expires_at > {NOW})
                 FOR NO KEY UPDATE SKIP LOCKED
             ) AS locked LIMIT {WANTED}
         ),
         doomed (id, last_error) AS MATERIALIZED (
             SELECT id, '{EXPIRED}' FROM (
                 SELECT id FROM {schema}.jobs
                 WHERE {OF_QUEUE} AND expires_at IS NOT NULL AND expires_at <= {NOW}
                     AND (SELECT count(*) FROM picked) < {WANTED}
                 ORDER BY expires_at, id
                 LIMIT {MOST_EXPIRED_PER_CLAIM}
                 FOR UPDATE SKIP LOCKED
             ) AS expired
         ),
         {bury}
         {take}
         FROM unnest(ARRAY(SELECT id FROM picked ORDER BY priority DESC, run_at, id))
             WITH ORDINALITY AS pick (picked_id, ordinal)
         -- The second condition is what no plan passes by: with the first alone, one that was
         -- made while the table was empty reads all of it.
         WHERE id = picked_id AND id = ANY (ARRAY(SELECT id FROM picked))
         RETURNING {LIVE}"
    );
    Statement::new(DOING, text)
}

/// Where a job stands in the order of claims.
fn place(job: &Job) -> (Reverse<i64>, i64, i64) {
    (Reverse(job.priority), job.run_at, job.id)
}

/// The jobs that a statement claimed, in the order of claims.
fn jobs_of(rows: &[PgRow]) -> Result<Vec<Job>> {
    let mut jobs = Vec::with_capacity(rows.len());
    for row in rows {
        if get::<Option<i64>>(row, 0)?.is_some() {
            jobs.push(job(row)?);
        }
    }
    jobs.sort_unstable_by_key(place);
    Ok(jobs)
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
                // What came between two statements may be first of all.
                claimed[at].sort_unstable_by_key(place);
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
        let first = bounds.partition_point(|bound| *bound <= MOST_PLACED).max(1);
        let statements = &self.inner().statements.queue;
        let head = &statements.claim_head;
        let rows = self
            .pick(head, queue, &workers[..first], &bounds[..first])
            .await?;
        let remains = rows.first().map_or(Ok(0), |row| get::<i32>(row, REMAINS))?;
        let mut jobs = jobs_of(&rows)?;
        if remains == 2 {
            self.sweep(queue).await?;
        }
        let claimed = i64::try_from(jobs.len()).unwrap_or(i64::MAX);
        if remains > 0 || first < bounds.len() && claimed >= bounds[first - 1] {
            let more = |bound: &i64| (bound - claimed).max(0);
            let bounds: Vec<_> = bounds.iter().map(more).collect();
            match self.pick(&statements.claim, queue, workers, &bounds).await {
                // After those of the head: so they were given to the workers.
                Ok(rows) => jobs.extend(jobs_of(&rows)?),
                Err(error) if jobs.is_empty() => return Err(error),
                // What is claimed has to be told, or nobody works on it until its claim lapses.
                Err(error) => tracing::warn!(%error, "fewer jobs were claimed than are there"),
            }
        }
        Ok(jobs)
    }

    async fn pick(
        &self,
        statement: &Statement,
        queue: &str,
        workers: &[&str],
        bounds: &[i64],
    ) -> Result<Vec<PgRow>> {
        let inner = self.inner();
        let arguments = || inner.arguments().add(queue).add(workers).add(bounds);
        inner.run(At::Auto, statement, arguments).await
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
