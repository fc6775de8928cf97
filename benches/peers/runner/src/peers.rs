//! The peers: packages beside this one, each with dependencies of its own.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Answer;
use crate::case::Case;

/// What keeps the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
}

impl Engine {
    pub(crate) const ALL: &[Self] = &[Self::Sqlite, Self::Postgres];

    /// Its name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A package that there is.
#[derive(Debug)]
pub(crate) struct Known {
    /// The name of its folder.
    pub(crate) package: &'static str,
    engines: &'static [Engine],
}

impl Known {
    pub(crate) fn runs_on(&self, engine: Engine) -> bool {
        self.engines.contains(&engine)
    }
}

/// All of them. Ours comes first: the others are compared with it.
pub(crate) const KNOWN: &[Known] = &[
    Known {
        package: "ours",
        engines: Engine::ALL,
    },
    Known {
        package: "honker",
        engines: &[Engine::Sqlite],
    },
    Known {
        package: "effectum",
        engines: &[Engine::Sqlite],
    },
    Known {
        package: "raw",
        engines: Engine::ALL,
    },
    Known {
        package: "pgmq",
        engines: &[Engine::Postgres],
    },
    Known {
        package: "published",
        engines: Engine::ALL,
    },
    Known {
        package: "apalis",
        engines: Engine::ALL,
    },
    Known {
        package: "riverqueue",
        engines: Engine::ALL,
    },
    Known {
        package: "underway",
        engines: &[Engine::Postgres],
    },
    Known {
        package: "graphile_worker",
        engines: &[Engine::Postgres],
    },
    Known {
        package: "sqlxmq",
        engines: &[Engine::Postgres],
    },
];

/// A peer that is built.
#[derive(Debug)]
pub(crate) struct Peer {
    binary: PathBuf,
    workloads: Vec<(Engine, String)>,
}

impl Peer {
    /// Builds its package and asks it what it can do.
    pub(crate) fn build(folder: &Path, known: &'static Known) -> Answer<Self> {
        let manifest = folder.join(known.package).join("Cargo.toml");
        // Cargo says itself where the binary is: the target folder may be anywhere.
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // What cargo says of this package would make it build others anew that look at it.
        for (name, _) in std::env::vars_os() {
            let of_package = name.to_string_lossy().starts_with("CARGO_PKG_");
            if of_package || name == "CARGO_MANIFEST_DIR" || name == "CARGO_MANIFEST_PATH" {
                cargo.env_remove(name);
            }
        }
        let output = cargo
            .args(["build", "--release", "--locked", "--message-format"])
            .args(["json-render-diagnostics", "--manifest-path"])
            .arg(manifest)
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("{} does not build", known.package).into());
        }
        let binary = String::from_utf8(output.stdout)?
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find_map(|message| message["executable"].as_str().map(PathBuf::from))
            .ok_or_else(|| format!("{} has no binary", known.package))?;
        let mut workloads = Vec::new();
        for &engine in known.engines {
            let arguments = ["workloads", engine.name()];
            let output = Command::new(&binary).args(arguments).output()?;
            let listed = String::from_utf8(output.stdout)?;
            workloads.extend(listed.lines().map(|line| (engine, line.to_owned())));
        }
        Ok(Self { binary, workloads })
    }

    /// Whether it can do the case's workload, as durably as the case wants it.
    pub(crate) fn can(&self, engine: Engine, case: &Case) -> bool {
        let can = |what| {
            let mut all = self.workloads.iter();
            all.any(|(on, can)| *on == engine && can == what)
        };
        can(case.workload) && (!case.full || can("full"))
    }

    /// Its binary, to be given a workload.
    pub(crate) fn command(&self) -> Command {
        Command::new(&self.binary)
    }
}
