//! Jobs.

use std::sync::LazyLock;

use alkstore::engine::{
    At, ClaimEnd, ClaimId, ClaimRequest, EXPIRED, MAX_ATTEMPTS_EXCEEDED, MOST_SWEPT_PER_CLAIM,
    NewJob, Outcome, Queues, Topic,
};
use alkstore::{Job, JobState, Result, Swept};
use sqlx::SqliteConnection;

use crate::Sqlite;
use crate::error::Answer;
use crate::exec::{Awaiting, CHUNKS, Exec, Inline, Row, Value, chunk, chunked, ready};
use crate::notify::bump;

#[cfg(test)]
mod tests;

impl Queues for Sqlite {
    async fn insert_jobs(
        &self,
        at: At<'_, SqliteConnection>,
        jobs: &[NewJob<'_>],
    ) -> Result<Vec<i64>> {
        const DOING: &str = "enqueueing";
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        match at {
            At::Auto => {
                let insert = |x: &mut Inline<'_>, now| ready(insert(x, now, jobs));
                let touched = |_: &Vec<i64>, wake: &mut dyn FnMut(Topic<'_>)| {
                    queues(jobs).for_each(|queue| wake(Topic::queue(queue)));
                };
                self.inner().write(DOING, insert, touched).await
            }
            At::In(conn) => {
                let insert = async |x: &mut Awaiting<'_>, now| insert(x, now, jobs).await;
                self.inner().join_whole(DOING, conn, insert).await
            }
        }
    }

    async fn claim_jobs(&self, requests: &[ClaimRequest<'_>]) -> Result<Vec<Vec<Job>>> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let claim = |x: &mut Inline<'_>, now| {
            requests
                .iter()
                .map(|request| ready(claim(x, now, request)))
                .collect()
        };
        self.inner().write("claiming", claim, |_, _| {}).await
    }

    async fn finish_claims(
        &self,
        at: At<'_, SqliteConnection>,
        ends: &[ClaimEnd<'_>],
    ) -> Result<Vec<bool>> {
        const DOING: &str = "ending a claim";
        match (at, ends) {
            (_, []) => Ok(Vec::new()),
            (At::Auto, ends) => {
                let finish = |x: &mut Inline<'_>, now| ready(finish(x, now, ends));
                let touched = |landed: &Vec<bool>, wake: &mut dyn FnMut(Topic<'_>)| {
                    let back = ends
                        .iter()
                        .zip(landed)
                        .filter(|(end, landed)| **landed && is_again(end));
                    back.for_each(|(end, _)| wake(Topic::queue(end.claim.queue)));
                };
                self.inner().write(DOING, finish, touched).await
            }
            // One statement is whole by itself.
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

    async fn sweep_jobs(&self, queue: &str) -> Result<Swept> {
        let sweep = |x: &mut Inline<'_>, now| {
            let expired = ready(bury_expired(x, queue, now, -1))?;
            let past = [Value::Text(queue), Value::Int(now)];
            let purged = ready(x.execute(PURGE, &past))?.changes;
            Ok(Swept { expired, purged })
        };
        self.inner().write("sweeping", sweep, |_, _| {}).await
    }
}

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

/// The number of columns that each row of an insert has values of its own for.
const INSERTED: usize = 10;
static INSERT: LazyLock<[String; CHUNKS.len()]> = LazyLock::new(|| {
    let head = "INSERT INTO __alkstore_jobs (queue, priority, run_at, max_attempts, created_at, \
                expires_at, visibility_timeout_s, backoff_base_s, dead_letter_retention_s, \
                payload) VALUES ";
    chunked(head, |_| format!("(?{})", ", ?".repeat(INSERTED - 1)), "")
});

/// Whether there is anything to clear away before a pick: expired jobs, lapsed claims.
const OVERDUE: &str = "SELECT
    EXISTS (SELECT 1 FROM __alkstore_jobs WHERE queue = ?1 AND expires_at <= ?2),
    EXISTS (SELECT 1 FROM __alkstore_jobs WHERE queue = ?1 AND claim_expires_at < ?2)";
const BURY_EXPIRED: &str = bury!(
    "?3",
    "id IN (SELECT id FROM __alkstore_jobs WHERE queue = ?1 AND expires_at <= ?2
            ORDER BY expires_at LIMIT ?4)"
);
/// Of the most overdue claims, those whose jobs have no attempts left; a job that is expired
/// as well died of that.
const BURY_LAPSED: &str = bury!(
    "CASE WHEN expires_at <= ?2 THEN ?5 ELSE ?3 END",
    "id IN (SELECT id FROM (
                SELECT id, attempts, max_attempts FROM __alkstore_jobs
                WHERE queue = ?1 AND claim_expires_at < ?2 ORDER BY claim_expires_at LIMIT ?4)
            WHERE attempts >= max_attempts)"
);
const RECLAIM: &str = "UPDATE __alkstore_jobs SET worker_id = NULL, claim_expires_at = NULL
     WHERE id IN (SELECT id FROM __alkstore_jobs WHERE queue = ?1 AND claim_expires_at < ?2
                  ORDER BY claim_expires_at LIMIT ?3)";
/// The highest priority that pending jobs have, not above a bound.
const LEVEL: &str = "SELECT priority FROM __alkstore_jobs
     WHERE queue = ?1 AND claim_expires_at IS NULL AND priority <= ?2
     ORDER BY priority DESC LIMIT 1";
/// The ready head of one priority level.
const HEAD: &str = concat!(
    "SELECT ",
    carried!(),
    ", last_error, payload, claim_expires_at, NULL FROM __alkstore_jobs
     WHERE queue = ?1 AND claim_expires_at IS NULL AND priority = ?2 AND run_at <= ?3
       AND (expires_at IS NULL OR expires_at > ?3)
     ORDER BY run_at, id LIMIT ?4"
);
const CLAIM: &str = "UPDATE __alkstore_jobs
     SET attempts = ?2, worker_id = ?3, claimed_at = ?4, claim_expires_at = ?5 WHERE id = ?1";

// A claim that holds: this very one, not lapsed.
const ACK: &str = "DELETE FROM __alkstore_jobs
     WHERE id = ?1 AND queue = ?2 AND attempts = ?3 AND claim_expires_at >= ?4";
const AGAIN: &str = "UPDATE __alkstore_jobs
     SET worker_id = NULL, claim_expires_at = NULL, run_at = ?5, last_error = ?6
     WHERE id = ?1 AND queue = ?2 AND attempts = ?3 AND claim_expires_at >= ?4";
const BURY_CLAIMED: &str = bury!(
    "?5",
    "id = ?1 AND queue = ?3 AND attempts = ?4 AND claim_expires_at >= ?2"
);
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
const PURGE: &str = "DELETE FROM __alkstore_dead_jobs WHERE queue = ?1 AND purge_at <= ?2";

/// Inserts jobs and tells their queues.
async fn insert<X: Exec>(x: &mut X, now: i64, jobs: &[NewJob<'_>]) -> Answer<Vec<i64>> {
    let mut ids = Vec::with_capacity(jobs.len());
    let mut values = Vec::new();
    let mut rest = jobs;
    while !rest.is_empty() {
        let (sql, size) = chunk(&INSERT, rest.len());
        let (now_inserted, later) = rest.split_at(size);
        values.clear();
        now_inserted
            .iter()
            .for_each(|job| values.extend(inserted(now, job)));
        let last = x.execute(sql, &values).await?.last_id;
        // One statement gives its rows ids without a gap: nobody else writes meanwhile.
        ids.extend(
            (0..size)
                .rev()
                .filter_map(|back| last.checked_sub_unsigned(back as u64)),
        );
        rest = later;
    }
    for queue in queues(jobs) {
        bump(x, Topic::queue(queue)).await?;
    }
    Ok(ids)
}

fn inserted<'a>(now: i64, job: &NewJob<'a>) -> [Value<'a>; INSERTED] {
    let stamps = &job.stamps;
    [
        Value::Text(job.queue),
        Value::Int(job.priority),
        Value::Int(job.ready.resolve(now)),
        Value::Int(stamps.max_attempts),
        Value::Int(now),
        Value::maybe(job.expires.map(|expires| now.saturating_add(expires))),
        Value::Int(stamps.visibility_timeout_s),
        Value::Int(stamps.backoff_base_s),
        Value::maybe(stamps.dead_letter_retention_s),
        Value::Blob(job.payload),
    ]
}

/// The queues of the jobs, each once where they stand together.
fn queues<'a>(jobs: &'a [NewJob<'_>]) -> impl Iterator<Item = &'a str> {
    jobs.chunk_by(|one, next| one.queue == next.queue)
        .filter_map(|run| run.first())
        .map(|job| job.queue)
}

async fn claim<X: Exec>(x: &mut X, now: i64, request: &ClaimRequest<'_>) -> Answer<Vec<Job>> {
    clear_overdue(x, request.queue, now).await?;
    let mut claimed = Vec::new();
    let (mut wanted, mut bound) = (request.limit, i64::MAX);
    while wanted > 0 {
        let queue = Value::Text(request.queue);
        let levels = [queue, Value::Int(bound)];
        let levels = x.rows(LEVEL, &levels, |row| row.int(0)).await?;
        let Some(&level) = levels.first() else {
            break;
        };
        let head = [
            queue,
            Value::Int(level),
            Value::Int(now),
            Value::Int(wanted),
        ];
        for mut job in x.rows(HEAD, &head, job).await? {
            take(x, now, request.worker, &mut job).await?;
            claimed.push(job);
            wanted -= 1;
        }
        let Some(below) = level.checked_sub(1) else {
            break;
        };
        bound = below;
    }
    Ok(claimed)
}

/// Hands one job to the worker.
async fn take<X: Exec>(x: &mut X, now: i64, worker: &str, job: &mut Job) -> Answer<()> {
    job.state = JobState::Processing;
    job.attempts = job.attempts.saturating_add(1);
    job.worker_id = Some(worker.to_owned());
    job.claimed_at = Some(now);
    let until = now.saturating_add(job.visibility_timeout_s);
    job.claim_expires_at = Some(until);
    let values = [
        Value::Int(job.id),
        Value::Int(job.attempts),
        Value::Text(worker),
        Value::Int(now),
        Value::Int(until),
    ];
    x.execute(CLAIM, &values).await.map(|_| ())
}

/// Moves expired jobs and lapsed claims out of the way, a bounded number of each.
async fn clear_overdue<X: Exec>(x: &mut X, queue: &str, now: i64) -> Answer<()> {
    let past = [Value::Text(queue), Value::Int(now)];
    let overdue = x
        .rows(OVERDUE, &past, |row| {
            Ok((row.int(0)? != 0, row.int(1)? != 0))
        })
        .await?;
    let Some(&(expired, lapsed)) = overdue.first() else {
        return Ok(());
    };
    if expired {
        bury_expired(x, queue, now, MOST_SWEPT_PER_CLAIM).await?;
    }
    if lapsed {
        let [queue, now] = past;
        let most = Value::Int(MOST_SWEPT_PER_CLAIM);
        let why = Value::Text(MAX_ATTEMPTS_EXCEEDED);
        let bury = [queue, now, why, most, Value::Text(EXPIRED)];
        let buried = x.execute(BURY_LAPSED, &bury).await?.changes;
        // Those that are left of the same most overdue ones have attempts left.
        let rest = MOST_SWEPT_PER_CLAIM.saturating_sub_unsigned(buried);
        x.execute(RECLAIM, &[queue, now, Value::Int(rest)]).await?;
    }
    Ok(())
}

/// Moves up to `most` expired jobs to dead, all of them if it is negative.
async fn bury_expired<X: Exec>(x: &mut X, queue: &str, now: i64, most: i64) -> Answer<u64> {
    let values = [
        Value::Text(queue),
        Value::Int(now),
        Value::Text(EXPIRED),
        Value::Int(most),
    ];
    Ok(x.execute(BURY_EXPIRED, &values).await?.changes)
}

/// Ends claims, each judged by itself, and tells the queues that have a job again.
async fn finish<X: Exec>(x: &mut X, now: i64, ends: &[ClaimEnd<'_>]) -> Answer<Vec<bool>> {
    let mut landed = Vec::with_capacity(ends.len());
    for end in ends {
        let [id, queue, attempt, at] = held(&end.claim, now);
        let done = match end.outcome {
            Outcome::Done => x.execute(ACK, &[id, queue, attempt, at]).await?,
            Outcome::Again { delay, error } => {
                let run_at = Value::Int(now.saturating_add(delay));
                let again = [id, queue, attempt, at, run_at, Value::Text(error)];
                x.execute(AGAIN, &again).await?
            }
            Outcome::Dead { error } => {
                x.execute(BURY_CLAIMED, &[id, at, queue, attempt, Value::Text(error)])
                    .await?
            }
        };
        if done.changes > 0 && is_again(end) {
            bump(x, Topic::queue(end.claim.queue)).await?;
        }
        landed.push(done.changes > 0);
    }
    Ok(landed)
}

fn is_again(end: &ClaimEnd<'_>) -> bool {
    matches!(end.outcome, Outcome::Again { .. })
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

/// A job from the columns that the queries above share.
fn job(row: &Row<'_>) -> Answer<Job> {
    let claim_expires_at = row.maybe_int(15)?;
    let died_at = row.maybe_int(16)?;
    let state = match (died_at, claim_expires_at) {
        (Some(_), _) => JobState::Dead,
        (None, Some(_)) => JobState::Processing,
        (None, None) => JobState::Pending,
    };
    Ok(Job {
        id: row.int(0)?,
        queue: row.text(1)?,
        state,
        payload: row.blob(14)?,
        priority: row.int(2)?,
        run_at: row.int(3)?,
        attempts: row.int(4)?,
        max_attempts: row.int(5)?,
        worker_id: row.maybe_text(6)?,
        claimed_at: row.maybe_int(7)?,
        claim_expires_at,
        created_at: row.int(8)?,
        expires_at: row.maybe_int(9)?,
        visibility_timeout_s: row.int(10)?,
        backoff_base_s: row.int(11)?,
        dead_letter_retention_s: row.maybe_int(12)?,
        last_error: row.maybe_text(13)?,
        died_at,
    })
}
