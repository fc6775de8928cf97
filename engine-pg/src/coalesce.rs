//! What this engine does together.
//!
//! Calls of one kind become one statement.

use std::mem::discriminant;
use std::time::Instant;

use alkstore::engine::At;
use alkstore::engine::coalesce::{
    Failed, Lanes, OwnedEnd, OwnedEvent, OwnedJob, OwnedRequest, Work,
};
use alkstore::{Error, Job, Result};

use crate::Postgres;

/// The lanes of all kinds.
#[derive(Debug, Default)]
pub(crate) struct AllLanes {
    insert: Lanes<OwnedJob, i64>,
    append: Lanes<OwnedEvent, i64>,
    work: Lanes<Working, Worked>,
}

/// What a worker asks for. A worker that has ended a claim asks for the next: so that those who
/// end together claim together, and end together again, all of a queue's share its lane.
#[derive(Debug)]
pub(crate) enum Working {
    Claim(OwnedRequest),
    End(OwnedEnd),
}

/// What becomes of [`Working`].
#[derive(Debug)]
pub(crate) enum Worked {
    Claimed(Vec<Job>),
    Landed(bool),
}

impl Worked {
    pub(crate) fn jobs(self) -> Vec<Job> {
        match self {
            Self::Claimed(jobs) => jobs,
            Self::Landed(_) => Vec::new(),
        }
    }

    pub(crate) fn landed(self) -> bool {
        matches!(self, Self::Landed(true))
    }
}

/// What is to be heard of a statement that failed: of one that may have landed, that nobody may
/// do it again but who asked for it.
fn failed(error: Error) -> Failed {
    if error.is_transient() {
        Failed::Broken(error)
    } else {
        Failed::Undone(error)
    }
}

macro_rules! work {
    ($item:ty, $output:ty, $lanes:ident, |$engine:ident, $items:ident| $run:expr) => {
        impl Work<Postgres> for $item {
            type Output = $output;
            type Turn = ();
            const INLINE: bool = false;

            fn lanes(engine: &Postgres) -> &Lanes<Self, $output> {
                &engine.inner().lanes.$lanes
            }

            async fn turn(_engine: &Postgres, _since: Instant) -> Result<()> {
                Ok(())
            }

            async fn run(
                $engine: &Postgres,
                _turn: (),
                items: &[Self],
            ) -> Result<Vec<$output>, Failed> {
                let $items: Vec<_> = items.iter().map(Self::borrow).collect();
                $run.await.map(Vec::from_iter).map_err(failed)
            }
        }
    };
}

work!(OwnedJob, i64, insert, |engine, jobs| engine
    .insert(At::Auto, &jobs));
work!(OwnedEvent, i64, append, |engine, events| engine
    .append(At::Auto, &events));

impl Work<Postgres> for Working {
    type Output = Worked;
    type Turn = ();
    const INLINE: bool = false;

    fn joins(&self, first: &Self) -> bool {
        discriminant(self) == discriminant(first)
    }

    fn lanes(engine: &Postgres) -> &Lanes<Self, Worked> {
        &engine.inner().lanes.work
    }

    async fn turn(_engine: &Postgres, _since: Instant) -> Result<()> {
        Ok(())
    }

    async fn run(engine: &Postgres, _turn: (), items: &[Self]) -> Result<Vec<Worked>, Failed> {
        let (mut requests, mut ends) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Self::Claim(request) => requests.push(request.borrow()),
                Self::End(end) => ends.push(end.borrow()),
            }
        }
        // All are of one kind.
        if ends.is_empty() {
            let claimed = engine.claim(&requests).await.map_err(failed)?;
            Ok(claimed.into_iter().map(Worked::Claimed).collect())
        } else {
            let landed = engine.finish(At::Auto, &ends).await.map_err(failed)?;
            Ok(landed.into_iter().map(Worked::Landed).collect())
        }
    }
}
