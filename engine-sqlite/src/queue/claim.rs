//! Claims, and what they see to by the way.

use alkstore::engine::{
    ClaimRequest, EXPIRED, FEW_EXPIRED, MAX_ATTEMPTS_EXCEEDED, MOST_EXPIRED_PER_CLAIM,
    MOST_LAPSED_PER_CLAIM,
};
use alkstore::{Job, JobState};

use super::job;
use super::line::{READY, claimable};
use super::sweep::bury_expired;
use crate::error::Answer;
use crate::exec::{Exec, Row, Value};

/// What a pick has to know: the last expiry of the queue's jobs, and whether there are lapsed
/// claims and delayed jobs that are due.
pub(super) const LOOK: &str = concat!(
    "SELECT (SELECT expires_at FROM __alkstore_jobs
             WHERE queue = ?1 AND expires_at IS NOT NULL ORDER BY expires_at DESC LIMIT 1),
         EXISTS (SELECT 1 FROM __alkstore_jobs WHERE queue = ?1 AND claim_expires_at < ?2), ",
    any_due!()
);
pub(super) const MANY_EXPIRED: &str = "SELECT 1 FROM __alkstore_jobs
     WHERE queue = ?1 AND expires_at <= ?2 LIMIT 1 OFFSET ?3";
/// Of the most overdue claims, those whose jobs have expired or have no attempts left.
pub(super) const BURY_LAPSED: &str = bury!(
    "CASE WHEN expires_at <= ?2 THEN ?5 ELSE ?3 END",
    "id IN (SELECT id FROM (
                SELECT id, attempts, max_attempts, expires_at FROM __alkstore_jobs
                WHERE queue = ?1 AND claim_expires_at < ?2 ORDER BY claim_expires_at LIMIT ?4)
            WHERE attempts >= max_attempts OR expires_at <= ?2)"
);
pub(super) const RECLAIM: &str =
    "UPDATE __alkstore_jobs SET worker_id = NULL, claim_expires_at = NULL
     WHERE id IN (SELECT id FROM __alkstore_jobs WHERE queue = ?1 AND claim_expires_at < ?2
                  ORDER BY claim_expires_at LIMIT ?3)";
/// A job that can be claimed.
pub(super) const JOB: &str = concat!(
    "SELECT ",
    carried!(),
    ", last_error, payload, claim_expires_at, NULL FROM __alkstore_jobs WHERE id = ?1"
);
pub(super) const CLAIM: &str = "UPDATE __alkstore_jobs
     SET attempts = ?2, worker_id = ?3, claimed_at = ?4, claim_expires_at = ?5 WHERE id = ?1";

/// Serves requests in their order; those for one queue share a pick.
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
        serve(x, now, queue, &mut takers).await?;
    }
    Ok(claimed)
}

/// Someone whom jobs are handed to.
struct Taker<'t> {
    worker: &'t str,
    wanted: i64,
    jobs: &'t mut Vec<Job>,
}

/// Hands out jobs of one queue, and sees to what has expired or lapsed.
async fn serve<X: Exec>(x: &mut X, now: i64, queue: &str, takers: &mut [Taker<'_>]) -> Answer<()> {
    let past = [Value::Text(queue), Value::Int(now)];
    let flags = |row: &Row<'_>| Ok((row.maybe_int(0)?, row.int(1)? != 0, row.int(2)? != 0));
    let look = x.rows(LOOK, &past, flags).await?.pop();
    let (last_expiry, lapsed, due) = look.unwrap_or_default();
    if lapsed {
        end_lapsed(x, queue, now).await?;
    }
    let others = lapsed || due || last_expiry.is_some_and(|last| last > now);
    let wanted = takers.iter();
    let wanted = wanted.fold(0_i64, |sum, taker| sum.saturating_add(taker.wanted));
    let jobs = pick(x, queue, now, wanted, others).await?;
    let short = i64::try_from(jobs.len()).is_ok_and(|jobs| jobs < wanted);
    let mut jobs = jobs.into_iter();
    for taker in takers {
        let wanted = usize::try_from(taker.wanted).unwrap_or(usize::MAX);
        for mut job in jobs.by_ref().take(wanted) {
            take(x, now, taker.worker, &mut job).await?;
            taker.jobs.push(job);
        }
    }
    if last_expiry.is_some() && (short || !many_expired(x, queue, now).await?) {
        bury_expired(x, queue, now, MOST_EXPIRED_PER_CLAIM).await?;
    }
    Ok(())
}

/// The jobs to hand out, in the order of claims.
async fn pick<X: Exec>(
    x: &mut X,
    queue: &str,
    now: i64,
    wanted: i64,
    others: bool,
) -> Answer<Vec<Job>> {
    if !others {
        let first = [Value::Text(queue), Value::Int(wanted)];
        let jobs = x.rows(READY, &first, job).await?;
        // They were ready once, and are not if the clock has gone back.
        if jobs.iter().all(|job| job.run_at <= now) {
            return Ok(jobs);
        }
    }
    let mut keys = claimable(x, queue, now, wanted).await?;
    keys.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
    let mut jobs = Vec::with_capacity(keys.len());
    for (_, _, id) in keys {
        jobs.extend(x.rows(JOB, &[Value::Int(id)], job).await?);
    }
    Ok(jobs)
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

/// Whether more jobs have expired than a claim moves to dead by the way.
async fn many_expired<X: Exec>(x: &mut X, queue: &str, now: i64) -> Answer<bool> {
    let few = [Value::Text(queue), Value::Int(now), Value::Int(FEW_EXPIRED)];
    let many = x.rows(MANY_EXPIRED, &few, |row| row.int(0)).await?;
    Ok(!many.is_empty())
}

/// Ends lapsed claims, a bounded number, most overdue first.
async fn end_lapsed<X: Exec>(x: &mut X, queue: &str, now: i64) -> Answer<()> {
    let (queue, now) = (Value::Text(queue), Value::Int(now));
    let most = Value::Int(MOST_LAPSED_PER_CLAIM);
    let why = [Value::Text(MAX_ATTEMPTS_EXCEEDED), Value::Text(EXPIRED)];
    let bury = [queue, now, why[0], most, why[1]];
    let buried = x.execute(BURY_LAPSED, &bury).await?.changes;
    // Those that are left of the same most overdue ones have attempts left.
    let rest = MOST_LAPSED_PER_CLAIM.saturating_sub_unsigned(buried);
    x.execute(RECLAIM, &[queue, now, Value::Int(rest)]).await?;
    Ok(())
}
