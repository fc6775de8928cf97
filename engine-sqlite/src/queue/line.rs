//! The lines that pending jobs stand in, and what of them can be claimed, in the order of claims.
//!
//! See the indexes in `schema/lines.sql`. The order of claims goes by priority first, so a level
//! has to be looked at to learn that nothing of it is ready, and there may be as many levels as
//! jobs. Where those that were looked at do not suffice, another index tells which jobs are ready
//! at all, and they are sorted. Both are tried with a bound that grows: the cost is that of the
//! cheaper one.

use std::cmp::Reverse;

use crate::error::Answer;
use crate::exec::{Exec, Row, Value};

/// The levels, or jobs, that are looked at in the first attempt.
const FIRST_BOUND: i64 = 128;
/// How the bound grows.
const GROWTH: i64 = 8;
/// The end of what lifetimes are counted from, see the schema.
const EARLIEST: i64 = -(1 << 61);

macro_rules! line {
    (ready) => {
        "__alkstore_jobs INDEXED BY __alkstore_jobs_ready WHERE queue = ?1 \
         AND claim_expires_at IS NULL AND expires_at IS NULL AND run_at <= created_at"
    };
    (delayed) => {
        "__alkstore_jobs INDEXED BY __alkstore_jobs_delayed WHERE queue = ?1 \
         AND claim_expires_at IS NULL AND expires_at IS NULL AND run_at > created_at"
    };
    (due) => {
        "__alkstore_jobs INDEXED BY __alkstore_jobs_due WHERE queue = ?1 \
         AND claim_expires_at IS NULL AND expires_at IS NULL AND run_at > created_at"
    };
    (expiring) => {
        "__alkstore_jobs INDEXED BY __alkstore_jobs_lifetime WHERE queue = ?1 \
         AND claim_expires_at IS NULL AND expires_at IS NOT NULL"
    };
}
macro_rules! lifetime {
    () => {
        "(min(max(expires_at, -2305843009213693952), 2305843009213693952) \
          - min(max(run_at, -2305843009213693952), 2305843009213693952))"
    };
}
// Whether a delayed job is due.
macro_rules! any_due {
    () => {
        concat!("EXISTS (SELECT 1 FROM ", line!(due), " AND run_at <= ?2)")
    };
}
// The highest priority in the line, not above a bound.
macro_rules! level {
    ($line:ident) => {
        concat!(
            "SELECT priority FROM ",
            line!($line),
            " AND priority <= ?2 ORDER BY priority DESC LIMIT 1"
        )
    };
}
// What is ready of one level of the line.
macro_rules! head {
    ($line:ident) => {
        concat!(
            "SELECT priority, run_at, id FROM ",
            line!($line),
            " AND priority = ?2 AND run_at <= ?3 ORDER BY run_at, id LIMIT ?4"
        )
    };
}

/// Those that were ready from the start, of all levels.
pub(super) const READY: &str = concat!(
    "SELECT ",
    carried!(),
    ", last_error, payload, claim_expires_at, NULL FROM ",
    line!(ready),
    " ORDER BY priority DESC, run_at, id LIMIT ?2"
);
pub(super) const READY_LEVEL: &str = level!(ready);
pub(super) const READY_HEAD: &str = head!(ready);
pub(super) const DELAYED_LEVEL: &str = level!(delayed);
pub(super) const DELAYED_HEAD: &str = head!(delayed);
pub(super) const DUE: &str = concat!(
    "SELECT priority, run_at, id FROM ",
    line!(due),
    " AND run_at <= ?2 ORDER BY run_at LIMIT ?3"
);
pub(super) const GROUP: &str = concat!(
    "SELECT priority, ",
    lifetime!(),
    " FROM ",
    line!(expiring),
    " AND priority <= ?2 ORDER BY priority DESC, ",
    lifetime!(),
    " DESC LIMIT 1"
);
pub(super) const NEXT_GROUP: &str = concat!(
    "SELECT priority, ",
    lifetime!(),
    " FROM ",
    line!(expiring),
    " AND priority = ?2 AND ",
    lifetime!(),
    " < ?3 ORDER BY ",
    lifetime!(),
    " DESC LIMIT 1"
);
pub(super) const GROUP_HEAD: &str = concat!(
    "SELECT priority, run_at, id FROM ",
    line!(expiring),
    " AND priority = ?2 AND ",
    lifetime!(),
    " = ?3 AND run_at >= ?4 AND run_at <= ?5 AND expires_at > ?5 ORDER BY run_at, id LIMIT ?6"
);
/// Jobs that are not expired yet, whatever else they are.
pub(super) const UNEXPIRED: &str =
    "SELECT priority, run_at, id, claim_expires_at IS NULL AND run_at <= ?2 FROM __alkstore_jobs
     INDEXED BY __alkstore_jobs_expiring WHERE queue = ?1 AND expires_at > ?2
     ORDER BY expires_at LIMIT ?3";

/// Where a job stands in the order of claims; its id is the last part.
pub(super) type Key = (Reverse<i64>, i64, i64);

fn key(row: &Row<'_>) -> Answer<Key> {
    Ok((Reverse(row.int(0)?), row.int(1)?, row.int(2)?))
}

