//! Jobs.

use std::time::{Duration, Instant};

use alkstore::engine::{
    At, ClaimEnd, ClaimId, ClaimRequest, NewJob, Queues, Results, SweepStep, Topic,
};
use alkstore::{Job, JobState, Result};
use sqlx::SqliteConnection;

use crate::Sqlite;
use crate::error::Answer;
use crate::exec::{Awaiting, Exec, Inline, Row, Value, ready};

#[cfg(test)]
mod tests;

// What a job and a dead job have in common.
macro_rules! carried {
    () => {
        "id, queue, priority, run_at, attempts, max_attempts, worker_id, claimed_at, \
         created_at, expires_at, visibility_timeout_s, backoff_base_s, \
         dead_letter_retention_s"
    };
}

// The sum saturates, as every sum of times does.
macro_rules! bury {
    ($error:literal, $which:literal) => {
        concat!(
            "INSERT INTO __alkstore_dead_jobs (",
            carried!(),
            ", last_error, payload, died_at, purge_at) SELECT ",
            carried!(),
            ", ",
            $error,
            ", payload, ?2, CASE
                WHEN dead_letter_retention_s > 9223372036854775807 - ?2 THEN 9223372036854775807
                ELSE ?2 + dead_letter_retention_s END
             FROM __alkstore_jobs WHERE ",
            $which
        )
    };
}

// These use the macros above.
#[macro_use]
mod line;
mod claim;
mod finish;
mod insert;
mod sweep;

pub(crate) use claim::claim;
pub(crate) use finish::{finish, is_again, release};
pub(crate) use insert::insert;
pub(crate) use sweep::fitting;

const EXTEND: &str = "UPDATE __alkstore_jobs SET claim_expires_at = ?5
     WHERE id = ?1 AND queue = ?2 AND attempts = ?3 AND claim_expires_at >= ?4";

const CANCEL: &str = "DELETE FROM __alkstore_jobs WHERE id = ?1 AND queue = ?2";
const FIND: &str = concat!(
    "SELECT ",
    carried!(),
    ", last_error, payload, claim_expires_at, NULL FROM __alkstore_jobs WHERE id = ?1 AND queue = ?2
     UNION ALL SELECT ",
    carried!(),
    ", last_error, payload, NULL, died_at FROM __alkstore_dead_jobs WHERE id = ?1 AND queue = ?2"
);

