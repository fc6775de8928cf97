//! Enqueue.

use std::sync::LazyLock;

use alkstore::engine::{NewJob, Topic};

use super::queues;
use crate::error::Answer;
use crate::exec::{CHUNKS, Exec, Value, chunk, chunked};
use crate::notify::bump;

/// The number of columns that each row of an insert has values of its own for.
const INSERTED: usize = 10;
static INSERT: LazyLock<[String; CHUNKS.len()]> = LazyLock::new(|| {
    let head = "INSERT INTO __alkstore_jobs (queue, priority, run_at, max_attempts, created_at, \
                expires_at, visibility_timeout_s, backoff_base_s, dead_letter_retention_s, \
                payload) VALUES ";
    chunked(head, |_| format!("(?{})", ", ?".repeat(INSERTED - 1)), "")
});

/// Inserts jobs and tells their queues.
pub(crate) async fn insert<X: Exec>(x: &mut X, now: i64, jobs: &[NewJob<'_>]) -> Answer<Vec<i64>> {
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
