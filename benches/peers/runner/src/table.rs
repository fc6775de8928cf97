//! The results as JSON and as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;

use crate::Answer;
use crate::measure::{Case, Row};
use crate::options::Options;
use crate::peers::Engine;

/// What is written: each engine's cases in their order, each with the peers in theirs.
pub(crate) type Table = BTreeMap<(Engine, Case), Vec<Row>>;

/// Writes the medians, with what is needed to judge them.
pub(crate) fn write_json(path: &Path, table: &Table, options: &Options) -> Answer<()> {
    let results: Vec<_> = table
        .iter()
        .flat_map(|((engine, case), rows)| rows.iter().map(|row| row.json(*engine, case)))
        .collect();
    let document = json!({
        "machine": {
            "cores": std::thread::available_parallelism()?.get(),
            "os": std::env::consts::OS,
            "architecture": std::env::consts::ARCH,
        },
        "rounds": options.rounds,
        "ready_behind": options.behind,
        "results": results,
    });
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_string_pretty(&document)?;
    std::fs::write(path, text + "\n")?;
    Ok(())
}

/// A table for each engine: a line for each case and peer, with ours as a multiple of the peer.
pub(crate) fn markdown(table: &Table) -> String {
    let mut text = String::new();
    let mut current = None;
    for ((engine, case), rows) in table {
        if current != Some(*engine) {
            current = Some(*engine);
            let gap = if text.is_empty() { "" } else { "\n" };
            // Writing into a string cannot fail.
            let _ = writeln!(
                text,
                "{gap}## {engine}\n\n\
                 | workload | peer | per second | slowest to fastest | ours is |\n\
                 |---|---|---:|---:|---:|"
            );
        }
        let ours = rows.iter().find(|row| row.peer == "ours");
        let ours = ours.and_then(Row::median).map(|run| run.per_second);
        for row in rows {
            let _ = writeln!(text, "| {case} | {} | {} |", row.peer, figures(row, ours));
        }
    }
    text
}

fn figures(row: &Row, ours: Option<f64>) -> String {
    let (Some(median), Some(slowest), Some(fastest)) =
        (row.median(), row.runs.first(), row.runs.last())
    else {
        return "failed | | ".to_owned();
    };
    let rate = median.per_second;
    let mut text = format!("{rate:.0}");
    if let Some(time) = median.ms_per_call() {
        let _ = write!(text, " ({time:.2} ms a call)");
    }
    let _ = write!(
        text,
        " | {:.0} to {:.0} | ",
        slowest.per_second, fastest.per_second
    );
    match ours {
        Some(ours) if row.peer != "ours" => {
            let _ = write!(text, "{:.2}×", ours / rate);
        }
        _ => {}
    }
    text
}