/// The jobs that can be claimed, in the order of claims: at least as many as are wanted, if
/// there are.
pub(super) async fn claimable<X: Exec>(
    x: &mut X,
    queue: &str,
    now: i64,
    wanted: i64,
) -> Answer<Vec<Key>> {
    let ready = (READY_LEVEL, READY_HEAD);
    let keys = levels(x, ready, queue, now, wanted, i64::MAX).await?;
    let mut keys = keys.unwrap_or_default();
    keys.extend(delayed(x, queue, now, wanted).await?);
    keys.extend(expiring(x, queue, now, wanted).await?);
    keys.sort_unstable();
    Ok(keys)
}

async fn delayed<X: Exec>(x: &mut X, queue: &str, now: i64, wanted: i64) -> Answer<Vec<Key>> {
    let mut bound = FIRST_BOUND;
    loop {
        let most = Value::Int(bound.saturating_add(1));
        let due = [Value::Text(queue), Value::Int(now), most];
        let due = x.rows(DUE, &due, key).await?;
        if !exceeds(due.len(), bound) {
            return Ok(due);
        }
        let line = (DELAYED_LEVEL, DELAYED_HEAD);
        if let Some(keys) = levels(x, line, queue, now, wanted, bound).await? {
            return Ok(keys);
        }
        bound = bound.saturating_mul(GROWTH);
    }
}

async fn expiring<X: Exec>(x: &mut X, queue: &str, now: i64, wanted: i64) -> Answer<Vec<Key>> {
    let mut bound = FIRST_BOUND;
    loop {
        if let Some(keys) = groups(x, queue, now, wanted, bound).await? {
            return Ok(keys);
        }
        let most = Value::Int(bound.saturating_add(1));
        let unexpired = [Value::Text(queue), Value::Int(now), most];
        let marked = |row: &Row<'_>| Ok((key(row)?, row.int(3)? != 0));
        let unexpired = x.rows(UNEXPIRED, &unexpired, marked).await?;
        if !exceeds(unexpired.len(), bound) {
            let can_be_claimed = unexpired.into_iter().filter(|(_, can)| *can);
            return Ok(can_be_claimed.map(|(key, _)| key).collect());
        }
        bound = bound.saturating_mul(GROWTH);
    }
}

fn exceeds(count: usize, bound: i64) -> bool {
    i64::try_from(count).is_ok_and(|count| count > bound)
}

/// Goes down the levels of a line until there are as many jobs as wanted, or no more levels;
/// nothing if that takes more levels than the bound.
async fn levels<X: Exec>(
    x: &mut X,
    (level, head): (&'static str, &'static str),
    queue: &str,
    now: i64,
    wanted: i64,
    bound: i64,
) -> Answer<Option<Vec<Key>>> {
    let mut keys = Vec::new();
    let mut highest = i64::MAX;
    for _ in 0..bound {
        let below = [Value::Text(queue), Value::Int(highest)];
        let Some(level) = x.rows(level, &below, |row| row.int(0)).await?.pop() else {
            return Ok(Some(keys));
        };
        let left = wanted.saturating_sub_unsigned(keys.len() as u64);
        let ready = [
            Value::Text(queue),
            Value::Int(level),
            Value::Int(now),
            Value::Int(left),
        ];
        keys.extend(x.rows(head, &ready, key).await?);
        match level.checked_sub(1) {
            Some(below) if !exceeds(keys.len(), wanted.saturating_sub(1)) => highest = below,
            _ => return Ok(Some(keys)),
        }
    }
    Ok(None)
}

/// Goes down the groups of the jobs that expire, as [`levels`] does; groups of one level are in
/// no order among themselves.
async fn groups<X: Exec>(
    x: &mut X,
    queue: &str,
    now: i64,
    wanted: i64,
    bound: i64,
) -> Answer<Option<Vec<Key>>> {
    let name = Value::Text(queue);
    let group = |row: &Row<'_>| Ok((row.int(0)?, row.int(1)?));
    let mut keys = Vec::new();
    let first = [name, Value::Int(i64::MAX)];
    let mut next = x.rows(GROUP, &first, group).await?.pop();
    for _ in 0..bound {
        let Some((level, lifetime)) = next else {
            return Ok(Some(keys));
        };
        let (priority, now_or_before) = (Value::Int(level), Value::Int(now));
        // What was ready at `now - lifetime` or before has expired.
        let expired = Some(now.saturating_sub(lifetime)).filter(|at| *at >= EARLIEST);
        let least = expired.map_or(i64::MIN, |at| at.saturating_add(1));
        let lifetime = Value::Int(lifetime);
        let ready = [
            name,
            priority,
            lifetime,
            Value::Int(least),
            now_or_before,
            Value::Int(wanted),
        ];
        keys.extend(x.rows(GROUP_HEAD, &ready, key).await?);
        let after = [name, priority, lifetime];
        next = x.rows(NEXT_GROUP, &after, group).await?.pop();
        if next.is_none() {
            let enough = exceeds(keys.len(), wanted.saturating_sub(1));
            next = match level.checked_sub(1) {
                Some(below) if !enough => {
                    let below = [name, Value::Int(below)];
                    x.rows(GROUP, &below, group).await?.pop()
                }
                _ => None,
            };
        }
    }
    Ok(if next.is_none() { Some(keys) } else { None })
}
