//! The jobs that are there before any is claimed.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::drive::{size, warming};
use crate::{Answer, Caller, Measure, Outcome, Peer, ROWS, Workload};

/// How many jobs are enqueued before the clock goes on, where no backlog is what is measured: to
/// claim from a long queue is a workload of its own.
const LAP: usize = 2 * ROWS;

/// The same for claims of many.
const BATCH_LAP: usize = 20 * ROWS;

/// How many jobs are ready behind those that others stand in front of.
const BEHIND_FRONT: usize = ROWS;

/// How much longer than the clock runs the enqueueing of what is to be claimed may take. Then
/// there are fewer jobs to claim.
const FILLING: f64 = 3.0;

/// The same where a great backlog is what is measured. Then it is less great.
const PILING: f64 = 15.0;

/// Enqueues what is to be claimed.
#[derive(Debug)]
pub(crate) struct Fill {
    workload: Workload,
    /// How many at once are claimed at most before more are enqueued.
    lap: usize,
    /// How many jobs are to stay ready, and how many do.
    behind: usize,
    stay: usize,
    in_front: usize,
    /// What is claimed before the clock starts.
    spare: usize,
    time: Duration,
}

impl Fill {
    /// For a measurement of a peer that hands its jobs out, or is asked for them.
    pub(crate) fn new(measure: &Measure, hands_out: bool) -> Self {
        let workload = measure.workload;
        let (behind, longer) = match workload {
            Workload::ClaimWithReadyBehind => (measure.behind, PILING),
            Workload::ClaimWithInFront(_) => (BEHIND_FRONT, PILING),
            _ => (0, FILLING),
        };
        let lap = match workload {
            // A worker has to be started for each lap.
            _ if hands_out => usize::MAX,
            Workload::ClaimAck => LAP * measure.tasks.min(2),
            Workload::ClaimBatchAck => BATCH_LAP,
            _ => usize::MAX,
        };
        let warming = warming(workload) * size(workload) * measure.tasks;
        Self {
            workload,
            lap,
            behind,
            stay: 0,
            in_front: measure.behind,
            spare: if hands_out { 0 } else { warming },
            time: measure.time.mul_f64(longer),
        }
    }

    /// Whether the workload is to claim jobs.
    pub(crate) fn is_needed(&self) -> bool {
        matches!(
            self.workload,
            Workload::ClaimAck
                | Workload::ClaimBatchAck
                | Workload::ClaimWithReadyBehind
                | Workload::ClaimWithInFront(_)
        )
    }

    /// Enqueues jobs to claim, with those that are to stay behind them, and returns how many there
    /// are: fewer than are wanted where that takes too long.
    pub(crate) async fn make<P: Peer>(
        &mut self,
        caller: &mut P::Caller,
        operations: usize,
    ) -> Answer<usize> {
        let operations = operations.min(self.lap);
        let extra = self.spare + self.behind - self.stay;
        let start = Instant::now();
        let filled = self.enqueue::<P>(caller, operations + extra).await?;
        self.time = self.time.saturating_sub(start.elapsed());
        let filled = filled.saturating_sub(self.spare);
        self.spare = 0;
        let operations = operations.min(filled);
        self.stay += filled - operations;
        Ok(operations)
    }

    /// Enqueues jobs while there is time and returns how many.
    async fn enqueue<P: Peer>(&self, caller: &mut P::Caller, jobs: usize) -> Answer<usize> {
        let batches = P::CAN.contains(&Workload::EnqueueBatch);
        let start = Instant::now();
        let mut filled = 0;
        while filled < jobs && start.elapsed() < self.time {
            if batches {
                let batch = ROWS.min(jobs - filled);
                caller.enqueue_batch(batch).await?;
                filled += batch;
            } else {
                caller.enqueue().await?;
                filled += 1;
            }
        }
        Ok(filled)
    }

    /// Adds to an outcome what it was measured with.
    pub(crate) fn note(&self, outcome: Outcome) -> Answer<Outcome> {
        if outcome.operations == 0 {
            return Err("nothing was done in the time".into());
        }
        Ok(match self.workload {
            Workload::ClaimWithReadyBehind => outcome.with("behind", json!(self.stay)),
            Workload::ClaimWithInFront(_) => outcome.with("in_front", json!(self.in_front)),
            _ => outcome,
        })
    }
}
