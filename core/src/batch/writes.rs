//! The writes that handles make, each through its lane.

use super::batched;
use crate::engine::{
    At, ClaimEnd, ClaimRequest, Engine, NewEvent, NewJob, Results, Write, Written,
};
use crate::queue::Job;
use crate::{Result, Store};

impl<E: Engine> Store<E> {
    /// Inserts jobs, committed when this returns.
    pub(crate) async fn insert_jobs(&self, jobs: &[NewJob<'_>]) -> Result<Results<i64>> {
        let engine = self.live()?;
        let alone = engine.insert_jobs(At::Auto, jobs);
        let ids = |written| all(written, number);
        batched(self.lanes(), engine, jobs, Write::Insert, alone, ids).await
    }

    /// Appends events, committed when this returns.
    pub(crate) async fn append_events(&self, events: &[NewEvent<'_>]) -> Result<Results<i64>> {
        let engine = self.live()?;
        let alone = engine.append_events(At::Auto, events);
        let offsets = |written| all(written, number);
        batched(self.lanes(), engine, events, Write::Append, alone, offsets).await
    }

    /// Ends claims, committed when this returns.
    pub(crate) async fn finish_claims(&self, ends: &[ClaimEnd<'_>]) -> Result<Results<bool>> {
        let engine = self.live()?;
        let alone = engine.finish_claims(At::Auto, ends);
        let landed = |written| all(written, finished);
        batched(self.lanes(), engine, ends, Write::Finish, alone, landed).await
    }

    /// Claims jobs.
    pub(crate) async fn claim_jobs(&self, request: ClaimRequest<'_>) -> Result<Vec<Job>> {
        let engine = self.live()?;
        let requests = &[request];
        let alone = async { Ok(engine.claim_jobs(requests).await?.pop().unwrap_or_default()) };
        let jobs = |written: Vec<_>| written.into_iter().flat_map(claimed).collect();
        batched(self.lanes(), engine, requests, Write::Claim, alone, jobs).await
    }
}

/// The results of a call whose writes were all of one kind.
fn all<T, C: FromIterator<T>>(written: Vec<Written>, one: impl Fn(Written) -> Option<T>) -> C {
    written.into_iter().filter_map(one).collect()
}

fn number(written: Written) -> Option<i64> {
    match written {
        Written::Inserted(number) | Written::Appended(number) => Some(number),
        _ => None,
    }
}

fn finished(written: Written) -> Option<bool> {
    match written {
        Written::Finished(landed) => Some(landed),
        _ => None,
    }
}

fn claimed(written: Written) -> Vec<Job> {
    match written {
        Written::Claimed(jobs) => jobs,
        _ => Vec::new(),
    }
}
