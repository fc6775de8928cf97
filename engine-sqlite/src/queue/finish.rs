//! The ends of claims.

use alkstore::engine::{ClaimEnd, ClaimId, Outcome, Results, Topic};

use super::held;
use crate::error::Answer;
use crate::exec::{Exec, Value};
use crate::notify::bump;

// A claim that holds: this very one, not lapsed.
pub(super) const ACK: &str = "DELETE FROM __alkstore_jobs
     WHERE id = ?1 AND queue = ?2 AND attempts = ?3 AND claim_expires_at >= ?4";
pub(super) const AGAIN: &str = "UPDATE __alkstore_jobs
     SET worker_id = NULL, claim_expires_at = NULL, run_at = ?5, last_error = ?6
     WHERE id = ?1 AND queue = ?2 AND attempts = ?3 AND claim_expires_at >= ?4";
const RELEASE: &str = "UPDATE __alkstore_jobs
     SET worker_id = NULL, claim_expires_at = NULL, attempts = attempts - 1
     WHERE id = ?1 AND queue = ?2 AND attempts = ?3 AND claim_expires_at >= ?4";
pub(super) const BURY_CLAIMED: &str = bury!(
    "?5",
    "id = ?1 AND queue = ?3 AND attempts = ?4 AND claim_expires_at >= ?2"
);

/// Ends claims, each judged by itself, and tells the queues that have a job again.
pub(crate) async fn finish<X: Exec>(
    x: &mut X,
    now: i64,
    ends: &[ClaimEnd<'_>],
) -> Answer<Results<bool>> {
    let mut landed = Results::with_capacity(ends.len());
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

/// Gives claims back that nobody has heard of, and tells their queues.
pub(crate) async fn release<X: Exec>(x: &mut X, now: i64, claims: &[ClaimId<'_>]) -> Answer<()> {
    for claim in claims {
        if x.execute(RELEASE, &held(claim, now)).await?.changes > 0 {
            bump(x, Topic::queue(claim.queue)).await?;
        }
    }
    Ok(())
}

pub(crate) fn is_again(end: &ClaimEnd<'_>) -> bool {
    matches!(end.outcome, Outcome::Again { .. })
}
