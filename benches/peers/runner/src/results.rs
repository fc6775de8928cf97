//! The figures of all rounds and their medians.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::case::Case;
use crate::measure::Measured;
use crate::peers::Engine;

/// Everything measured so far: each engine's cases in their order, each with the peers in theirs.
#[derive(Debug, Default)]
pub(crate) struct Results(BTreeMap<(Engine, Case), Vec<Row>>);

/// One peer's measurements of one case.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) peer: &'static str,
    /// From the smallest to the greatest figure.
    pub(crate) runs: Vec<Measured>,
    pub(crate) failure: Option<String>,
}

impl Results {
    pub(crate) fn add(&mut self, engine: Engine, case: &Case, peer: &'static str, run: Measured) {
        let runs = &mut self.row(engine, case, peer).runs;
        let at = runs.partition_point(|other| other.value < run.value);
        runs.insert(at, run);
    }

    pub(crate) fn add_failure(
        &mut self,
        engine: Engine,
        case: &Case,
        peer: &'static str,
        failure: &str,
    ) {
        self.row(engine, case, peer).failure = Some(failure.to_owned());
    }

    fn row(&mut self, engine: Engine, case: &Case, peer: &'static str) -> &mut Row {
        let rows = self.0.entry((engine, case.clone())).or_default();
        let at = rows.iter().position(|row| row.peer == peer);
        let at = at.unwrap_or_else(|| {
            rows.push(Row {
                peer,
                runs: Vec::new(),
                failure: None,
            });
            rows.len() - 1
        });
        &mut rows[at]
    }

    /// All cases that were measured.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Engine, &Case, &[Row])> {
        let all = self.0.iter();
        all.map(|((engine, case), rows)| (*engine, case, &rows[..]))
    }

    /// One case by its name.
    pub(crate) fn case(&self, engine: Engine, id: &str) -> Option<(&Case, &[Row])> {
        self.iter()
            .find(|(other, case, _)| *other == engine && case.id == id)
            .map(|(_, case, rows)| (case, rows))
    }

    /// A peer's median in a case, or why there is none.
    pub(crate) fn value(&self, engine: Engine, id: &str, peer: &str) -> Result<f64, String> {
        let rows = self.case(engine, id).map_or(&[][..], |(_, rows)| rows);
        let row = rows.iter().find(|row| row.peer == peer);
        let Some(row) = row else {
            return Err(format!("{peer} was not measured"));
        };
        row.median().map(|run| run.value).ok_or_else(|| {
            let why = row.failure.as_deref().unwrap_or("no figure");
            format!("{peer} failed: {why}")
        })
    }
}

impl Row {
    /// The median run; with an even number of runs the smaller one of the middle.
    pub(crate) fn median(&self) -> Option<&Measured> {
        let last = self.runs.len().checked_sub(1)?;
        self.runs.get(last / 2)
    }

    /// The median's line with the range of all runs, or what failed.
    pub(crate) fn json(&self, engine: Engine, case: &Case) -> Value {
        let mut line = json!({
            "case": case.id,
            "peer": self.peer,
            "engine": engine.name(),
            "workload": case.workload,
            "tasks": case.tasks,
        });
        if let Some(Value::Object(median)) = self.median().map(|run| &run.line) {
            for (name, value) in median {
                line[name] = value.clone();
            }
        }
        let values = self.runs.iter().map(|run| run.value);
        line["rounds"] = values.collect::<Vec<_>>().into();
        if let Some(failure) = &self.failure {
            line["failure"] = failure.as_str().into();
        }
        line
    }
}