impl Queues for Sqlite {
    async fn insert_jobs(
        &self,
        at: At<'_, SqliteConnection>,
        jobs: &[NewJob<'_>],
    ) -> Result<Results<i64>> {
        const DOING: &str = "enqueueing";
        if jobs.is_empty() {
            return Ok(Results::new());
        }
        match at {
            At::Auto => {
                let insert = |x: &mut Inline<'_>, now| ready(insert(x, now, jobs));
                let touched = |_: &Results<i64>, wake: &mut dyn FnMut(Topic<'_>)| {
                    queues(jobs).for_each(|queue| wake(Topic::queue(queue)));
                };
                self.inner().write(DOING, insert, touched).await
            }
            At::In(conn) => {
                let insert = async |x: &mut Awaiting<'_>, now| insert(x, now, jobs).await;
                // One statement is whole by itself.
                if jobs.len() == 1 {
                    self.inner().join(DOING, conn, insert).await
                } else {
                    self.inner().join_whole(DOING, conn, insert).await
                }
            }
        }
    }

    async fn claim_jobs(&self, requests: &[ClaimRequest<'_>]) -> Result<Vec<Vec<Job>>> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let claim = |x: &mut Inline<'_>, now| ready(claim(x, now, requests));
        self.inner().write("claiming", claim, |_, _| {}).await
    }

    async fn finish_claims(
        &self,
        at: At<'_, SqliteConnection>,
        ends: &[ClaimEnd<'_>],
    ) -> Result<Results<bool>> {
        const DOING: &str = "ending a claim";
        match (at, ends) {
            (_, []) => Ok(Results::new()),
            (At::Auto, ends) => {
                let finish = |x: &mut Inline<'_>, now| ready(finish(x, now, ends));
                let touched = |landed: &Results<bool>, wake: &mut dyn FnMut(Topic<'_>)| {
                    let back = ends
                        .iter()
                        .zip(landed)
                        .filter(|(end, landed)| **landed && is_again(end));
                    back.for_each(|(end, _)| wake(Topic::queue(end.claim.queue)));
                };
                self.inner().write(DOING, finish, touched).await
            }
            // As one insert is.
            (At::In(conn), [end]) if !is_again(end) => {
                self.inner()
                    .join(DOING, conn, async |x, now| finish(x, now, ends).await)
                    .await
            }
            (At::In(conn), ends) => {
                let finish = async |x: &mut Awaiting<'_>, now| finish(x, now, ends).await;
                self.inner().join_whole(DOING, conn, finish).await
            }
        }
    }

    async fn extend_claim(&self, claim: &ClaimId<'_>, extend: i64) -> Result<bool> {
        let extend = |x: &mut Inline<'_>, now: i64| {
            let until = Value::Int(now.saturating_add(extend));
            let [id, queue, attempt, now] = held(claim, now);
            ready(x.execute(EXTEND, &[id, queue, attempt, now, until]))
        };
        let done = self
            .inner()
            .write("extending a claim", extend, |_, _| {})
            .await?;
        Ok(done.changes > 0)
    }

    async fn cancel_job(&self, queue: &str, id: i64) -> Result<bool> {
        let values = [Value::Int(id), Value::Text(queue)];
        let cancel = |x: &mut Inline<'_>, _| ready(x.execute(CANCEL, &values));
        let done = self.inner().write("cancelling", cancel, |_, _| {}).await?;
        Ok(done.changes > 0)
    }

    async fn find_job(
        &self,
        at: At<'_, SqliteConnection>,
        queue: &str,
        id: i64,
    ) -> Result<Option<Job>> {
        const DOING: &str = "reading a job";
        let values = [Value::Int(id), Value::Text(queue)];
        let mut found = match at {
            At::Auto => {
                let find = |x: &mut Inline<'_>, _| ready(x.rows(FIND, &values, job));
                self.inner().read(DOING, find).await?
            }
            At::In(conn) => {
                let find = async |x: &mut Awaiting<'_>, _| x.rows(FIND, &values, job).await;
                self.inner().join(DOING, conn, find).await?
            }
        };
        Ok(found.pop())
    }

    async fn sweep_jobs(&self, queue: &str) -> Result<SweepStep> {
        let sweep = |x: &mut Inline<'_>, now| ready(sweep::sweep(x, queue, now));
        let begun = Instant::now();
        let step = self.inner().write("sweeping", sweep, |_, _| {}).await?;
        if step.more {
            let_others_pass(begun).await;
        }
        Ok(step)
    }
}

/// Leaves the writer alone for as long as it was held: another process that waits for it looks
/// again at times, and finds it free at every second look.
pub(crate) async fn let_others_pass(begun: Instant) {
    let (least, most) = (Duration::from_millis(1), Duration::from_millis(20));
    tokio::time::sleep(begun.elapsed().clamp(least, most)).await;
}

/// The first values of every statement that only a held claim lets change anything.
fn held<'a>(claim: &ClaimId<'a>, now: i64) -> [Value<'a>; 4] {
    [
        Value::Int(claim.id),
        Value::Text(claim.queue),
        Value::Int(claim.attempt),
        Value::Int(now),
    ]
}

/// The queues of the jobs, each once where they stand together.
fn queues<'a>(jobs: &'a [NewJob<'_>]) -> impl Iterator<Item = &'a str> {
    jobs.chunk_by(|one, next| one.queue == next.queue)
        .filter_map(|run| run.first())
        .map(|job| job.queue)
}

/// A job from the columns that the queries above share.
fn job(row: &Row<'_>) -> Answer<Job> {
    let claim_expires_at = row.maybe_int(15)?;
    let died_at = row.maybe_int(16)?;
    let state = match (died_at, claim_expires_at) {
        (Some(_), _) => JobState::Dead,
        (None, Some(_)) => JobState::Processing,
        (None, None) => JobState::Pending,
    };
    let mut job = Job::new(row.int(0)?, row.text(1)?, row.blob(14)?);
    job.state = state;
    job.priority = row.int(2)?;
    job.run_at = row.int(3)?;
    job.attempts = row.int(4)?;
    job.max_attempts = row.int(5)?;
    job.worker_id = row.maybe_text(6)?;
    job.claimed_at = row.maybe_int(7)?;
    job.claim_expires_at = claim_expires_at;
    job.created_at = row.int(8)?;
    job.expires_at = row.maybe_int(9)?;
    job.visibility_timeout_s = row.int(10)?;
    job.backoff_base_s = row.int(11)?;
    job.dead_letter_retention_s = row.maybe_int(12)?;
    job.last_error = row.maybe_text(13)?;
    job.died_at = died_at;
    Ok(job)
}
