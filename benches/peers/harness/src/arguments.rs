//! What a peer is told on its command line.

use std::time::Duration;

use crate::{Answer, ROWS, Workload};

const USAGE: &str = "usage: peer <workload> --store <path or url> --n <operations> [--tasks T] \
                     [--behind JOBS] [--seconds S] [--durability normal|full], \
                     or: peer listen --store <path or url>, or: peer workloads [sqlite|postgres]";

/// What to do.
#[derive(Debug, Clone)]
pub enum Arguments {
    /// List what can be done on this engine.
    Workloads(Engine),
    /// Listen, and print when something was heard.
    Listen(Measure),
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
    /// How many operations are timed at most: jobs, events, calls of `read_since` or wakes.
    pub operations: usize,
    /// From how many tasks at once.
    pub tasks: usize,
    /// How many more jobs are ready in `claim_with_ready_behind`, or come before in
    /// `claim_with_..._in_front`.
    pub behind: usize,
    /// After how long the clock is stopped whatever is left; how long `idle` looks on.
    pub time: Duration,
    /// When a commit is on the disk, where the peer can choose.
    pub durability: Durability,
}

/// What keeps the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// A file.
    Sqlite,
    /// A server.
    Postgres,
}

/// When a commit to a file is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// With the next checkpoint at the latest.
    #[default]
    Normal,
    /// Before it returns.
    Full,
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
    pub fn durability(self, durability: Durability) -> &'static str {
        match (self, durability) {
            (Self::Sqlite, Durability::Normal) => "WAL, synchronous=NORMAL",
            (Self::Sqlite, Durability::Full) => "WAL, synchronous=FULL",
            (Self::Postgres, _) => "fsync=on, synchronous_commit=on",
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

    fn parse(workload: Workload, mut words: impl Iterator<Item = String>) -> Answer<Self> {
        let mut measure = Self {
            workload,
            store: String::new(),
            operations: 0,
            tasks: 1,
            behind: 100_000,
            time: Duration::from_secs(10),
            durability: Durability::Normal,
        };
        while let Some(option) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{option} has no value"))?;
            match (option.as_str(), value.as_str()) {
                ("--store", _) => measure.store = value,
                ("--n", _) => measure.operations = value.parse()?,
                ("--tasks", _) => measure.tasks = value.parse()?,
                ("--behind", _) => measure.behind = value.parse()?,
                ("--seconds", _) => measure.time = Duration::try_from_secs_f64(value.parse()?)?,
                ("--durability", "normal") => measure.durability = Durability::Normal,
                ("--durability", "full") => measure.durability = Durability::Full,
                _ => return Err(format!("no option {option} {value}; {USAGE}").into()),
            }
        }
        if measure.store.is_empty() {
            return Err(USAGE.into());
        }
        Ok(measure)
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

    /// The engine that is asked for.
    #[must_use]
    pub fn engine(&self) -> Engine {
        match self {
            Self::Workloads(engine) => *engine,
            Self::Listen(measure) | Self::Measure(measure) => measure.engine(),
        }
    }

    fn parse(mut words: impl Iterator<Item = String>) -> Answer<Self> {
        let first = words.next().ok_or(USAGE)?;
        match first.as_str() {
            "workloads" => {
                return match words.next().as_deref() {
                    None | Some("sqlite") => Ok(Self::Workloads(Engine::Sqlite)),
                    Some("postgres") => Ok(Self::Workloads(Engine::Postgres)),
                    Some(_) => Err(USAGE.into()),
                };
            }
            "listen" => return Measure::parse(Workload::WakeOtherProcess, words).map(Self::Listen),
            _ => {}
        }
        let workload = Workload::of(&first).ok_or_else(|| format!("no workload {first}"))?;
        let mut measure = Measure::parse(workload, words)?;
        if measure.operations == 0 || measure.tasks == 0 {
            return Err("nothing to do".into());
        }
        if workload == Workload::EnqueueBatch {
            // Whole batches only, so that all of them cost the same.
            measure.operations = measure.operations.next_multiple_of(ROWS);
        }
        Ok(Self::Measure(measure))
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
        let line = "enqueue_batch --store postgres://h/d --n 1500 --tasks 4 --seconds 0.5";
        let Arguments::Measure(measure) = parse(line).unwrap() else {
            panic!("it measures");
        };
        assert_eq!(measure.workload, Workload::EnqueueBatch);
        assert_eq!(measure.operations, 2000);
        assert_eq!(measure.tasks, 4);
        assert_eq!(measure.time, Duration::from_millis(500));
        assert_eq!(measure.engine(), Engine::Postgres);
    }

    #[test]
    fn every_workload_has_a_name_of_its_own() {
        for workload in Workload::ALL {
            assert_eq!(Workload::of(workload.name()), Some(*workload));
        }
    }

    #[test]
    fn a_wrong_command_line_is_refused() {
        for line in [
            "",
            "fly",
            "listen",
            "workloads mysql",
            "enqueue --n 5",
            "enqueue --store f --n 0",
            "enqueue --store f --n 5 --durability some",
            "enqueue --x",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
