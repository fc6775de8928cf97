//! What the runner is told on its command line.

use std::path::PathBuf;

use crate::Answer;
use crate::peers::Engine;

const USAGE: &str = "usage: peer-runner [--rounds N] [--scale S] [--seconds S] [--peers a,b] \
                     [--workloads a,b] [--engine sqlite|postgres] [--out FOLDER]";

/// How much to measure, and of whom.
#[derive(Debug)]
pub(crate) struct Options {
    /// How often everything is measured; the medians are kept.
    pub(crate) rounds: usize,
    /// What numbers of operations, sizes of backlogs and times are multiplied by.
    pub(crate) scale: f64,
    /// For how long a measurement has its clock running at most, where no case says otherwise.
    pub(crate) seconds: f64,
    out: Option<PathBuf>,
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
            seconds: 1.0,
            out: None,
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
                "--seconds" => options.seconds = value.parse()?,
                "--out" => options.out = Some(value.into()),
                "--peers" => options.peers = list(),
                "--workloads" => options.workloads = list(),
                "--engine" => options.engine = Some(value),
                _ => return Err(USAGE.into()),
            }
        }
        if options.rounds == 0 || options.scale <= 0.0 || options.seconds <= 0.0 {
            return Err("nothing to measure".into());
        }
        Ok(options)
    }

    /// Where results are written, beside the output: what is in the repository is of a run over
    /// everything.
    pub(crate) fn out(&self, default: PathBuf) -> Option<PathBuf> {
        let chosen = self.peers.is_some() || self.workloads.is_some() || self.engine.is_some();
        let whole = !chosen && self.scale >= 1.0;
        self.out.clone().or_else(|| whole.then_some(default))
    }

    /// Whether this package is measured. Ours always is: the table is relative to it.
    pub(crate) fn wants_peer(&self, package: &str) -> bool {
        package == "ours" || wants(self.peers.as_deref(), package)
    }

    /// Whether a workload is measured, by its own name or by its case's.
    pub(crate) fn wants_workload(&self, workload: &str, case: &str) -> bool {
        wants(self.workloads.as_deref(), workload) || wants(self.workloads.as_deref(), case)
    }

    pub(crate) fn wants_engine(&self, engine: Engine) -> bool {
        let wanted = self.engine.as_ref();
        wanted.is_none_or(|wanted| wanted == engine.name())
    }
}

fn wants(wanted: Option<&[String]>, name: &str) -> bool {
    wanted.is_none_or(|wanted| wanted.iter().any(|wanted| wanted == name))
}
