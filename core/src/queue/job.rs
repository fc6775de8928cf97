//! Jobs: what is read of one, and what a claim can do with it.

use std::fmt;
use std::ops::Deref;

use serde::de::DeserializeOwned;

use crate::backoff;
use crate::engine::{ClaimEnd, ClaimId, Engine, Outcome};
use crate::options::at_least;
use crate::queue::only;
use crate::{Result, Store, payload};

/// What a job without an error text of its own died of.
const FAILED: &str = "failed";

/// Where a job is in its life. An acked or cancelled job is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobState {
    /// Waiting for a claim, or for its time.
    Pending,
    /// Claimed; the claim may have lapsed.
    Processing,
    /// Out of attempts, failed or expired, and kept to be looked at.
    Dead,
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Dead => "dead",
        })
    }
}

/// A job as it was when it was read. Times are unix seconds. It is a value; only the
/// [`JobHandle`] of a claim can act on the job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Job {
    /// Its id, unique in the database and never used again.
    pub id: i64,
    /// Its queue.
    pub queue: String,
    /// Where it is in its life.
    pub state: JobState,
    /// The encoded payload, byte for byte as it was enqueued.
    pub payload: Vec<u8>,
    /// Higher is claimed first.
    pub priority: i64,
    /// When it is ready.
    pub run_at: i64,
    /// How often it was claimed.
    pub attempts: i64,
    /// How often it may be claimed.
    pub max_attempts: i64,
    /// Who holds it, or for a dead job held it last.
    pub worker_id: Option<String>,
    /// When it was last claimed.
    pub claimed_at: Option<i64>,
    /// The claim's deadline: it holds up to and including this second. `None` without a claim.
    pub claim_expires_at: Option<i64>,
    /// When it was enqueued.
    pub created_at: i64,
    /// When it expires.
    pub expires_at: Option<i64>,
    /// How long a claim of it holds, in seconds.
    pub visibility_timeout_s: i64,
    /// The base of its retry delay, in seconds.
    pub backoff_base_s: i64,
    /// How long it is kept once it is dead, in seconds; `None` is for ever.
    pub dead_letter_retention_s: Option<i64>,
    /// What the last failed attempt said.
    pub last_error: Option<String>,
    /// When it died.
    pub died_at: Option<i64>,
}

impl Job {
    /// A pending job that says nothing else, for engines to fill in.
    ///
    /// ```
    /// use alkstore::{Job, JobState};
    ///
    /// let mut job = Job::new(7, "mail", b"1".to_vec());
    /// assert_eq!((job.state, job.attempts), (JobState::Pending, 0));
    /// job.attempts = 1;
    /// ```
    #[must_use]
    pub fn new(id: i64, queue: impl Into<String>, payload: Vec<u8>) -> Self {
        Self {
            id,
            queue: queue.into(),
            state: JobState::Pending,
            payload,
            priority: 0,
            run_at: 0,
            attempts: 0,
            max_attempts: 0,
            worker_id: None,
            claimed_at: None,
            claim_expires_at: None,
            created_at: 0,
            expires_at: None,
            visibility_timeout_s: 0,
            backoff_base_s: 0,
            dead_letter_retention_s: None,
            last_error: None,
            died_at: None,
        }
    }

    /// Decodes the payload.
    ///
    /// # Errors
    ///
    /// [`Error::Codec`](crate::Error::Codec) if the bytes are not a `T`.
    ///
    /// ```
    /// # fn example(job: alkstore::Job) -> alkstore::Result<()> {
    /// let numbers: Vec<u8> = job.payload_as()?;
    /// # Ok(()) }
    /// ```
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T> {
        payload::decode(&self.payload)
    }
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Swept {
    /// Live jobs that went to dead because they were past their expiry.
    pub expired: u64,
    /// Dead jobs that were deleted because they were past their retention.
    pub purged: u64,
}

impl Swept {
    /// The result of a sweep that did so much.
    ///
    /// ```
    /// let swept = alkstore::Swept::new(2, 1);
    /// assert_eq!((swept.expired, swept.purged), (2, 1));
    /// ```
    #[must_use]
    pub fn new(expired: u64, purged: u64) -> Self {
        Self { expired, purged }
    }
}

/// A claim of one job. Its operations land only while the job is processing, held by this
/// very claim, and the deadline has not passed; otherwise they return `false` and nothing
/// changes. Dropping it does nothing: the job comes back when the claim lapses.
///
/// It dereferences to the [`Job`] as it was claimed.
pub struct JobHandle<E> {
    store: Store<E>,
    job: Job,
    /// The queue as the engine knows it, if the job shows another name.
    backing: Option<String>,
}

impl<E> fmt::Debug for JobHandle<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JobHandle").field(&self.job).finish()
    }
}

