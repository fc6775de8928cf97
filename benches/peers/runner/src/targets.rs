//! What is wanted of ours, and whether it is so. Absolute figures differ between machines: only
//! ratios of one run say something, but for the few that hardly depend on the machine.

use crate::peers::Engine;
use crate::peers::Engine::{Postgres, Sqlite};
use crate::results::Results;

/// What a figure of ours is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rule {
    /// At least so many times a peer's.
    AtLeast(f64, &'static str),
    /// At most a peer's, divided by this.
    AtMostOne(&'static str, f64),
    /// At most so many times a peer's.
    AtMost(f64, &'static str),
    /// At most so many times our own with a thousand jobs behind and none in front.
    Flat(f64),
    /// At most this, in the unit of the case.
    Below(f64),
}

use Rule::{AtLeast, AtMost, AtMostOne, Below, Flat};

/// What [`Rule::Flat`] compares with.
const BASE: &str = "behind-1k";

/// All of them. `raw` is the limit.
const TARGETS: &[(Engine, &str, Rule)] = &[
    (Sqlite, "enqueue-1", AtLeast(3.0, "honker")),
    (Sqlite, "enqueue-16", AtLeast(1.7, "effectum")),
    (Sqlite, "enqueue-64", AtLeast(0.7, "raw")),
    (Sqlite, "enqueue-batch", AtLeast(2.0, "effectum")),
    (Sqlite, "claim-1", AtLeast(5.0, "effectum")),
    (Sqlite, "claim-8", AtLeast(2.0, "effectum")),
    (Sqlite, "claim-batch", AtLeast(2.5, "honker")),
    (Sqlite, "publish-1", AtLeast(2.5, "honker")),
    (Sqlite, "read", AtMostOne("honker", 7.0)),
    (Sqlite, "behind-100k", Flat(1.5)),
    (Sqlite, "behind-1m", Flat(1.5)),
    (Sqlite, "front-delayed", Flat(1.5)),
    (Sqlite, "front-dead", Flat(1.5)),
    (Sqlite, "front-processing", Flat(1.5)),
    (Sqlite, "front-expired", Flat(1.5)),
    (Sqlite, "enqueue-16-full", AtLeast(7.0, "honker")),
    (Sqlite, "wake-same", AtMostOne("honker", 2.0)),
    (Sqlite, "wake-other", AtMostOne("honker", 2.0)),
    (Sqlite, "idle", Below(0.05)),
    (Postgres, "enqueue-1", AtLeast(1.5, "underway")),
    (Postgres, "enqueue-16", AtLeast(4.5, "pgmq")),
    (Postgres, "enqueue-64", AtLeast(0.8, "raw")),
    (Postgres, "enqueue-batch", AtLeast(1.2, "pgmq")),
    (Postgres, "claim-1", AtLeast(1.6, "pgmq")),
    (Postgres, "claim-8", AtLeast(2.5, "apalis")),
    (Postgres, "claim-batch", AtLeast(1.3, "pgmq")),
    (Postgres, "publish-16", AtLeast(3.5, "published")),
    (Postgres, "read", Below(1.6)),
    (Postgres, "behind-1m", Flat(1.5)),
    (Postgres, "front-delayed", Flat(1.5)),
    (Postgres, "wake-same", AtMost(1.1, "published")),
    (Postgres, "wake-other", AtMost(1.1, "published")),
    (Postgres, "idle", Below(0.05)),
];

/// A target and what has come of it.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) engine: Engine,
    pub(crate) case: &'static str,
    pub(crate) rule: Rule,
    /// The figure that the rule is about, or why there is none.
    pub(crate) measured: Result<f64, String>,
}

/// Judges all targets that have to do with what was measured.
pub(crate) fn judge(results: &Results) -> Vec<Verdict> {
    TARGETS
        .iter()
        .filter(|(engine, case, _)| results.case(*engine, case).is_some())
        .map(|&(engine, case, rule)| Verdict {
            engine,
            case,
            rule,
            measured: measured(results, engine, case, rule),
        })
        .collect()
}

fn measured(results: &Results, engine: Engine, case: &str, rule: Rule) -> Result<f64, String> {
    let ours = results.value(engine, case, "ours")?;
    let of = |peer| results.value(engine, case, peer);
    Ok(match rule {
        AtLeast(_, peer) | AtMost(_, peer) => ours / of(peer)?,
        AtMostOne(peer, _) => of(peer)? / ours,
        Flat(_) => ours / results.value(engine, BASE, "ours")?,
        Below(_) => ours,
    })
}

impl Verdict {
    /// Whether the target is met; nothing if that could not be measured.
    pub(crate) fn met(&self) -> Option<bool> {
        let measured = *self.measured.as_ref().ok()?;
        Some(match self.rule {
            AtLeast(times, _) | AtMostOne(_, times) => measured >= times,
            AtMost(times, _) | Flat(times) | Below(times) => measured <= times,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(rule: Rule, measured: f64) -> Option<bool> {
        let verdict = Verdict {
            engine: Sqlite,
            case: "read",
            rule,
            measured: Ok(measured),
        };
        verdict.met()
    }

    #[test]
    fn a_rule_has_a_direction() {
        assert_eq!(verdict(AtLeast(3.0, "honker"), 3.1), Some(true));
        assert_eq!(verdict(AtLeast(3.0, "honker"), 2.9), Some(false));
        assert_eq!(verdict(AtMostOne("honker", 7.0), 8.0), Some(true));
        assert_eq!(verdict(AtMost(1.1, "published"), 1.2), Some(false));
        assert_eq!(verdict(Flat(1.5), 1.0), Some(true));
        assert_eq!(verdict(Below(0.05), 0.06), Some(false));
    }

    #[test]
    fn without_results_nothing_is_judged() {
        assert!(judge(&Results::default()).is_empty());
    }
}
