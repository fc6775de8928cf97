//! Sweeps, and the jobs that die without anybody's doing, in steps of bounded size.

use alkstore::Swept;
use alkstore::engine::{EXPIRED, SweepStep};

use crate::error::Answer;
use crate::exec::{Exec, Value};

/// The most rows of one step: a thread of the executor does it in one go.
const MOST: i64 = 200;
/// The most bytes of payloads that one step moves, unless its first row alone has more.
const MOST_BYTES: i64 = 1 << 20;

/// The sizes of the expired jobs that come first.
pub(super) const EXPIRED_SIZES: &str = "SELECT length(payload) FROM __alkstore_jobs
     WHERE queue = ?1 AND expires_at <= ?2 ORDER BY expires_at LIMIT ?3";
pub(super) const BURY_EXPIRED: &str = bury!(
    "?3",
    "id IN (SELECT id FROM __alkstore_jobs WHERE queue = ?1 AND expires_at <= ?2
            ORDER BY expires_at LIMIT ?4)"
);
/// The same of dead jobs past their retention.
pub(super) const PURGE_SIZES: &str = "SELECT length(payload) FROM __alkstore_dead_jobs
     WHERE queue = ?1 AND purge_at <= ?2 ORDER BY purge_at LIMIT ?3";
pub(super) const PURGE: &str = "DELETE FROM __alkstore_dead_jobs WHERE id IN (
         SELECT id FROM __alkstore_dead_jobs
         WHERE queue = ?1 AND purge_at <= ?2 ORDER BY purge_at LIMIT ?3)";

/// Does one step of a sweep.
pub(super) async fn sweep<X: Exec>(x: &mut X, queue: &str, now: i64) -> Answer<SweepStep> {
    let (expired, whole) = bury_expired(x, queue, now, MOST).await?;
    let left = MOST.saturating_sub_unsigned(expired);
    if !whole || left == 0 {
        let swept = Swept::new(expired, 0);
        return Ok(SweepStep { swept, more: true });
    }
    let (rows, whole) = first_rows(x, PURGE_SIZES, queue, now, left).await?;
    let mut purged = 0;
    if rows > 0 {
        let past = [Value::Text(queue), Value::Int(now), Value::Int(rows)];
        purged = x.execute(PURGE, &past).await?.changes;
    }
    Ok(SweepStep {
        swept: Swept::new(expired, purged),
        more: !whole || rows == left,
    })
}

/// Moves expired jobs to dead, most overdue first, as many as are few and small; the second part
/// of the answer says whether size was no obstacle.
pub(super) async fn bury_expired<X: Exec>(
    x: &mut X,
    queue: &str,
    now: i64,
    most: i64,
) -> Answer<(u64, bool)> {
    let (rows, whole) = first_rows(x, EXPIRED_SIZES, queue, now, most).await?;
    if rows == 0 {
        return Ok((0, whole));
    }
    let values = [
        Value::Text(queue),
        Value::Int(now),
        Value::Text(EXPIRED),
        Value::Int(rows),
    ];
    Ok((x.execute(BURY_EXPIRED, &values).await?.changes, whole))
}

/// The number of rows to take of those whose sizes the statement gives.
async fn first_rows<X: Exec>(
    x: &mut X,
    sizes: &'static str,
    queue: &str,
    now: i64,
    most: i64,
) -> Answer<(i64, bool)> {
    let past = [Value::Text(queue), Value::Int(now), Value::Int(most)];
    let sizes = x.rows(sizes, &past, |row| row.int(0)).await?;
    Ok(fitting(&sizes))
}

/// How many of the rows with these sizes, at least one, one step takes, and whether those are all.
pub(crate) fn fitting(sizes: &[i64]) -> (i64, bool) {
    let mut bytes = 0_i64;
    let fits = |(row, size): &(usize, &i64)| {
        bytes = bytes.saturating_add(**size);
        *row == 0 || bytes <= MOST_BYTES
    };
    let taken = sizes.iter().enumerate().take_while(fits).count();
    (
        i64::try_from(taken).unwrap_or(i64::MAX),
        taken == sizes.len(),
    )
}
