//! What was measured on.

use std::fmt;
use std::path::Path;
use std::process::Command;

use alkstore_contract_tests::postgres_server::PostgresServer;
use serde_json::{Value, json};

use crate::Answer;

/// A description of the machine and of what runs on it.
#[derive(Debug)]
pub(crate) struct Machine {
    cores: usize,
    processor: String,
    memory_gib: u64,
    kernel: String,
    file_system: String,
    compiler: String,
    postgres: Option<String>,
}

impl Machine {
    /// This one.
    pub(crate) fn this(server: Option<&PostgresServer>) -> Answer<Self> {
        let kilobytes = field("/proc/meminfo", "MemTotal");
        let kilobytes = kilobytes.split_whitespace().next().map(str::parse::<u64>);
        Ok(Self {
            cores: std::thread::available_parallelism()?.get(),
            processor: field("/proc/cpuinfo", "model name"),
            memory_gib: kilobytes.transpose()?.unwrap_or(0) >> 20,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            file_system: file_system(&std::env::temp_dir()),
            compiler: compiler()?,
            postgres: server.map(|server| server.create_database().sql("SHOW server_version")),
        })
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "cores": self.cores,
            "processor": self.processor,
            "memory_gib": self.memory_gib,
            "kernel": self.kernel,
            "file_system": self.file_system,
            "compiler": self.compiler,
            "postgres": self.postgres,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cores of {}, {} GiB of memory, Linux {}, {}, {}",
            self.cores,
            self.processor,
            self.memory_gib,
            self.kernel,
            self.file_system,
            self.compiler
        )?;
        match &self.postgres {
            Some(version) => write!(f, ", PostgreSQL {version} over TCP on the same machine"),
            None => Ok(()),
        }
    }
}

/// The first value of this name in one of the kernel's files.
fn field(path: &str, name: &str) -> String {
    let text = read(path);
    let value = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim());
    value.unwrap_or("unknown").to_owned()
}

/// What a file holds; nothing where there is none, as on another operating system.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The kind of file system that a folder is on: that of the longest mount point above it.
fn file_system(folder: &Path) -> String {
    let mounts = read("/proc/mounts");
    let kind = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(place, _)| folder.starts_with(place))
        .max_by_key(|(place, _)| place.len());
    kind.map_or("unknown", |(_, kind)| kind).to_owned()
}

fn compiler() -> Answer<String> {
    let output = Command::new("rustc").arg("--version").output()?;
    let version = String::from_utf8(output.stdout)?;
    Ok(version.split(" (").next().unwrap_or_default().to_owned())
}
