//! What is measured: workloads with their numbers.

use std::fmt;
use std::time::Duration;

use crate::options::Options;
use crate::peers::Engine;

/// What a case is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    /// Operations in a second: more is better.
    Rate,
    /// Milliseconds for an operation: less is better.
    Time,
    /// Per cent of a core: less is better.
    Busy,
}

/// A workload with its numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    place: usize,
    /// Its short name, by which targets and the command line know it.
    pub(crate) id: &'static str,
    label: &'static str,
    pub(crate) workload: &'static str,
    pub(crate) metric: Metric,
    pub(crate) tasks: usize,
    pub(crate) operations: usize,
    pub(crate) behind: usize,
    pub(crate) time: Duration,
    /// Whether each commit waits for the disk. On a server it always does.
    pub(crate) full: bool,
    repeats: Repeats,
}

/// In which rounds a case is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Repeats {
    /// In all.
    Always,
    /// Ours and the limit in all, the others in the first: to pile the jobs up takes them longer
    /// than all the rest.
    Ours,
}

/// Id, label, workload, tasks, the most operations, jobs behind or in front.
type Spec = (&'static str, &'static str, &'static str, usize, u32, u32);

/// The numbers are such that the fastest have enough to do for about a second; the slower ones
/// stop when the time is over.
#[rustfmt::skip]
const CASES: &[Spec] = &[
    ("enqueue-1", "enqueue, 1 task", "enqueue", 1, 60_000, 0),
    ("enqueue-16", "enqueue, 16 tasks", "enqueue", 16, 120_000, 0),
    ("enqueue-64", "enqueue, 64 tasks", "enqueue", 64, 200_000, 0),
    ("enqueue-16-full", "enqueue, 16 tasks, FULL", "enqueue", 16, 40_000, 0),
    ("enqueue-batch", "enqueue_batch of 1000, rows", "enqueue_batch", 1, 500_000, 0),
    ("claim-1", "claim + ack, 1 task", "claim_ack", 1, 25_000, 0),
    ("claim-8", "claim + ack, 8 tasks", "claim_ack", 8, 40_000, 0),
    ("claim-batch", "claim_batch(100) + ack_batch, jobs", "claim_batch_ack", 1, 200_000, 0),
    ("publish-1", "publish, 1 task", "publish", 1, 80_000, 0),
    ("publish-16", "publish, 16 tasks", "publish", 16, 150_000, 0),
    ("read", "read_since(1000), a call", "read_since", 1, 5_000, 0),
    ("behind-1k", "claim + ack, 1 k ready behind", "claim_with_ready_behind",
        1, 2_000, 1_000),
    ("behind-100k", "claim + ack, 100 k ready behind", "claim_with_ready_behind",
        1, 2_000, 100_000),
    ("behind-1m", "claim + ack, 1 M ready behind", "claim_with_ready_behind",
        1, 2_000, 1_000_000),
    ("front-delayed", "claim + ack, 100 k delayed in front", "claim_with_delayed_in_front",
        1, 2_000, 100_000),
    ("front-dead", "claim + ack, 100 k dead in front", "claim_with_dead_in_front",
        1, 2_000, 100_000),
    ("front-processing", "claim + ack, 100 k processing in front", "claim_with_processing_in_front",
        1, 2_000, 100_000),
    ("front-expired", "claim + ack, 100 k expired in front", "claim_with_expired_in_front",
        1, 2_000, 100_000),
    ("wake-same", "commit to wake, same process", "wake_same_process", 1, 300, 0),
    ("wake-other", "commit to wake, other process", "wake_other_process", 1, 300, 0),
    ("idle", "idle listener, of one core", "idle", 1, 1, 0),
];

/// A wake comes every ten milliseconds.
const WAKES: Duration = Duration::from_millis(4500);

/// How long an idle listener is looked at.
const IDLE: Duration = Duration::from_secs(10);

impl Case {
    /// Those that are wanted.
    pub(crate) fn all(options: &Options) -> Vec<Self> {
        CASES
            .iter()
            .enumerate()
            .filter(|(_, (id, _, workload, ..))| options.wants_workload(workload, id))
            .map(|(place, spec)| Self::new(place, spec, options))
            .collect()
    }

    fn new(place: usize, spec: &Spec, options: &Options) -> Self {
        let (id, label, workload, tasks, operations, behind) = *spec;
        let (metric, time, repeats) = match id {
            "idle" => (Metric::Busy, IDLE, Repeats::Ours),
            "wake-same" | "wake-other" => (Metric::Time, WAKES, Repeats::Always),
            _ => {
                let time = Duration::from_secs_f64(options.seconds);
                let metric = match workload {
                    "read_since" => Metric::Time,
                    _ if behind > 0 => Metric::Time,
                    _ => Metric::Rate,
                };
                let repeats = match behind {
                    0..=1_000 => Repeats::Always,
                    _ => Repeats::Ours,
                };
                (metric, time, repeats)
            }
        };
        Self {
            place,
            id,
            label,
            workload,
            metric,
            tasks,
            operations: scaled(operations, options.scale),
            behind: scaled(behind, options.scale),
            time: time.mul_f64(options.scale),
            full: id.ends_with("-full"),
            repeats,
        }
    }

    /// Whether there is such a case on this engine.
    pub(crate) fn is_for(&self, engine: Engine) -> bool {
        !self.full || engine == Engine::Sqlite
    }

    /// Whether this peer's turn comes in this round.
    pub(crate) fn is_due(&self, round: usize, peer: &str) -> bool {
        round == 1
            || match self.repeats {
                Repeats::Always => true,
                Repeats::Ours => peer == "ours" || peer == "raw",
            }
    }
}

/// At least one operation, whatever the scale.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float becomes the nearest number that there is, which is what is wanted"
)]
fn scaled(number: u32, scale: f64) -> usize {
    ((f64::from(number) * scale) as usize).max(1)
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label)
    }
}

impl Metric {
    /// A figure with its unit.
    pub(crate) fn text(self, value: f64) -> String {
        match self {
            Self::Rate if value >= 100_000.0 => format!("{:.0} k/s", value / 1000.0),
            Self::Rate if value >= 1000.0 => format!("{:.1} k/s", value / 1000.0),
            Self::Rate => format!("{value:.0} /s"),
            Self::Time if value >= 100.0 => format!("{value:.0} ms"),
            Self::Time if value >= 1.0 => format!("{value:.1} ms"),
            Self::Time => format!("{value:.3} ms"),
            Self::Busy => format!("{value:.3} %"),
        }
    }

    /// How many times better one figure is than another.
    pub(crate) fn times_better(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Rate => one / other,
            Self::Time | Self::Busy => other / one,
        }
    }
}
