//! The programs of a Postgres installation.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable that names the folder of the binaries to use, whatever else is there.
const CHOSEN: &str = "ALKSTORE_TEST_POSTGRES_BIN";

/// The folder that has them.
#[derive(Debug, Clone)]
pub(super) struct Binaries(PathBuf);

impl Binaries {
    /// The binaries, or what to do about there being none.
    pub(super) fn find() -> Result<Self, String> {
        let complete = |folder: &PathBuf| {
            ["initdb", "postgres"]
                .iter()
                .all(|name| folder.join(name).is_file())
        };
        if let Some(chosen) = std::env::var_os(CHOSEN) {
            let chosen = PathBuf::from(chosen);
            return if complete(&chosen) {
                Ok(Self(chosen))
            } else {
                let shown = chosen.display();
                Err(format!("{CHOSEN}: no initdb and postgres in {shown}"))
            };
        }
        candidates().into_iter().find(complete).map(Self).ok_or_else(|| {
            "there are no binaries of a Postgres server: `apt-get install -y postgresql`, or put \
             its initdb and postgres into PATH"
                .to_owned()
        })
    }

    /// The major version, 0 if they do not say.
    pub(super) fn version(&self) -> u32 {
        let said = self.command("postgres").arg("--version").output();
        let said = said.map(|said| said.stdout).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let number = said
            .split(|c: char| !c.is_ascii_digit())
            .find(|part| !part.is_empty());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// A program with a bare environment: settings of the user's own must not matter.
    pub(super) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.0.join(name));
        command.env_clear().env("LC_ALL", "C").stdin(Stdio::null());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
    }
}

/// The folders that may have the binaries, the best first.
fn candidates() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(path) = std::env::var_os("PATH") {
        folders.extend(std::env::split_paths(&path));
    }
    // Debian keeps the servers of all versions out of the path: the newest one will do.
    let mut versions: Vec<_> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| {
            versions
                .flatten()
                .map(|version| version.path().join("bin"))
                .collect()
        })
        .unwrap_or_default();
    versions.sort_by_key(|folder| std::cmp::Reverse(version_of(folder)));
    folders.extend(versions);
    if let Ok(said) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(PathBuf::from(String::from_utf8_lossy(&said.stdout).trim()));
    }
    folders
}

/// The version in a folder like `/usr/lib/postgresql/15/bin`.
fn version_of(folder: &Path) -> u32 {
    let version = folder
        .parent()
        .and_then(Path::file_name)
        .and_then(|name| name.to_str());
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}
