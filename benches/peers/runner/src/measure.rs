//! Measuring one case of one peer.

use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use alkstore_contract_tests::postgres_server::PostgresServer;
use serde_json::Value;

use crate::Answer;
use crate::case::{Case, Metric};
use crate::peers::{Engine, Peer};

/// How long one measurement may take with all that stands before it. A peer that hangs must not
/// keep the others from being measured.
const PATIENCE: Duration = Duration::from_mins(2);

/// What a peer printed.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// The figure that the case is about.
    pub(crate) value: f64,
    pub(crate) line: Value,
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
    let mut command = peer.command();
    command
        .args([case.workload, "--store", store])
        .args(["--n", &case.operations.to_string()])
        .args(["--tasks", &case.tasks.to_string()])
        .args(["--behind", &case.behind.to_string()])
        .args(["--seconds", &case.time.as_secs_f64().to_string()])
        .args(["--durability", if case.full { "full" } else { "normal" }])
        .stdin(Stdio::null())
        // Files and not pipes: a peer that says much does not wait for a reader.
        .stdout(File::create(&out)?)
        .stderr(File::create(&err)?);
    if !finish(&mut command)?.success() {
        let said = std::fs::read_to_string(&err)?;
        return Err(said.lines().last().unwrap_or("it said nothing").into());
    }
    let said = std::fs::read_to_string(&out)?;
    let line: Value = serde_json::from_str(said.lines().last().unwrap_or_default())?;
    let names: &[&str] = match case.metric {
        Metric::Rate => &["per_second"],
        Metric::Time => &["median_ms", "ms_per_call"],
        Metric::Busy => &["cpu_percent"],
    };
    let value = names.iter().find_map(|name| line[*name].as_f64());
    let value = value.ok_or("no figure")?;
    Ok(Measured { value, line })
}

fn finish(command: &mut Command) -> Answer<ExitStatus> {
    let mut child: Child = command.spawn()?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Err("it took too long".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