impl<E> Deref for JobHandle<E> {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}

impl<E: Engine> JobHandle<E> {
    pub(crate) fn new(store: Store<E>, job: Job) -> Self {
        Self {
            store,
            job,
            backing: None,
        }
    }

    /// The handle of a job that shows `queue` as its queue: the outbox that it is behind.
    pub(crate) fn shown_in(mut self, queue: &str) -> Self {
        self.backing = Some(std::mem::replace(&mut self.job.queue, queue.to_owned()));
        self
    }

    /// The job as it was claimed.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    pub(crate) fn claim(&self) -> ClaimId<'_> {
        ClaimId {
            queue: self.backing.as_deref().unwrap_or(&self.job.queue),
            id: self.job.id,
            attempt: self.job.attempts,
        }
    }

    /// The job is done: deletes it. To let the ack commit with business writes, use
    /// [`Tx::ack_tx`](crate::Tx::ack_tx).
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has acked or has not; if not, the job comes back.
    ///
    /// ```
    /// # use alkstore::{Engine, JobHandle, Result};
    /// # async fn example<E: Engine>(job: JobHandle<E>) -> Result<()> {
    /// if !job.ack().await? {
    ///     println!("too late: somebody else may be doing it again");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn ack(self) -> Result<bool> {
        self.end_ack().await
    }

    /// The attempt failed: the job is ready again after `delay` seconds, or with no attempts
    /// left it is dead, with `error` as its last error. Without a delay it is random, between
    /// half the cap and the cap, which is `backoff_base_s` doubled with each attempt, at most
    /// an hour.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has landed or has not; if not, the job comes back when the claim lapses.
    ///
    /// ```
    /// # use alkstore::{Engine, JobHandle, Result};
    /// # async fn example<E: Engine>(job: JobHandle<E>) -> Result<()> {
    /// job.retry("the mail server is down", None).await?;
    /// # Ok(()) }
    /// ```
    pub async fn retry(self, error: &str, delay: Option<i64>) -> Result<bool> {
        self.end_retry(error, delay).await
    }
    /// The job cannot be done: it is dead at once, with `error`, or "failed", as its last
    /// error.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has landed or has not; if not, the job comes back when the claim lapses.
    ///
    /// ```
    /// # use alkstore::{Engine, JobHandle, Result};
    /// # async fn example<E: Engine>(job: JobHandle<E>) -> Result<()> {
    /// job.fail(Some("no such recipient")).await?;
    /// # Ok(()) }
    /// ```
    pub async fn fail(self, error: Option<&str>) -> Result<bool> {
        let error = &storable(error.unwrap_or(FAILED));
        self.end(Outcome::Dead { error }).await
    }

    /// Sets the claim's deadline to now plus `extend` seconds, however much was left.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for `extend` below 1;
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has moved the deadline or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, JobHandle, Result};
    /// # async fn example<E: Engine>(job: JobHandle<E>) -> Result<()> {
    /// assert!(job.heartbeat(60).await?, "the claim has lapsed: stop working");
    /// # Ok(()) }
    /// ```
    pub async fn heartbeat(&self, extend: i64) -> Result<bool> {
        at_least("extend", extend, 1)?;
        self.store.live()?.extend_claim(&self.claim(), extend).await
    }

    pub(crate) async fn end_ack(&self) -> Result<bool> {
        self.end(Outcome::Done).await
    }

    pub(crate) async fn end_retry(&self, error: &str, delay: Option<i64>) -> Result<bool> {
        let error = &storable(error);
        if self.job.attempts >= self.job.max_attempts {
            return self.end(Outcome::Dead { error }).await;
        }
        let delay =
            delay.unwrap_or_else(|| backoff::delay(self.job.backoff_base_s, self.job.attempts));
        self.end(Outcome::Again { delay, error }).await
    }

    async fn end(&self, outcome: Outcome<'_>) -> Result<bool> {
        let end = ClaimEnd {
            claim: self.claim(),
            outcome,
        };
        only(self.store.finish_claims(&[end]).await?)
    }
}

/// An error text that every database can store: text columns of Postgres hold no NUL.
fn storable(error: &str) -> String {
    error.replace('\0', "\u{fffd}")
}
