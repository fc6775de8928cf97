//! Batches: everything that many write.
//!
//! There is one writer, so there is one lane. What waits becomes one transaction, whatever it is.

use alkstore::engine::{
    Batch, BatchError, Batches, Batching, ClaimEnd, ClaimId, ClaimRequest, NewEvent, NewJob, Topic,
    Write, Written,
};
use alkstore::{Error, Result};

use crate::Sqlite;
use crate::error::Answer;
use crate::exec::{Inline, ready};
use crate::queue::{claim, finish, insert, is_again, release};
use crate::stream::append;

impl Batches for Sqlite {
    fn batching(&self) -> Batching {
        Batching {
            inline: true,
            timeout: self.inner().settings.busy_timeout,
        }
    }

    fn lane(&self, _write: &Write<'_>) -> u64 {
        0
    }

    fn overdue(&self, write: &Write<'_>) -> Error {
        let doing = match write {
            Write::Insert(_) => "enqueueing",
            Write::Append(_) => "publishing",
            Write::Finish(_) => "ending a claim",
            Write::Claim(_) => "claiming",
        };
        self.inner().who_holds_it().into_error(doing)
    }

    async fn write_batch(&self, batch: &mut Batch) -> Result<Vec<Written>, BatchError> {
        let inner = self.inner();
        inner
            .write_batch(batch, |batch, writer| {
                let writes = Writes::new(batch.begin(|_, _| true));
                let write = |x: &mut Inline<'_>, now| writes.write(x, now);
                let touched = |written: &Vec<Written>, wake: &mut dyn FnMut(Topic<'_>)| {
                    writes.touched(written, wake);
                };
                inner.finish(writer, &write, &touched)
            })
            .await
    }

    async fn release_claims(&self, claims: &[ClaimId<'_>]) -> Result<()> {
        let release = |x: &mut Inline<'_>, now| ready(release(x, now, claims));
        let touched = |(): &(), wake: &mut dyn FnMut(Topic<'_>)| {
            claims
                .iter()
                .for_each(|claim| wake(Topic::queue(claim.queue)));
        };
        self.inner()
            .write("giving claims back", release, touched)
            .await
    }
}

/// Writes by what they do, each with its place among all.
struct Writes<'i> {
    len: usize,
    jobs: Vec<(usize, NewJob<'i>)>,
    events: Vec<(usize, NewEvent<'i>)>,
    ends: Vec<(usize, ClaimEnd<'i>)>,
    requests: Vec<(usize, ClaimRequest<'i>)>,
}

impl<'i> Writes<'i> {
    fn new(writes: Vec<Write<'i>>) -> Self {
        let (mut jobs, mut events) = (Vec::new(), Vec::new());
        let (mut ends, mut requests) = (Vec::new(), Vec::new());
        let len = writes.len();
        for (place, write) in writes.into_iter().enumerate() {
            match write {
                Write::Insert(job) => jobs.push((place, job)),
                Write::Append(event) => events.push((place, event)),
                Write::Finish(end) => ends.push((place, end)),
                Write::Claim(request) => requests.push((place, request)),
            }
        }
        // What goes to one place is written by one statement. A stable sort keeps the order of
        // those that came.
        jobs.sort_by_key(|(_, job)| job.queue);
        events.sort_by_key(|(_, event)| event.stream);
        Self {
            len,
            jobs,
            events,
            ends,
            requests,
        }
    }

    /// Claims come last: what is enqueued and given back beside them is there for them.
    fn write(&self, x: &mut Inline<'_>, now: i64) -> Answer<Vec<Written>> {
        let mut written: Vec<_> = (0..self.len).map(|_| Written::Finished(false)).collect();
        let ids = ready(insert(x, now, &items(&self.jobs)))?;
        place(
            &mut written,
            &self.jobs,
            ids.into_iter().map(Written::Inserted),
        );
        let offsets = ready(append(x, now, &items(&self.events)))?;
        place(
            &mut written,
            &self.events,
            offsets.into_iter().map(Written::Appended),
        );
        let landed = ready(finish(x, now, &items(&self.ends)))?;
        place(
            &mut written,
            &self.ends,
            landed.into_iter().map(Written::Finished),
        );
        let claimed = ready(claim(x, now, &items(&self.requests)))?;
        place(
            &mut written,
            &self.requests,
            claimed.into_iter().map(Written::Claimed),
        );
        Ok(written)
    }

    fn touched(&self, written: &[Written], wake: &mut dyn FnMut(Topic<'_>)) {
        let mut queues: Vec<_> = self.jobs.iter().map(|(_, job)| job.queue).collect();
        let back = |(place, end): &(usize, ClaimEnd<'i>)| {
            let landed = matches!(written.get(*place), Some(Written::Finished(true)));
            (landed && is_again(end)).then_some(end.claim.queue)
        };
        queues.extend(self.ends.iter().filter_map(back));
        queues.sort_unstable();
        queues.dedup();
        queues
            .into_iter()
            .for_each(|queue| wake(Topic::queue(queue)));
        let streams = self
            .events
            .chunk_by(|(_, one), (_, next)| one.stream == next.stream);
        for (_, event) in streams.filter_map(|run| run.first()) {
            wake(Topic::stream(event.stream));
        }
    }
}

fn items<T: Copy>(placed: &[(usize, T)]) -> Vec<T> {
    placed.iter().map(|(_, item)| *item).collect()
}

fn place<T>(
    written: &mut [Written],
    placed: &[(usize, T)],
    results: impl Iterator<Item = Written>,
) {
    for ((place, _), result) in std::iter::zip(placed, results) {
        if let Some(written) = written.get_mut(*place) {
            *written = result;
        }
    }
}

#[cfg(test)]
mod tests;
