//! Queues in SQL.

mod claim;
mod finish;
mod insert;
mod line;
mod sweep;

use alkstore::engine::{At, ClaimEnd, ClaimId, ClaimRequest, NewJob, Queues, Results, SweepStep};
use alkstore::{Job, JobState, Result, Swept};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::Postgres;
use crate::backend::{Arguments, Statement, patience};
use crate::error::failed;
use crate::schema::{CLOCK, sum};

/// The statements of this mechanism.
#[derive(Debug)]
pub(crate) struct Statements {
    insert_one: Statement,
    insert_alike: Statement,
    pub(crate) insert: Statement,
    pub(crate) claim_head: Statement,
    pub(crate) claim: Statement,
    pub(crate) sweep: Statement,
    pub(crate) ack: Statement,
    pub(crate) ack_alike: Statement,
    pub(crate) ack_all: Statement,
    pub(crate) finish: Statement,
    extend: Statement,
    release: Statement,
    cancel: Statement,
    find: Statement,
    sweep_step: Statement,
}

impl Statements {
    pub(crate) fn new(schema: &str, channel: &str) -> Self {
        Self {
            insert_one: insert::insert_one(schema, channel),
            insert_alike: insert::insert_alike(schema, channel),
            insert: insert::insert(schema, channel),
            claim_head: claim::claim_head(schema),
            claim: claim::claim(schema),
            sweep: sweep::sweep(schema),
            ack: finish::ack(schema),
            ack_alike: finish::ack_alike(schema),
            ack_all: finish::ack_all(schema),
            finish: finish::finish(schema, channel),
            extend: extend(schema),
            release: finish::release(schema),
            cancel: cancel(schema),
            find: find(schema),
            sweep_step: sweep::sweep_step(schema),
        }
    }
}

/// The most bytes of payloads that one step of a sweep or a trim takes, unless its first row alone
/// has more.
pub(crate) const MOST_BYTES_PER_STEP: i64 = 8 << 20;

/// What is read of a live job, in this order; [`job`] reads it.
pub(crate) const LIVE: &str = "id, queue, payload, priority, run_at, attempts, max_attempts, \
     worker_id, claimed_at, claim_expires_at, created_at, expires_at, visibility_timeout_s, \
     backoff_base_s, dead_letter_retention_s, last_error, NULL::bigint AS died_at";

/// The same of a dead one.
const DEAD: &str = "id, queue, payload, priority, run_at, attempts, max_attempts, \
     worker_id, claimed_at, NULL::bigint AS claim_expires_at, created_at, expires_at, \
     visibility_timeout_s, backoff_base_s, dead_letter_retention_s, last_error, died_at";

/// What a dead job keeps of a live one.
const KEPT: &str = "id, queue, payload, priority, run_at, attempts, max_attempts, worker_id, \
     claimed_at, created_at, expires_at, visibility_timeout_s, backoff_base_s, \
     dead_letter_retention_s";

/// SQL that finds the jobs of the queue `$2` in the indexes, which begin with a number for the
/// queue: a tenth of an enqueue's work would be to compare and move names in them.
///
/// Two queues can have the same number. Where only a job of the queue will do, [`OF_QUEUE`]
/// asks for the name too, but it must not stand where the first row is all that is wanted: the
/// server takes the two for independent, expects hardly any row, and may sort all there are.
pub(crate) const NEAR_QUEUE: &str =
    "hashtextextended(queue, 0) = hashtextextended($2::text COLLATE \"C\", 0)";

/// [`NEAR_QUEUE`], and in the queue.
pub(crate) const OF_QUEUE: &str = "hashtextextended(queue, 0) = \
     hashtextextended($2::text COLLATE \"C\", 0) AND queue = $2";

/// The subqueries `gone` and `buried`: jobs of the subquery `doomed (id, last_error)` go from
/// the live to the dead, those that are `kept`.
pub(crate) fn bury(schema: &str, kept: &str) -> String {
    let purge_at = sum("(SELECT now FROM clock)", "dead_letter_retention_s");
    format!(
        "gone AS (
             DELETE FROM {schema}.jobs
             WHERE id = ANY (ARRAY(SELECT id FROM doomed))
             RETURNING {KEPT}
         ),
         buried AS (
             INSERT INTO {schema}.dead_jobs ({KEPT}, died_at, purge_at, last_error)
             SELECT {KEPT}, (SELECT now FROM clock), {purge_at}, doomed.last_error
             FROM gone JOIN doomed USING (id) WHERE {kept}
         )"
    )
}

/// Whether a job's claim holds at `now`.
///
/// Written so that the primary key is the only way to the job: the index of claims' deadlines
/// fits the plain comparison too, and a plan from when it was empty would walk past every claim
/// of the queue.
pub(crate) fn holds(now: &str) -> String {
    format!("coalesce(claim_expires_at, (-9223372036854775808)::bigint) >= {now}")
}

