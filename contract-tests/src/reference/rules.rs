//! The rules of time, and the faults that break rules.

use std::time::Duration;

use alkstore::engine::ClaimId;
use alkstore::{Job, JobState};

use super::Fault;

/// What an operation goes by: the one instant at which it happens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) now: i64,
    /// The time since that second began.
    pub(super) subsec: Duration,
    pub(super) fault: Option<Fault>,
}

impl Rules {
    pub(super) fn breaks(self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// So many seconds from now, or the end of time.
    pub(super) fn after(self, seconds: i64) -> i64 {
        match self.fault {
            Some(Fault::OverflowWraps) => self.now.wrapping_add(seconds),
            _ => self.now.saturating_add(seconds),
        }
    }

    pub(super) fn is_ready(self, job: &Job) -> bool {
        match self.fault {
            Some(Fault::ClaimTakesUnready) => true,
            Some(Fault::ReadyExclusive) => job.run_at < self.now,
            _ => job.run_at <= self.now,
        }
    }

    pub(super) fn has_expired(self, job: &Job) -> bool {
        job.expires_at.is_some_and(|expiry| match self.fault {
            Some(Fault::ExpiryExclusive) => expiry < self.now,
            _ => expiry <= self.now,
        })
    }

    /// Whether the job's claim, if there is one, has lapsed: it holds in its last second.
    pub(super) fn claim_lapsed(self, job: &Job) -> bool {
        job.claim_expires_at
            .is_some_and(|deadline| match self.fault {
                Some(Fault::ClaimLapsesEarly) => deadline <= self.now,
                Some(Fault::ClaimLapsesLate) => deadline < self.now.saturating_sub(1),
                _ => deadline < self.now,
            })
    }

    pub(super) fn lock_lapsed(self, deadline: i64) -> bool {
        match self.fault {
            Some(Fault::LockLapsesEarly) => deadline <= self.now,
            Some(Fault::LockLapsesLate) => deadline < self.now.saturating_sub(1),
            _ => deadline < self.now,
        }
    }

    /// Whether this very claim holds the job now.
    pub(super) fn holds(self, job: &Job, claim: &ClaimId<'_>) -> bool {
        job.queue == claim.queue
            && job.state == JobState::Processing
            && (job.attempts == claim.attempt || self.breaks(Fault::StaleHandleActs))
            && (!self.claim_lapsed(job) || self.breaks(Fault::LapsedHandleActs))
    }

    pub(super) fn is_due(self, boundary: i64) -> bool {
        match self.fault {
            Some(Fault::AgendaExclusive) => boundary < self.now,
            _ => boundary <= self.now,
        }
    }

    /// The payload as it is stored: byte for byte as it came.
    pub(super) fn payload(self, payload: &[u8]) -> Vec<u8> {
        match self.fault {
            Some(Fault::PayloadReencoded) => reencoded(payload),
            Some(Fault::PayloadCut) => payload[..payload.len().min(65_535)].to_vec(),
            _ => payload.to_vec(),
        }
    }
}

/// What a database makes of a payload that it takes for JSON of its own.
fn reencoded(payload: &[u8]) -> Vec<u8> {
    let value = serde_json::from_slice::<serde_json::Value>(payload);
    value.map_or_else(|_| payload.to_vec(), |value| value.to_string().into_bytes())
}
