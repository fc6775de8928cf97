//! What this engine does together: everything that many write.
//!
//! There is one writer, so there is one lane. What waits becomes one transaction, whatever it is.

use std::time::Instant;

use alkstore::engine::coalesce::{
    Failed, Lanes, OwnedEnd, OwnedEvent, OwnedJob, OwnedRequest, Work,
};
use alkstore::engine::{ClaimEnd, ClaimRequest, NewEvent, NewJob, Topic};
use alkstore::{Job, Result};

use crate::Sqlite;
use crate::error::Answer;
use crate::exec::{Inline, ready};
use crate::queue::{claim, finish, insert, is_again};
use crate::stream::append;

/// An item of a call that writes.
#[derive(Debug)]
pub(crate) enum Write {
    Insert(OwnedJob),
    Append(OwnedEvent),
    End(OwnedEnd),
    Claim(OwnedRequest),
}

/// What an item comes back with.
#[derive(Debug)]
pub(crate) enum Wrote {
    /// A job's id, an event's offset.
    Number(i64),
    /// Whether the end of a claim landed.
    Landed(bool),
    Claimed(Vec<Job>),
}

impl Wrote {
    pub(crate) fn number(self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn landed(self) -> Option<bool> {
        match self {
            Self::Landed(landed) => Some(landed),
            _ => None,
        }
    }

    pub(crate) fn claimed(self) -> Option<Vec<Job>> {
        match self {
            Self::Claimed(jobs) => Some(jobs),
            _ => None,
        }
    }
}

/// The results of a call whose items were all of one kind.
pub(crate) fn all<T, C: FromIterator<T>>(wrote: Vec<Wrote>, one: impl Fn(Wrote) -> Option<T>) -> C {
    wrote.into_iter().filter_map(one).collect()
}

impl Work<Sqlite> for Write {
    type Output = Wrote;
    type Turn = crate::backend::Writing;
    const INLINE: bool = true;

    fn lanes(engine: &Sqlite) -> &Lanes<Self, Wrote> {
        &engine.inner().lanes
    }

    async fn turn(engine: &Sqlite, since: Instant) -> Result<Self::Turn> {
        engine.inner().begin_writing(DOING, since).await
    }

    async fn run(engine: &Sqlite, turn: Self::Turn, items: &[Self]) -> Result<Vec<Wrote>, Failed> {
        let batch = Batch::new(items);
        let write = |x: &mut Inline<'_>, now| batch.write(x, now);
        let touched =
            |wrote: &Vec<Wrote>, wake: &mut dyn FnMut(Topic<'_>)| batch.touched(wrote, wake);
        engine.inner().write_on(DOING, turn, write, touched).await
    }
}

const DOING: &str = "writing";

/// Items by what they do, each with its place among all.
struct Batch<'i> {
    len: usize,
    jobs: Vec<(usize, NewJob<'i>)>,
    events: Vec<(usize, NewEvent<'i>)>,
    ends: Vec<(usize, ClaimEnd<'i>)>,
    requests: Vec<(usize, ClaimRequest<'i>)>,
}

impl<'i> Batch<'i> {
    fn new(items: &'i [Write]) -> Self {
        let (mut jobs, mut events) = (Vec::new(), Vec::new());
        let (mut ends, mut requests) = (Vec::new(), Vec::new());
        for (place, item) in items.iter().enumerate() {
            match item {
                Write::Insert(job) => jobs.push((place, job.borrow())),
                Write::Append(event) => events.push((place, event.borrow())),
                Write::End(end) => ends.push((place, end.borrow())),
                Write::Claim(request) => requests.push((place, request.borrow())),
            }
        }
        // What goes to one place is written by one statement. A stable sort keeps the order of
        // those that came.
        jobs.sort_by_key(|(_, job)| job.queue);
        events.sort_by_key(|(_, event)| event.stream);
        Self {
            len: items.len(),
            jobs,
            events,
            ends,
            requests,
        }
    }

    /// Claims come last: what is enqueued and given back beside them is there for them.
    fn write(&self, x: &mut Inline<'_>, now: i64) -> Answer<Vec<Wrote>> {
        let mut wrote: Vec<_> = (0..self.len).map(|_| Wrote::Landed(false)).collect();
        let ids = ready(insert(x, now, &items(&self.jobs)))?;
        place(&mut wrote, &self.jobs, ids.into_iter().map(Wrote::Number));
        let offsets = ready(append(x, now, &items(&self.events)))?;
        place(
            &mut wrote,
            &self.events,
            offsets.into_iter().map(Wrote::Number),
        );
        let landed = ready(finish(x, now, &items(&self.ends)))?;
        place(
            &mut wrote,
            &self.ends,
            landed.into_iter().map(Wrote::Landed),
        );
        let claimed = ready(claim(x, now, &items(&self.requests)))?;
        place(
            &mut wrote,
            &self.requests,
            claimed.into_iter().map(Wrote::Claimed),
        );
        Ok(wrote)
    }

    fn touched(&self, wrote: &[Wrote], wake: &mut dyn FnMut(Topic<'_>)) {
        let mut queues: Vec<_> = self.jobs.iter().map(|(_, job)| job.queue).collect();
        let back = |(place, end): &(usize, ClaimEnd<'i>)| {
            let landed = matches!(wrote.get(*place), Some(Wrote::Landed(true)));
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

fn place<T>(wrote: &mut [Wrote], placed: &[(usize, T)], results: impl Iterator<Item = Wrote>) {
    for ((place, _), result) in std::iter::zip(placed, results) {
        if let Some(wrote) = wrote.get_mut(*place) {
            *wrote = result;
        }
    }
}

#[cfg(test)]
mod tests;