/// The deadline counts from when the row is had: who waited for it would get a claim that has
/// lapsed.
fn extend(schema: &str) -> Statement {
    let holds = holds("clock.now");
    let deadline = sum("clock.now", "$5");
    let patience = patience(6);
    let claim = "id = $2 AND queue = $3 AND attempts = $4";
    let text = format!(
        "WITH held AS MATERIALIZED (
             SELECT id FROM {schema}.jobs WHERE {claim} AND {patience} FOR UPDATE
         ),
         clock AS MATERIALIZED (SELECT {CLOCK} AS now FROM held)
         UPDATE {schema}.jobs SET claim_expires_at = {deadline}
         FROM clock WHERE {claim} AND {holds}
         RETURNING id"
    );
    Statement::waiting("extending a claim", text)
}

fn cancel(schema: &str) -> Statement {
    let patience = patience(3);
    let text = format!(
        "DELETE FROM {schema}.jobs WHERE id = $1 AND queue = $2 AND {patience} RETURNING id"
    );
    Statement::waiting("cancelling a job", text)
}

fn find(schema: &str) -> Statement {
    let text = format!(
        "SELECT {LIVE} FROM {schema}.jobs WHERE id = $1 AND queue = $2
         UNION ALL
         SELECT {DEAD} FROM {schema}.dead_jobs WHERE id = $1 AND queue = $2"
    );
    Statement::reading("reading a job", text)
}

impl Queues for Postgres {
    async fn insert_jobs(
        &self,
        at: At<'_, PgConnection>,
        jobs: &[NewJob<'_>],
    ) -> Result<Results<i64>> {
        self.insert(at, jobs).await
    }

    async fn claim_jobs(&self, requests: &[ClaimRequest<'_>]) -> Result<Vec<Vec<Job>>> {
        self.claim(requests).await
    }

    async fn finish_claims(
        &self,
        at: At<'_, PgConnection>,
        ends: &[ClaimEnd<'_>],
    ) -> Result<Results<bool>> {
        self.finish(at, ends).await
    }

    async fn extend_claim(&self, claim: &ClaimId<'_>, extend: i64) -> Result<bool> {
        let inner = self.inner();
        let arguments = || {
            inner
                .arguments()
                .add(claim.id)
                .add(claim.queue)
                .add(claim.attempt)
                .add(extend)
        };
        let rows = inner
            .run(At::Auto, &inner.statements.queue.extend, arguments)
            .await?;
        Ok(!rows.is_empty())
    }

    async fn cancel_job(&self, queue: &str, id: i64) -> Result<bool> {
        let inner = self.inner();
        let arguments = || Arguments::default().add(id).add(queue);
        let rows = inner
            .run(At::Auto, &inner.statements.queue.cancel, arguments)
            .await?;
        Ok(!rows.is_empty())
    }

    async fn find_job(
        &self,
        at: At<'_, PgConnection>,
        queue: &str,
        id: i64,
    ) -> Result<Option<Job>> {
        let inner = self.inner();
        let arguments = || Arguments::default().add(id).add(queue);
        let rows = inner
            .run(at, &inner.statements.queue.find, arguments)
            .await?;
        rows.first().map(job).transpose()
    }

    async fn sweep_jobs(&self, queue: &str) -> Result<SweepStep> {
        let inner = self.inner();
        let arguments = || inner.arguments().add(queue);
        let rows = inner
            .run(At::Auto, &inner.statements.queue.sweep_step, arguments)
            .await?;
        let swept = Swept::new(count(rows.first(), 0)?, count(rows.first(), 1)?);
        let more = rows.first().map_or(Ok(false), |row| get(row, 2))?;
        Ok(SweepStep { swept, more })
    }
}

const READING: &str = "reading what the server answered";

/// A job from what a statement returned, columns as in [`LIVE`].
pub(crate) fn job(row: &PgRow) -> Result<Job> {
    decode_job(row).map_err(|error| failed(READING, error))
}

fn decode_job(row: &PgRow) -> sqlx::Result<Job> {
    let claim_expires_at: Option<i64> = row.try_get(9)?;
    let died_at: Option<i64> = row.try_get(16)?;
    let state = match (died_at, claim_expires_at) {
        (Some(_), _) => JobState::Dead,
        (None, Some(_)) => JobState::Processing,
        (None, None) => JobState::Pending,
    };
    let queue: String = row.try_get(1)?;
    let mut job = Job::new(row.try_get(0)?, queue, row.try_get(2)?);
    job.state = state;
    job.priority = row.try_get(3)?;
    job.run_at = row.try_get(4)?;
    job.attempts = row.try_get(5)?;
    job.max_attempts = row.try_get(6)?;
    job.worker_id = row.try_get(7)?;
    job.claimed_at = row.try_get(8)?;
    job.claim_expires_at = claim_expires_at;
    job.created_at = row.try_get(10)?;
    job.expires_at = row.try_get(11)?;
    job.visibility_timeout_s = row.try_get(12)?;
    job.backoff_base_s = row.try_get(13)?;
    job.dead_letter_retention_s = row.try_get(14)?;
    job.last_error = row.try_get(15)?;
    job.died_at = died_at;
    Ok(job)
}

/// A value from a row that a statement returned.
pub(crate) fn get<T>(row: &PgRow, index: usize) -> Result<T>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    row.try_get(index).map_err(|error| failed(READING, error))
}

/// A count from a statement that returns one row.
pub(crate) fn count(row: Option<&PgRow>, index: usize) -> Result<u64> {
    let count: i64 = row.map_or(Ok(0), |row| get(row, index))?;
    Ok(u64::try_from(count).unwrap_or(0))
}
