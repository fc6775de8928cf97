//! Claims, and what they sweep before they pick.

use std::cmp::Reverse;

use alkstore::engine::{At, ClaimRequest, EXPIRED, MAX_ATTEMPTS_EXCEEDED, MOST_SWEPT_PER_CLAIM};
use alkstore::{Job, Result};
use sqlx::postgres::PgRow;

use crate::Postgres;
use crate::backend::Statement;
use crate::queue::{LIVE, NEAR_QUEUE, OF_QUEUE, bury, get, job};
use crate::schema::{NOW, sum_up};

const DOING: &str = "claiming";

/// Where [`claim_head`] says what is left to do, after the columns of [`LIVE`].
const REMAINS: usize = 17;

/// So many jobs get a worker each by their place in an array, which is as many looks into it.
const MOST_PLACED: i64 = 128;

/// The last of `$4`: how many jobs are wanted.
const WANTED: &str = "($4::bigint[])[cardinality($4)]";

/// The pending jobs of queue `$2`, and of queues whose number in the indexes is the same.
fn pending(schema: &str) -> String {
    format!("{schema}.jobs WHERE {NEAR_QUEUE} AND claim_expires_at IS NULL")
}

/// The first of them, which tells the highest level of priority, and where in the index its jobs
/// begin: what is before is of jobs that were claimed or are gone, and need not be passed again.
fn first(schema: &str, condition: &str) -> String {
    let pending = pending(schema);
    format!(
        "SELECT priority, run_at, id FROM {pending} AND {condition}
         ORDER BY priority DESC, run_at, id LIMIT 1"
    )
}

/// What can be claimed of the level whose first job is a row of `level`, locked, in the order in
/// which it is to be claimed. Jobs that are not ready come last and stand in nobody's way.
fn ready(schema: &str, columns: &str, level: fn(&str) -> String, condition: &str) -> String {
    let pending = pending(schema);
    let (priority, run_at, id) = (level("priority"), level("run_at"), level("id"));
    format!(
        "SELECT {columns} FROM {pending} AND queue = $2 AND priority = {priority}
             AND (run_at, id) >= ({run_at}, {id}) AND run_at <= {NOW}
             AND (expires_at IS NULL OR expires_at > {NOW}) AND {condition}
         ORDER BY run_at, id LIMIT {WANTED}
         FOR NO KEY UPDATE SKIP LOCKED"
    )
}

/// The update that makes a claim for a worker.
fn take(schema: &str, worker: &str) -> String {
    let now = format!("(SELECT {NOW})");
    let deadline = sum_up(&now, "visibility_timeout_s");
    format!(
        "UPDATE {schema}.jobs SET attempts = attempts + 1, worker_id = {worker},
             claimed_at = {now}, claim_expires_at = {deadline}"
    )
}

/// Claims from the highest level of priority of queue `$2`, as many jobs as the last of `$4`, for
/// the workers `$3`, of whom each gets as many as its element of `$4` is above the one before.
///
/// The last column says what is left to do: 2 if something has to be swept first, then nothing is
/// claimed; 1 if too few were there and jobs of lower levels may be; 0 if nothing is. There is a
/// row without a job if there is none with one and something is left to do.
///
/// What is picked is an array, made once. Under another plan a subquery could be run, and lock,
/// once per row.
pub(super) fn claim_head(schema: &str) -> Statement {
    let (pending, first) = (pending(schema), first(schema, "true"));
    let top = |column: &str| format!("(SELECT {column} FROM top)");
    let ready = ready(schema, "id", top, "NOT EXISTS (SELECT FROM overdue)");
    let take = take(
        schema,
        "CASE WHEN cardinality($4) = 1 THEN ($3::text[])[1] ELSE ($3::text[])[
             1 + width_bucket(array_position((SELECT ids FROM picked), id) - 1, $4)
         ] END",
    );
    let text = format!(
        "WITH overdue AS MATERIALIZED (
             SELECT WHERE EXISTS (
                 SELECT FROM {schema}.jobs
                 WHERE {NEAR_QUEUE} AND claim_expires_at IS NOT NULL AND claim_expires_at < {NOW}
             ) OR EXISTS (
                 SELECT FROM {schema}.jobs
                 WHERE {NEAR_QUEUE} AND expires_at IS NOT NULL AND expires_at <= {NOW}
             )
         ),
         top AS MATERIALIZED ({first}),
         picked AS MATERIALIZED (SELECT ARRAY({ready}) AS ids),
         claimed AS (
             {take} WHERE id = ANY ((SELECT ids FROM picked)::bigint[]) RETURNING {LIVE}
         ),
         remaining AS MATERIALIZED (
             SELECT CASE WHEN EXISTS (SELECT FROM overdue) THEN 2
                 WHEN (SELECT count(*) FROM claimed) < {WANTED}
                     AND EXISTS (SELECT FROM {pending} AND priority < (SELECT priority FROM top))
                     THEN 1
                 ELSE 0 END AS remains
         )
         SELECT claimed.*, remains FROM remaining LEFT JOIN claimed ON true
         WHERE claimed.id IS NOT NULL OR remains > 0"
    );
    Statement::new(DOING, text)
}

/// Claims as [`claim_head`], from all levels, whatever should be swept.
///
/// The pick goes down the priorities that pending jobs have, one look into the index for each,
/// and takes the head of each level.
pub(super) fn claim(schema: &str) -> Statement {
    let (highest, below) = (
        first(schema, "true"),
        first(schema, "priority < levels.priority"),
    );
    let level = |column: &str| format!("levels.{column}");
    let ready = ready(schema, "id, priority, run_at", level, "true");
    let take = take(schema, "($3::text[])[1 + width_bucket(ordinal - 1, $4)]");
    let text = format!(
        "WITH RECURSIVE levels AS (
             ({highest})
             UNION ALL
             SELECT below.* FROM levels CROSS JOIN LATERAL ({below}) AS below
         ),
         picked AS MATERIALIZED (
             SELECT head.* FROM levels CROSS JOIN LATERAL ({ready}) AS head LIMIT {WANTED}
         )
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
