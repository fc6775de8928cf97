//! Enqueue.

use std::sync::LazyLock;

use alkstore::engine::{NewJob, Results};

use crate::error::Answer;
use crate::exec::{CHUNKS, Exec, Value, chunk, chunked};

/// The number of columns that each row of an insert has values of its own for.
const INSERTED: usize = 10;
macro_rules! into {
    () => {
        "INSERT INTO __alkstore_jobs (queue, priority, run_at, max_attempts, created_at, \
         expires_at, visibility_timeout_s, backoff_base_s, dead_letter_retention_s, payload, id) \
         VALUES "
    };
}
/// The first job of a call: its id is greater than all that ever were.
const INSERT_FIRST: &str = concat!(
    into!(),
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (
         SELECT max(coalesce((SELECT max(id) FROM __alkstore_jobs), 0), id) + 1
         FROM __alkstore_last_job))"
);
/// Those after it, for whom SQLite takes the next ids itself. To ask for them here would make it
/// copy the rows first, as the statement would read what it writes.
static INSERT_MORE: LazyLock<[String; CHUNKS.len()]> = LazyLock::new(|| {
    let row = |_| format!("({}NULL)", "?, ".repeat(INSERTED));
    chunked(into!(), row, "")
});

/// Inserts jobs.
pub(crate) async fn insert<X: Exec>(
    x: &mut X,
    now: i64,
    jobs: &[NewJob<'_>],
) -> Answer<Results<i64>> {
    let mut ids = Results::with_capacity(jobs.len());
    let Some((first, mut rest)) = jobs.split_first() else {
        return Ok(ids);
    };
    let first = x.execute(INSERT_FIRST, &inserted(now, first)).await?;
    ids.push(first.last_id);
    let mut values = Vec::new();
    while !rest.is_empty() {
        let (sql, size) = chunk(&INSERT_MORE, rest.len());
        let (these, later) = rest.split_at(size);
        values.clear();
        values.extend(these.iter().flat_map(|job| inserted(now, job)));
        let last = x.execute(sql, &values).await?.last_id;
        // One statement gives its rows ids without a gap: nobody else writes meanwhile.
        let back = (0..size).rev();
        ids.extend(back.filter_map(|back| last.checked_sub_unsigned(back as u64)));
        rest = later;
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
