//! The programs of a Postgres installation.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder that has them.
#[derive(Debug, Clone)]
pub(super) struct Binaries(PathBuf);

impl Binaries {
    pub(super) fn find() -> Self {
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
        let complete = |folder: &PathBuf| {
            ["initdb", "postgres", "psql"]
                .iter()
                .all(|name| folder.join(name).is_file())
        };
        match folders.into_iter().find(complete) {
            Some(folder) => Self(folder),
            None => panic!(
                "these tests need a Postgres server: `apt-get install -y postgresql`, or put its \
                 initdb, postgres and psql into PATH"
            ),
        }
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

    /// What a text of SQL prints, or what went wrong with it.
    pub(super) fn psql(&self, url: &str, text: &str) -> Result<String, String> {
        let mut psql = self.command("psql");
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            url,
            "-c",
            text,
        ]);
        match psql.output() {
            Ok(said) if said.status.success() => {
                Ok(String::from_utf8_lossy(&said.stdout).trim_end().to_owned())
            }
            Ok(said) => Err(format!(
                "{text}: {}",
                String::from_utf8_lossy(&said.stderr).trim()
            )),
            Err(error) => Err(format!("psql: {error}")),
        }
    }
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
