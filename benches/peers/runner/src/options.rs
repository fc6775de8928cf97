//! What the runner is told on its command line.

use crate::Answer;
use crate::peers::Engine;

const USAGE: &str = "usage: peer-runner [--rounds N] [--scale S] [--tasks T] [--behind JOBS] \
                     [--peers a,b] [--workloads a,b] [--engine sqlite|postgres]";

/// How much to measure, and of whom.
#[derive(Debug)]
pub(crate) struct Options {
    /// How often everything is measured; the medians are kept.
    pub(crate) rounds: usize,
    /// What the default numbers of operations are multiplied by.
    pub(crate) scale: f64,
    /// How many tasks there are where there are several.
    pub(crate) tasks: usize,
    /// How many jobs are ready in `claim_with_ready_behind`.
    pub(crate) behind: usize,
    peers: Option<Vec<String>>,
    workloads: Option<Vec<String>>,
    engine: Option<String>,
}

impl Options {
    /// Those of this process.
    pub(crate) fn of_process() -> Answer<Self> {
        let mut options = Self {
            rounds: 3,
            scale: 1.0,
            tasks: 8,
            behind: 100_000,
            peers: None,
            workloads: None,
            engine: None,
        };
        let mut words = std::env::args().skip(1);
        while let Some(option) = words.next() {
            let value = words.next().ok_or(USAGE)?;
            let list = || Some(value.split(',').map(str::to_owned).collect());
            match option.as_str() {
                "--rounds" => options.rounds = value.parse()?,
                "--scale" => options.scale = value.parse()?,
                "--tasks" => options.tasks = value.parse()?,
                "--behind" => options.behind = value.parse()?,
                "--peers" => options.peers = list(),
                "--workloads" => options.workloads = list(),
                "--engine" => options.engine = Some(value),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }

    /// Whether this package is measured. Ours always is: the table is relative to it.
    pub(crate) fn wants_peer(&self, package: &str) -> bool {
        package == "ours" || wants(self.peers.as_deref(), package)
    }

    pub(crate) fn wants_workload(&self, workload: &str) -> bool {
        wants(self.workloads.as_deref(), workload)
    }

    pub(crate) fn wants_engine(&self, engine: Engine) -> bool {
        let wanted = self.engine.as_ref();
        wanted.is_none_or(|wanted| wanted == engine.name())
    }
}

fn wants(wanted: Option<&[String]>, name: &str) -> bool {
    wanted.is_none_or(|wanted| wanted.iter().any(|wanted| wanted == name))
}
