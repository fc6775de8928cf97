//! Which pictures there are.

use crate::bars::{self, Bar, Panel};
use crate::case::{Case, Metric};
use crate::curves::{self, Curve};
use crate::peers::Engine;
use crate::results::{Results, Row};

/// How much is done, and how long a large read takes; nothing where none was measured.
pub(crate) fn throughput(results: &Results, engine: Engine) -> Option<String> {
    let panels: Vec<_> = results
        .iter()
        .filter(|(other, case, _)| {
            *other == engine && (case.metric == Metric::Rate || case.workload == "read_since")
        })
        .filter_map(|(_, case, rows)| panel(case.to_string(), case, rows))
        .collect();
    let title = format!("{}: throughput", long(engine));
    (!panels.is_empty()).then(|| bars::draw(&title, &panels))
}

/// How long commits take to be heard of.
pub(crate) fn wakes(results: &Results) -> Option<String> {
    let panels: Vec<_> = results
        .iter()
        .filter(|(_, case, _)| case.workload.starts_with("wake_"))
        .filter_map(|(engine, case, rows)| panel(format!("{}: {case}", long(engine)), case, rows))
        .collect();
    let title = "From a commit until a listener hears of it: median, thin line to the p99";
    (!panels.is_empty()).then(|| bars::draw(title, &panels))
}

/// How long a claim takes by how many jobs are ready.
pub(crate) fn backlog(results: &Results, engine: Engine) -> Option<String> {
    let mut curves: Vec<Curve> = Vec::new();
    let cases = results
        .iter()
        .filter(|(other, case, _)| *other == engine && case.workload == "claim_with_ready_behind");
    for (_, _, rows) in cases {
        for row in rows {
            let Some(run) = row.median() else {
                continue;
            };
            // Who enqueues slowly has fewer ready than was asked for.
            let Some(behind) = run.line["behind"].as_f64() else {
                continue;
            };
            let point = (behind.max(1.0), run.value);
            match curves.iter_mut().find(|curve| curve.peer == row.peer) {
                Some(curve) => curve.points.push(point),
                None => curves.push(Curve {
                    peer: row.peer,
                    points: vec![point],
                }),
            }
        }
    }
    let title = format!("{}: claim + ack by backlog", long(engine));
    let axes = (
        "jobs ready behind",
        "ms for a claim and its ack (less is better)",
    );
    curves::draw(&title, axes, &curves)
}

/// The peers of a case, the best first.
fn panel(title: String, case: &Case, rows: &[Row]) -> Option<Panel> {
    let mut bars: Vec<_> = rows
        .iter()
        .filter_map(|row| {
            let run = row.median()?;
            Some(Bar {
                name: row.peer,
                value: run.value,
                late: run.line["p99_ms"].as_f64(),
                text: case.metric.text(run.value),
            })
        })
        .collect();
    bars.sort_by(|one, other| one.value.total_cmp(&other.value));
    let unit = match case.metric {
        Metric::Rate => {
            bars.reverse();
            "per second, more is better"
        }
        Metric::Time => "milliseconds, less is better",
        Metric::Busy => "per cent, less is better",
    };
    (!bars.is_empty()).then_some(Panel { title, unit, bars })
}

fn long(engine: Engine) -> &'static str {
    match engine {
        Engine::Sqlite => "SQLite",
        Engine::Postgres => "PostgreSQL",
    }
}
