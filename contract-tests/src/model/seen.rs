//! What an operation showed, in terms that both sides share.

use alkstore::engine::Agenda;
use alkstore::{Error, Job, Schedule, StreamEvent, Swept};

/// What an operation showed. Ids and tokens are those of the [`Kept`](super::side::Kept): a
/// job's id is its place among the jobs that were enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Seen {
    /// It was done and says nothing, or there was nothing to do it to.
    Nothing,
    /// Whether it landed.
    Landed(bool),
    /// How many.
    Count(i64),
    /// Jobs were enqueued: their places.
    Enqueued(Vec<i64>),
    /// A job, if it is there.
    Job(Option<Box<Job>>),
    /// Jobs that were claimed.
    Claimed(Vec<Job>),
    /// What a sweep did.
    Swept(Swept),
    /// The offsets of what was published.
    Offsets(Vec<i64>),
    /// Events that were read.
    Events(Vec<StreamEvent>),
    /// A lock was acquired, with the n-th token of its name.
    Locked(Option<usize>),
    /// A schedule was set.
    Schedule(Schedule),
    /// The schedules, and which of them moved on.
    Agenda(Agenda),
    /// One thing after another.
    All(Vec<Seen>),
    /// It failed, with an error of this variant.
    Failed(&'static str),
}

impl Seen {
    /// What a call showed, or how it failed.
    pub(super) fn of(result: alkstore::Result<Self>) -> Self {
        result.unwrap_or_else(|error| Self::Failed(variant(&error)))
    }

    /// The first difference of two lists of what was seen, or the whole of both.
    pub(super) fn differ<'s>(&'s self, other: &'s Self) -> Option<(&'s Self, &'s Self)> {
        if self == other {
            return None;
        }
        if let (Self::All(these), Self::All(those)) = (self, other)
            && these.len() == those.len()
        {
            return std::iter::zip(these, those).find_map(|(a, b)| a.differ(b));
        }
        Some((self, other))
    }
}

/// Engines word their errors as they like; which it is, they agree on.
fn variant(error: &Error) -> &'static str {
    match error {
        Error::PayloadTooLarge { .. } => "PayloadTooLarge",
        Error::ReservedName { .. } => "ReservedName",
        Error::InvalidName { .. } => "InvalidName",
        Error::InvalidSpec { .. } => "InvalidSpec",
        Error::InvalidArgument { argument, .. } => argument,
        Error::LeadershipLost => "LeadershipLost",
        Error::Closed => "Closed",
        Error::Codec(_) => "Codec",
        Error::Database(_) => "Database",
        _ => "another error",
    }
}
