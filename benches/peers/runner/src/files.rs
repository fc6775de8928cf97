//! What is written: the figures, the table and the plots.

use std::path::Path;

use serde_json::{Value, json};

use crate::Answer;
use crate::machine::Machine;
use crate::options::Options;
use crate::peers::Engine;
use crate::plots;
use crate::results::Results;
use crate::targets::Verdict;

/// The first line of the table, which nobody should edit.
const NOTE: &str = "<!-- Written by benches/peers/runner. -->\n\n# Comparison: all figures\n\n";

/// Writes all files into the folder.
pub(crate) fn write(
    folder: &Path,
    table: &str,
    (results, verdicts): (&Results, &[Verdict]),
    machine: &Machine,
    options: &Options,
) -> Answer<()> {
    std::fs::create_dir_all(folder)?;
    let figures = serde_json::to_string_pretty(&figures(results, verdicts, machine, options))?;
    std::fs::write(folder.join("results.json"), figures + "\n")?;
    std::fs::write(folder.join("table.md"), format!("{NOTE}{table}"))?;
    for engine in Engine::ALL {
        let plots = [
            ("throughput", plots::throughput(results, *engine)),
            ("backlog", plots::backlog(results, *engine)),
        ];
        for (name, plot) in plots {
            if let Some(plot) = plot {
                std::fs::write(folder.join(format!("{engine}-{name}.svg")), plot)?;
            }
        }
    }
    if let Some(plot) = plots::wakes(results) {
        std::fs::write(folder.join("wake.svg"), plot)?;
    }
    eprintln!("wrote {}", folder.display());
    Ok(())
}

/// The medians, with what is needed to judge them.
fn figures(results: &Results, verdicts: &[Verdict], machine: &Machine, options: &Options) -> Value {
    let lines: Vec<_> = results
        .iter()
        .flat_map(|(engine, case, rows)| rows.iter().map(move |row| row.json(engine, case)))
        .collect();
    let verdicts: Vec<_> = verdicts
        .iter()
        .map(|verdict| {
            json!({
                "engine": verdict.engine.name(),
                "case": verdict.case,
                "rule": format!("{:?}", verdict.rule),
                "measured": verdict.measured.as_ref().ok(),
                "why_not": verdict.measured.as_ref().err(),
                "met": verdict.met(),
            })
        })
        .collect();
    json!({
        "machine": machine.json(),
        "rounds": options.rounds,
        "scale": options.scale,
        "targets": verdicts,
        "results": lines,
    })
}
