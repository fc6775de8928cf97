//! What this engine does together.
//!
//! Calls of one kind become one statement.

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
    claim: Lanes<OwnedRequest, Vec<Job>>,
    finish: Lanes<OwnedEnd, bool>,
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
                $run.await
                    .map(IntoIterator::into_iter)
                    .map(Iterator::collect)
                    .map_err(failed)
            }
        }
    };
}

work!(OwnedJob, i64, insert, |engine, jobs| engine
    .insert(At::Auto, &jobs));
work!(OwnedEvent, i64, append, |engine, events| engine
    .append(At::Auto, &events));
work!(OwnedRequest, Vec<Job>, claim, |engine, requests| engine
    .claim(&requests));
work!(OwnedEnd, bool, finish, |engine, ends| engine
    .finish(At::Auto, &ends));
