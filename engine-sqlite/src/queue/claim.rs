//! Claims, and what they clear out of their way.

use alkstore::engine::{ClaimRequest, EXPIRED, MAX_ATTEMPTS_EXCEEDED, MOST_SWEPT_PER_CLAIM};
use alkstore::{Job, JobState};

use super::job;
use crate::error::Answer;
use crate::exec::{Exec, Value};

/// Whether there is anything to clear away before a pick: expired jobs, lapsed claims.
pub(super) const OVERDUE: &str = "SELECT
    EXISTS (SELECT 1 FROM __alkstore_jobs WHERE queue = ?1 AND expires_at <= ?2),
    EXISTS (SELECT 1 FROM __alkstore_jobs WHERE queue = ?1 AND claim_expires_at < ?2)";
pub(super) const BURY_EXPIRED: &str = bury!(
    "?3",
    "id IN (SELECT id FROM __alkstore_jobs WHERE queue = ?1 AND expires_at <= ?2
            ORDER BY expires_at LIMIT ?4)"
);
/// Of the most overdue claims, those whose jobs have no attempts left; a job that is expired
/// as well died of that.
pub(super) const BURY_LAPSED: &str = bury!(
    "CASE WHEN expires_at <= ?2 THEN ?5 ELSE ?3 END",
    "id IN (SELECT id FROM (
                SELECT id, attempts, max_attempts FROM __alkstore_jobs
                WHERE queue = ?1 AND claim_expires_at < ?2 ORDER BY claim_expires_at LIMIT ?4)
            WHERE attempts >= max_attempts)"
);
pub(super) const RECLAIM: &str =
    "UPDATE __alkstore_jobs SET worker_id = NULL, claim_expires_at = NULL
     WHERE id IN (SELECT id FROM __alkstore_jobs WHERE queue = ?1 AND claim_expires_at < ?2
                  ORDER BY claim_expires_at LIMIT ?3)";
/// The highest priority that pending jobs have, not above a bound.
pub(super) const LEVEL: &str = "SELECT priority FROM __alkstore_jobs
     WHERE queue = ?1 AND claim_expires_at IS NULL AND priority <= ?2
     ORDER BY priority DESC LIMIT 1";
/// The ready head of one priority level.
pub(super) const HEAD: &str = concat!(
    "SELECT ",
    carried!(),
    ", last_error, payload, claim_expires_at, NULL FROM __alkstore_jobs
     WHERE queue = ?1 AND claim_expires_at IS NULL AND priority = ?2 AND run_at <= ?3
       AND (expires_at IS NULL OR expires_at > ?3)
     ORDER BY run_at, id LIMIT ?4"
);
pub(super) const CLAIM: &str = "UPDATE __alkstore_jobs
     SET attempts = ?2, worker_id = ?3, claimed_at = ?4, claim_expires_at = ?5 WHERE id = ?1";

/// Serves requests in their order; those for one queue share a walk.
pub(crate) async fn claim<X: Exec>(
    x: &mut X,
    now: i64,
    requests: &[ClaimRequest<'_>],
) -> Answer<Vec<Vec<Job>>> {
    let mut claimed: Vec<_> = requests.iter().map(|_| Vec::new()).collect();
    for (first, request) in requests.iter().enumerate() {
        let queue = request.queue;
        if requests[..first].iter().any(|before| before.queue == queue) {
            continue;
        }
        let alike = requests.iter().zip(&mut claimed);
        let mut takers: Vec<_> = alike
            .filter(|(request, _)| request.queue == queue)
            .map(|(request, jobs)| Taker {
                worker: request.worker,
                wanted: request.limit,
                jobs,
            })
            .collect();
        clear_overdue(x, queue, now).await?;
        walk(x, now, queue, &mut takers).await?;
    }
    Ok(claimed)
}

/// Someone whom jobs are handed to.
struct Taker<'t> {
    worker: &'t str,
    wanted: i64,
    jobs: &'t mut Vec<Job>,
}

/// Goes down the priority levels and hands out each one's ready head.
async fn walk<X: Exec>(x: &mut X, now: i64, queue: &str, takers: &mut [Taker<'_>]) -> Answer<()> {
    let mut bound = i64::MAX;
    let mut first = 0;
    loop {
        let left = takers[first..].iter();
        let wanted = left.fold(0_i64, |sum, taker| sum.saturating_add(taker.wanted));
        if wanted <= 0 {
            return Ok(());
        }
        let levels = [Value::Text(queue), Value::Int(bound)];
        let levels = x.rows(LEVEL, &levels, |row| row.int(0)).await?;
        let Some(&level) = levels.first() else {
            return Ok(());
        };
        let head = [
            Value::Text(queue),
            Value::Int(level),
            Value::Int(now),
            Value::Int(wanted),
        ];
        for mut job in x.rows(HEAD, &head, job).await? {
            while takers.get(first).is_some_and(|taker| taker.wanted <= 0) {
                first += 1;
            }
            let Some(taker) = takers.get_mut(first) else {
                return Ok(());
            };
            take(x, now, taker.worker, &mut job).await?;
            taker.jobs.push(job);
            taker.wanted -= 1;
        }
        let Some(below) = level.checked_sub(1) else {
            return Ok(());
        };
        bound = below;
    }
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
pub(super) async fn bury_expired<X: Exec>(
    x: &mut X,
    queue: &str,
    now: i64,
    most: i64,
) -> Answer<u64> {
    let values = [
        Value::Text(queue),
        Value::Int(now),
        Value::Text(EXPIRED),
        Value::Int(most),
    ];
    Ok(x.execute(BURY_EXPIRED, &values).await?.changes)
}
