//! What waits: the items of the engine's calls, with their borrowed parts copied.

use alkstore::engine::{
    At, ClaimEnd, ClaimId, ClaimRequest, NewEvent, NewJob, Outcome, Ready, Stamps,
};
use alkstore::{Job, Result};

use super::{Lanes, Work};
use crate::Postgres;
use crate::backend::Inner;

/// A [`NewJob`] that waits.
#[derive(Debug)]
pub(crate) struct OwnedJob {
    queue: String,
    payload: Vec<u8>,
    ready: Ready,
    priority: i64,
    expires: Option<i64>,
    stamps: Stamps,
}

impl From<&NewJob<'_>> for OwnedJob {
    fn from(job: &NewJob<'_>) -> Self {
        Self {
            queue: job.queue.to_owned(),
            payload: job.payload.to_vec(),
            ready: job.ready,
            priority: job.priority,
            expires: job.expires,
            stamps: job.stamps,
        }
    }
}

impl Work for OwnedJob {
    type Output = i64;

    fn lanes(inner: &Inner) -> &Lanes<Self> {
        &inner.lanes.insert
    }

    async fn run(engine: &Postgres, items: &[Self]) -> Result<Vec<i64>> {
        let jobs: Vec<_> = items
            .iter()
            .map(|job| NewJob {
                queue: &job.queue,
                payload: &job.payload,
                ready: job.ready,
                priority: job.priority,
                expires: job.expires,
                stamps: job.stamps,
            })
            .collect();
        engine.insert(At::Auto, &jobs).await
    }
}

/// A [`NewEvent`] that waits.
#[derive(Debug)]
pub(crate) struct OwnedEvent {
    stream: String,
    key: Option<String>,
    payload: Vec<u8>,
}

impl From<&NewEvent<'_>> for OwnedEvent {
    fn from(event: &NewEvent<'_>) -> Self {
        Self {
            stream: event.stream.to_owned(),
            key: event.key.map(str::to_owned),
            payload: event.payload.to_vec(),
        }
    }
}

impl Work for OwnedEvent {
    type Output = i64;

    fn lanes(inner: &Inner) -> &Lanes<Self> {
        &inner.lanes.append
    }

    async fn run(engine: &Postgres, items: &[Self]) -> Result<Vec<i64>> {
        let events: Vec<_> = items
            .iter()
            .map(|event| NewEvent {
                stream: &event.stream,
                key: event.key.as_deref(),
                payload: &event.payload,
            })
            .collect();
        engine.append(At::Auto, &events).await
    }
}

/// A [`ClaimRequest`] that waits.
#[derive(Debug)]
pub(crate) struct OwnedRequest {
    queue: String,
    worker: String,
    limit: i64,
}

impl From<&ClaimRequest<'_>> for OwnedRequest {
    fn from(request: &ClaimRequest<'_>) -> Self {
        Self {
            queue: request.queue.to_owned(),
            worker: request.worker.to_owned(),
            limit: request.limit,
        }
    }
}

impl Work for OwnedRequest {
    type Output = Vec<Job>;

    fn lanes(inner: &Inner) -> &Lanes<Self> {
        &inner.lanes.claim
    }

    async fn run(engine: &Postgres, items: &[Self]) -> Result<Vec<Vec<Job>>> {
        let requests: Vec<_> = items
            .iter()
            .map(|request| ClaimRequest {
                queue: &request.queue,
                worker: &request.worker,
                limit: request.limit,
            })
            .collect();
        engine.claim(&requests).await
    }
}

/// A [`ClaimEnd`] that waits.
#[derive(Debug)]
pub(crate) struct OwnedEnd {
    queue: String,
    id: i64,
    attempt: i64,
    outcome: OwnedOutcome,
}

#[derive(Debug)]
enum OwnedOutcome {
    Done,
    Again { delay: i64, error: String },
    Dead { error: String },
}

impl From<&ClaimEnd<'_>> for OwnedEnd {
    fn from(end: &ClaimEnd<'_>) -> Self {
        Self {
            queue: end.claim.queue.to_owned(),
            id: end.claim.id,
            attempt: end.claim.attempt,
            outcome: match end.outcome {
                Outcome::Done => OwnedOutcome::Done,
                Outcome::Again { delay, error } => OwnedOutcome::Again {
                    delay,
                    error: error.to_owned(),
                },
                Outcome::Dead { error } => OwnedOutcome::Dead {
                    error: error.to_owned(),
                },
            },
        }
    }
}

impl Work for OwnedEnd {
    type Output = bool;

    fn lanes(inner: &Inner) -> &Lanes<Self> {
        &inner.lanes.finish
    }

    async fn run(engine: &Postgres, items: &[Self]) -> Result<Vec<bool>> {
        let ends: Vec<_> = items
            .iter()
            .map(|end| ClaimEnd {
                claim: ClaimId {
                    queue: &end.queue,
                    id: end.id,
                    attempt: end.attempt,
                },
                outcome: match &end.outcome {
                    OwnedOutcome::Done => Outcome::Done,
                    OwnedOutcome::Again { delay, error } => Outcome::Again {
                        delay: *delay,
                        error,
                    },
                    OwnedOutcome::Dead { error } => Outcome::Dead { error },
                },
            })
            .collect();
        engine.finish(At::Auto, &ends).await
    }
}

/// The lanes of all kinds.
#[derive(Debug, Default)]
pub(crate) struct AllLanes {
    insert: Lanes<OwnedJob>,
    append: Lanes<OwnedEvent>,
    claim: Lanes<OwnedRequest>,
    finish: Lanes<OwnedEnd>,
}
