//! What waits: the items of an engine's calls, with their borrowed parts copied.

use crate::engine::{ClaimEnd, ClaimId, ClaimRequest, NewEvent, NewJob, Outcome, Ready, Stamps};

/// A [`NewJob`] that waits.
///
/// ```
/// use alkstore::engine::coalesce::OwnedJob;
/// use alkstore::engine::{NewJob, Ready, Stamps};
///
/// let stamps = Stamps {
///     visibility_timeout_s: 300,
///     max_attempts: 3,
///     backoff_base_s: 5,
///     dead_letter_retention_s: None,
/// };
/// let job = NewJob {
///     queue: "mail",
///     payload: b"1",
///     ready: Ready::Now,
///     priority: 0,
///     expires: None,
///     stamps,
/// };
/// assert_eq!(OwnedJob::from(&job).borrow(), job);
/// ```
#[derive(Debug)]
pub struct OwnedJob {
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
    /// The job as an engine takes it.
    #[must_use]
    pub fn borrow(&self) -> NewJob<'_> {
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

/// A [`NewEvent`] that waits.
///
/// ```
/// use alkstore::engine::coalesce::OwnedEvent;
/// use alkstore::engine::NewEvent;
///
/// let event = NewEvent {
///     stream: "orders",
///     key: Some("customer-7"),
///     payload: b"1",
/// };
/// assert_eq!(OwnedEvent::from(&event).borrow(), event);
/// ```
#[derive(Debug)]
pub struct OwnedEvent {
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
    /// The event as an engine takes it.
    #[must_use]
    pub fn borrow(&self) -> NewEvent<'_> {
        NewEvent {
            stream: &self.stream,
            key: self.key.as_deref(),
            payload: &self.payload,
        }
    }
}

/// A [`ClaimRequest`] that waits.
///
/// ```
/// use alkstore::engine::coalesce::OwnedRequest;
/// use alkstore::engine::ClaimRequest;
///
/// let request = ClaimRequest {
///     queue: "mail",
///     worker: "worker-1",
///     limit: 10,
/// };
/// assert_eq!(OwnedRequest::from(&request).borrow(), request);
/// ```
#[derive(Debug)]
pub struct OwnedRequest {
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
    /// The request as an engine takes it.
    #[must_use]
    pub fn borrow(&self) -> ClaimRequest<'_> {
        ClaimRequest {
            queue: &self.queue,
            worker: &self.worker,
            limit: self.limit,
        }
    }
}

/// A [`ClaimEnd`] that waits.
///
/// ```
/// use alkstore::engine::coalesce::OwnedEnd;
/// use alkstore::engine::{ClaimEnd, ClaimId, Outcome};
///
/// let end = ClaimEnd {
///     claim: ClaimId {
///         id: 1,
///         queue: "mail",
///         attempt: 1,
///     },
///     outcome: Outcome::Done,
/// };
/// assert_eq!(OwnedEnd::from(&end).borrow(), end);
/// ```
#[derive(Debug)]
pub struct OwnedEnd {
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
    /// The end as an engine takes it.
    #[must_use]
    pub fn borrow(&self) -> ClaimEnd<'_> {
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
