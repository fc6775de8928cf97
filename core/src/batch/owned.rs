//! Writes with their borrowed parts copied, so that they can wait.

use crate::engine::{
    ClaimEnd, ClaimId, ClaimRequest, NewEvent, NewJob, Outcome, Ready, Stamps, Write,
};

/// A [`Write`] that waits.
#[derive(Debug)]
pub(super) enum OwnedWrite {
    Insert(OwnedJob),
    Append(OwnedEvent),
    Finish(OwnedEnd),
    Claim(OwnedRequest),
}

impl From<&Write<'_>> for OwnedWrite {
    fn from(write: &Write<'_>) -> Self {
        match write {
            Write::Insert(job) => Self::Insert(job.into()),
            Write::Append(event) => Self::Append(event.into()),
            Write::Finish(end) => Self::Finish(end.into()),
            Write::Claim(request) => Self::Claim(request.into()),
        }
    }
}

impl OwnedWrite {
    /// The write as an engine takes it.
    pub(super) fn borrow(&self) -> Write<'_> {
        match self {
            Self::Insert(job) => Write::Insert(job.borrow()),
            Self::Append(event) => Write::Append(event.borrow()),
            Self::Finish(end) => Write::Finish(end.borrow()),
            Self::Claim(request) => Write::Claim(request.borrow()),
        }
    }
}

#[derive(Debug)]
pub(super) struct OwnedJob {
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

impl OwnedJob {
    fn borrow(&self) -> NewJob<'_> {
        NewJob {
            queue: &self.queue,
            payload: &self.payload,
            ready: self.ready,
            priority: self.priority,
            expires: self.expires,
            stamps: self.stamps,
        }
    }
}

#[derive(Debug)]
pub(super) struct OwnedEvent {
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

impl OwnedEvent {
    fn borrow(&self) -> NewEvent<'_> {
        NewEvent {
            stream: &self.stream,
            key: self.key.as_deref(),
            payload: &self.payload,
        }
    }
}

#[derive(Debug)]
pub(super) struct OwnedRequest {
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

impl OwnedRequest {
    fn borrow(&self) -> ClaimRequest<'_> {
        ClaimRequest {
            queue: &self.queue,
            worker: &self.worker,
            limit: self.limit,
        }
    }
}

#[derive(Debug)]
pub(super) struct OwnedEnd {
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

impl OwnedEnd {
    fn borrow(&self) -> ClaimEnd<'_> {
        ClaimEnd {
            claim: ClaimId {
                queue: &self.queue,
                id: self.id,
                attempt: self.attempt,
            },
            outcome: match &self.outcome {
                OwnedOutcome::Done => Outcome::Done,
                OwnedOutcome::Again { delay, error } => Outcome::Again {
                    delay: *delay,
                    error,
                },
                OwnedOutcome::Dead { error } => Outcome::Dead { error },
            },
        }
    }
}
