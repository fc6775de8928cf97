//! What a peer is told on its command line.

use crate::{Answer, ROWS, Workload};

/// What to do.
#[derive(Debug, Clone)]
pub enum Arguments {
    /// List the workloads.
    Workloads,
    /// Measure one.
    Measure(Measure),
}

/// One measurement.
#[derive(Debug, Clone)]
pub struct Measure {
    /// What is measured.
    pub workload: Workload,
    /// The file or the URL, of a database that nobody has used.
    pub store: String,
    /// How many operations are timed: jobs, events or calls of `read_since`.
    pub operations: usize,
    /// From how many tasks at once.
    pub tasks: usize,
    /// How many more jobs are ready in `claim_with_ready_behind`.
    pub behind: usize,
}

/// What keeps the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// A file.
    Sqlite,
    /// A server.
    Postgres,
}

impl Engine {
    /// Its name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    /// When a commit is on the disk: the same for every peer on this engine.
    #[must_use]
    pub fn durability(self) -> &'static str {
        match self {
            Self::Sqlite => "WAL synchronous=NORMAL",
            Self::Postgres => "synchronous_commit=on",
        }
    }
}

impl Measure {
    /// The engine that the store's name belongs to.
    #[must_use]
    pub fn engine(&self) -> Engine {
        if self.store.starts_with("postgres") && self.store.contains("://") {
            Engine::Postgres
        } else {
            Engine::Sqlite
        }
    }
}

impl Arguments {
    /// Those of this process.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub fn of_process() -> Answer<Self> {
        Self::parse(std::env::args().skip(1))
    }

    /// The engine to measure on; `SQLite` where only the workloads are asked for.
    #[must_use]
    pub fn engine(&self) -> Engine {
        match self {
            Self::Workloads => Engine::Sqlite,
            Self::Measure(measure) => measure.engine(),
        }
    }

    fn parse(mut words: impl Iterator<Item = String>) -> Answer<Self> {
        let usage = "usage: peer <workload> --store <path or url> --n <operations> [--tasks T] \
                     [--behind JOBS], or: peer workloads";
        let first = words.next().ok_or(usage)?;
        if first == "workloads" {
            return Ok(Self::Workloads);
        }
        let workload = Workload::of(&first).ok_or_else(|| format!("no workload {first}"))?;
        let (mut store, mut operations, mut tasks, mut behind) = (None, None, 1, 100_000);
        while let Some(option) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{option} has no value"))?;
            match option.as_str() {
                "--store" => store = Some(value),
                "--n" => operations = Some(value.parse()?),
                "--tasks" => tasks = value.parse()?,
                "--behind" => behind = value.parse()?,
                _ => return Err(format!("no option {option}; {usage}").into()),
            }
        }
        let mut operations: usize = operations.ok_or(usage)?;
        if operations == 0 || tasks == 0 {
            return Err("nothing to do".into());
        }
        if workload == Workload::EnqueueBatch {
            // Whole batches only, so that all of them cost the same.
            operations = operations.next_multiple_of(ROWS);
        }
        Ok(Self::Measure(Measure {
            workload,
            store: store.ok_or(usage)?,
            operations,
            tasks,
            behind,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Answer<Arguments> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_command_line_is_understood() {
        let line = "enqueue_batch --store postgres://h/d --n 1500 --tasks 4";
        let Arguments::Measure(measure) = parse(line).unwrap() else {
            panic!("it measures");
        };
        assert_eq!(measure.workload, Workload::EnqueueBatch);
        assert_eq!(measure.operations, 2000);
        assert_eq!(measure.tasks, 4);
        assert_eq!(measure.engine(), Engine::Postgres);
    }

    #[test]
    fn a_wrong_command_line_is_refused() {
        for line in [
            "",
            "fly",
            "enqueue --n 5",
            "enqueue --store f --n 0",
            "enqueue --x",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
