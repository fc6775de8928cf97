//! Measuring one workload of one peer, and the medians of several measurements.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use alkstore_contract_tests::postgres_server::PostgresServer;
use serde_json::Value;

use crate::Answer;
use crate::options::Options;
use crate::peers::{Engine, Peer};

/// How long one measurement may take with all that stands before it. A peer that hangs must not
/// keep the others from being measured.
const PATIENCE: Duration = Duration::from_secs(300);

/// A workload with its numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Case {
    place: usize,
    pub(crate) workload: &'static str,
    pub(crate) tasks: usize,
    operations: usize,
    behind: usize,
}

impl Case {
    /// Those that are wanted. The numbers are small: a case takes about a second.
    pub(crate) fn all(options: &Options) -> Vec<Self> {
        let tasks = options.tasks;
        [
            ("enqueue", 1, 2_000),
            ("enqueue", tasks, 8_000),
            ("enqueue_batch", 1, 50_000),
            ("claim_ack", 1, 2_000),
            ("claim_ack", tasks, 4_000),
            ("claim_batch_ack", 1, 20_000),
            ("publish", 1, 2_000),
            ("publish", tasks, 8_000),
            ("read_since", 1, 200),
            ("claim_with_ready_behind", 1, 200),
        ]
        .into_iter()
        .enumerate()
        .filter(|(_, (workload, ..))| options.wants_workload(workload))
        .map(|(place, (workload, tasks, operations))| Self {
            place,
            workload,
            tasks,
            operations: scaled(operations, options.scale),
            behind: options.behind,
        })
        .collect()
    }
}

/// At least one operation, whatever the scale.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float becomes the nearest number that there is, which is what is wanted"
)]
fn scaled(operations: u32, scale: f64) -> usize {
    ((f64::from(operations) * scale) as usize).max(1)
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.workload)?;
        match self.tasks {
            1 => Ok(()),
            tasks => write!(f, " ({tasks} tasks)"),
        }
    }
}

/// What a peer printed.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    line: Value,
}

impl Measured {
    /// How long a call took, where that is the figure that people ask for.
    pub(crate) fn ms_per_call(&self) -> Option<f64> {
        self.line["ms_per_call"].as_f64()
    }
}

/// Measures once, in a file or a database that is gone afterwards.
pub(crate) fn once(
    peer: &Peer,
    engine: Engine,
    case: &Case,
    server: Option<&PostgresServer>,
) -> Answer<Measured> {
    let folder = tempfile::tempdir()?;
    match engine {
        Engine::Sqlite => {
            let file = folder.path().join("peer.db");
            let file = file.to_str().ok_or("the temporary folder is not text")?;
            start(peer, case, file)
        }
        Engine::Postgres => {
            let database = server.ok_or("there is no server")?.create_database();
            let measured = start(peer, case, &database.url());
            // What a peer leaves to be written must not fall on the next one.
            database.sql("CHECKPOINT");
            measured
        }
    }
}

fn start(peer: &Peer, case: &Case, store: &str) -> Answer<Measured> {
    let folder = tempfile::tempdir()?;
    let (out, err) = (folder.path().join("out"), folder.path().join("err"));
    let mut child = peer
        .command()
        .args([case.workload, "--store", store])
        .args(["--n", &case.operations.to_string()])
        .args(["--tasks", &case.tasks.to_string()])
        .args(["--behind", &case.behind.to_string()])
        .stdin(Stdio::null())
        // Files and not pipes: a peer that says much does not wait for a reader.
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?)
        .spawn()?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Err("it took too long".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    if !status.success() {
        let said = std::fs::read_to_string(&err)?;
        return Err(said.lines().last().unwrap_or("it said nothing").into());
    }
    let said = std::fs::read_to_string(&out)?;
    let line: Value = serde_json::from_str(said.lines().last().unwrap_or_default())?;
    let per_second = line["per_second"].as_f64().ok_or("no figure")?;
    Ok(Measured { per_second, line })
}

/// Everything measured so far.
#[derive(Debug, Default)]
pub(crate) struct Results(BTreeMap<(Engine, Case), Vec<Row>>);

/// One peer's measurements of one case.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) peer: &'static str,
    /// From the slowest to the fastest once all rounds are done.
    pub(crate) runs: Vec<Measured>,
    pub(crate) failure: Option<String>,
}

impl Results {
    pub(crate) fn add(&mut self, engine: Engine, case: &Case, peer: &'static str, run: Measured) {
        self.row(engine, case, peer).runs.push(run);
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

    /// Sorts the runs, so that the medians stand in the middle.
    pub(crate) fn sorted(mut self) -> BTreeMap<(Engine, Case), Vec<Row>> {
        for row in self.0.values_mut().flatten() {
            row.runs
                .sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
        }
        self.0
    }
}

impl Row {
    /// The median run; with an even number of runs the slower one of the middle.
    pub(crate) fn median(&self) -> Option<&Measured> {
        let last = self.runs.len().checked_sub(1)?;
        self.runs.get(last / 2)
    }

    /// The median's line with the range of all runs, or what failed.
    pub(crate) fn json(&self, engine: Engine, case: &Case) -> Value {
        let mut line = self.median().map_or_else(
            || {
                serde_json::json!({
                    "peer": self.peer,
                    "engine": engine.name(),
                    "workload": case.workload,
                    "tasks": case.tasks,
                })
            },
            |median| median.line.clone(),
        );
        if let (Some(slowest), Some(fastest)) = (self.runs.first(), self.runs.last()) {
            line["slowest_per_second"] = slowest.per_second.into();
            line["fastest_per_second"] = fastest.per_second.into();
            line["rounds"] = self.runs.len().into();
        }
        if let Some(failure) = &self.failure {
            line["failure"] = failure.as_str().into();
        }
        line
    }
}
