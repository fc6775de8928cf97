//! What is measured.

use std::fmt;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Jobs enqueued, each in a commit of its own.
    Enqueue,
    /// Jobs enqueued, [`ROWS`](crate::ROWS) in a commit.
    EnqueueBatch,
    /// Jobs claimed one at a time and acked one at a time.
    ClaimAck,
    /// Jobs claimed [`CLAIMS`](crate::CLAIMS) at a time and acked together.
    ClaimBatchAck,
    /// Events published, each in a commit of its own.
    Publish,
    /// [`ROWS`](crate::ROWS) events read back from somewhere in a stream.
    ReadSince,
    /// [`Workload::ClaimAck`] while many more jobs are ready than are claimed.
    ClaimWithReadyBehind,
    /// [`Workload::ClaimAck`] while many jobs that nobody may claim come before the ready ones.
    ClaimWithInFront(Front),
    /// From a commit until a listener in the same process has heard of it.
    WakeSameProcess,
    /// From a commit until a listener in another process has heard of it.
    WakeOtherProcess,
    /// What a listener costs to whom nothing happens.
    Idle,
}

/// Why a job that comes before the ready ones cannot be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    /// It is of a higher priority, but for later.
    Delayed,
    /// It was of a higher priority and is dead.
    Dead,
    /// It was of a higher priority and somebody has claimed it.
    Processing,
    /// It is of a higher priority, its time is over, and nobody has swept it away.
    Expired,
}

impl Workload {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Enqueue,
        Self::EnqueueBatch,
        Self::ClaimAck,
        Self::ClaimBatchAck,
        Self::Publish,
        Self::ReadSince,
        Self::ClaimWithReadyBehind,
        Self::ClaimWithInFront(Front::Delayed),
        Self::ClaimWithInFront(Front::Dead),
        Self::ClaimWithInFront(Front::Processing),
        Self::ClaimWithInFront(Front::Expired),
        Self::WakeSameProcess,
        Self::WakeOtherProcess,
        Self::Idle,
    ];

    /// Its name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::EnqueueBatch => "enqueue_batch",
            Self::ClaimAck => "claim_ack",
            Self::ClaimBatchAck => "claim_batch_ack",
            Self::Publish => "publish",
            Self::ReadSince => "read_since",
            Self::ClaimWithReadyBehind => "claim_with_ready_behind",
            Self::ClaimWithInFront(Front::Delayed) => "claim_with_delayed_in_front",
            Self::ClaimWithInFront(Front::Dead) => "claim_with_dead_in_front",
            Self::ClaimWithInFront(Front::Processing) => "claim_with_processing_in_front",
            Self::ClaimWithInFront(Front::Expired) => "claim_with_expired_in_front",
            Self::WakeSameProcess => "wake_same_process",
            Self::WakeOtherProcess => "wake_other_process",
            Self::Idle => "idle",
        }
    }

    /// The workload of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let all = Self::ALL.iter().copied();
        all.into_iter().find(|workload| workload.name() == name)
    }

    /// Whether a call is so much by itself that its time is what people ask for.
    #[must_use]
    pub(crate) fn is_timed_by_call(self) -> bool {
        matches!(
            self,
            Self::ReadSince | Self::ClaimWithReadyBehind | Self::ClaimWithInFront(_)
        )
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
