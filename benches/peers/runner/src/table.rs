//! The results as Markdown.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use crate::case::{Case, Metric};
use crate::machine::Machine;
use crate::options::Options;
use crate::peers::Engine;
use crate::results::{Results, Row};
use crate::targets::{Rule, Verdict};

/// Everything: what was measured on, the targets, and a table for each engine.
pub(crate) fn markdown(
    results: &Results,
    verdicts: &[Verdict],
    machine: &Machine,
    options: &Options,
) -> String {
    let scale = options.scale;
    let mut text = if (scale - 1.0).abs() > f64::EPSILON {
        format!("Only a look: times and backlogs are multiplied by {scale}. ")
    } else {
        String::new()
    };
    // Writing into a string cannot fail.
    writeln!(text, "Measured on {machine}. Rounds: {}.", options.rounds).ok();
    add(&mut text, results, verdicts).ok();
    text
}

fn add(text: &mut String, results: &Results, verdicts: &[Verdict]) -> fmt::Result {
    targets(text, results, verdicts)?;
    for engine in Engine::ALL {
        if results.iter().any(|(other, ..)| other == *engine) {
            cases(text, results, *engine)?;
            durability(text, results, *engine)?;
        }
    }
    Ok(())
}

/// The targets, each with what was measured.
fn targets(text: &mut String, results: &Results, verdicts: &[Verdict]) -> fmt::Result {
    if verdicts.is_empty() {
        return Ok(());
    }
    let met = verdicts
        .iter()
        .filter(|verdict| verdict.met() == Some(true));
    let open = verdicts.iter().filter(|verdict| verdict.met().is_none());
    writeln!(
        text,
        "\n## Targets\n\n{} of {} met, {} not measured. `raw` is the limit.\n\n\
         | engine | workload | ours | measured | target | |\n\
         |---|---|---:|---:|---:|---|",
        met.count(),
        verdicts.len(),
        open.count(),
    )?;
    for verdict in verdicts {
        let Some((case, _)) = results.case(verdict.engine, verdict.case) else {
            continue;
        };
        let ours = results.value(verdict.engine, verdict.case, "ours");
        let ours = ours.map_or_else(|_| "–".to_owned(), |value| case.metric.text(value));
        let (measured, target) = words(verdict, case.metric);
        let end = match verdict.met() {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        };
        let engine = verdict.engine;
        writeln!(
            text,
            "| {engine} | {case} | {ours} | {measured} | {target} | {end} |"
        )?;
    }
    Ok(())
}

/// What was measured and what is wanted, in the same words.
fn words(verdict: &Verdict, metric: Metric) -> (String, String) {
    let say = |value: f64| match verdict.rule {
        Rule::AtLeast(_, peer) | Rule::AtMost(_, peer) => format!("{value:.2} × {peer}"),
        Rule::AtMostOne(peer, _) => format!("{peer} / {value:.2}"),
        Rule::Flat(_) => format!("{value:.2} × that with 1 k"),
        Rule::Below(_) => metric.text(value),
    };
    let (sign, bound) = match verdict.rule {
        Rule::AtLeast(bound, _) => ("≥", bound),
        Rule::AtMostOne(_, bound)
        | Rule::AtMost(bound, _)
        | Rule::Flat(bound)
        | Rule::Below(bound) => ("≤", bound),
    };
    let measured = match &verdict.measured {
        Ok(value) => say(*value),
        Err(why) => cell(why),
    };
    (measured, format!("{sign} {}", say(bound)))
}

/// A line for each case and peer, with ours as a multiple of the peer.
fn cases(text: &mut String, results: &Results, engine: Engine) -> fmt::Result {
    writeln!(
        text,
        "\n## {engine}\n\n\
         | workload | peer | median | all rounds | ours is better by | |\n\
         |---|---|---:|---:|---:|---|"
    )?;
    for (_, case, rows) in results.iter().filter(|(other, ..)| *other == engine) {
        let ours = results.value(engine, case.id, "ours").ok();
        for row in rows {
            writeln!(
                text,
                "| {case} | {} | {} |",
                row.peer,
                figures(case, row, ours)
            )?;
        }
    }
    Ok(())
}

fn figures(case: &Case, row: &Row, ours: Option<f64>) -> String {
    let failure = row.failure.as_ref();
    let failure = failure.map_or_else(String::new, |why| format!("failed: {}", cell(why)));
    let (Some(median), Some(least), Some(most)) = (row.median(), row.runs.first(), row.runs.last())
    else {
        return format!("– | | | {failure}");
    };
    let metric = case.metric;
    let times = match ours {
        Some(ours) if row.peer != "ours" => {
            format!("{:.2} ×", metric.times_better(ours, median.value))
        }
        _ => String::new(),
    };
    let mut notes: Vec<_> = [note(case, row), failure].into();
    notes.retain(|note| !note.is_empty());
    format!(
        "{} | {} to {} | {times} | {}",
        metric.text(median.value),
        metric.text(least.value),
        metric.text(most.value),
        notes.join("; ")
    )
}

/// What else a reader needs to know of a figure.
fn note(case: &Case, row: &Row) -> String {
    let Some(line) = row.median().map(|run| &run.line) else {
        return String::new();
    };
    if let Some(late) = line["p99_ms"].as_f64() {
        let lost = line["lost"].as_u64().unwrap_or(0);
        return format!("p99 {}, {lost} lost", Metric::Time.text(late));
    }
    match line["behind"].as_u64() {
        // A peer that enqueues slowly has fewer behind: its figure is too good.
        Some(behind) if behind * 10 < case.behind as u64 * 9 => format!("only {behind} behind"),
        _ => String::new(),
    }
}

/// What each program says of its durability.
fn durability(text: &mut String, results: &Results, engine: Engine) -> fmt::Result {
    writeln!(text, "\nDurability on {engine}:\n")?;
    let mut settings: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (_, _, rows) in results.iter().filter(|(other, ..)| *other == engine) {
        for row in rows {
            let line = row.median().map(|run| &run.line);
            let Some(setting) = line.and_then(|line| line["durability"].as_str()) else {
                continue;
            };
            let known = settings.entry(row.peer).or_default();
            if !known.iter().any(|known| known == setting) {
                known.push(setting.to_owned());
            }
        }
    }
    for (peer, settings) in settings {
        writeln!(text, "- {peer}: {}", settings.join("; and "))?;
    }
    Ok(())
}

/// A text that is no end of a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "/")
}
