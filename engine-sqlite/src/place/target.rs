//! Reading a target, or the options of an application's pool.

use std::path::Path;
use std::str::FromStr as _;

use alkstore::engine::scheme;
use alkstore::{Error, Result};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use super::Place;

impl Place {
    /// Reads a path, or a URL that starts with `sqlite:`.
    pub(crate) fn parse(target: &str) -> Result<Self> {
        if target == ":memory:" {
            return Ok(Self::in_memory());
        }
        if target.trim().is_empty() {
            return Err(refused(target, "it is blank: name a file, or `:memory:`"));
        }
        match scheme(target) {
            "" => Self::of_path(target),
            scheme if scheme.eq_ignore_ascii_case("sqlite") => {
                Self::of_url(target, &target[scheme.len()..])
            }
            scheme if scheme.eq_ignore_ascii_case("file") => Err(refused(
                target,
                "SQLite's own URIs are not read here: write sqlite://app.db?mode=rwc, or the \
                 path alone",
            )),
            scheme => Err(refused(
                target,
                format!(
                    "`{scheme}:` is not a scheme of SQLite: write a path or sqlite://app.db, and \
                     `./` before a path with a colon"
                ),
            )),
        }
    }

    fn of_path(target: &str) -> Result<Self> {
        let of_key = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let parameter = target
            .split_once('?')
            .and_then(|(_, query)| query.split_once('='))
            .is_some_and(|(key, _)| !key.is_empty() && key.bytes().all(of_key));
        if parameter {
            let reason = "a path takes no parameters: write it as a URL, such as \
                          sqlite://app.db?mode=rwc";
            return Err(refused(target, reason));
        }
        Self::at(Path::new(target), target)
    }

    /// Reads what follows the scheme of a URL.
    fn of_url(target: &str, rest: &str) -> Result<Self> {
        let example = "write a URL such as sqlite://app.db?mode=rwc, or sqlite::memory:";
        let options = SqliteConnectOptions::from_str(&format!("sqlite{rest}"))
            .map_err(|error| refused(target, format!("{error}; {example}")))?;
        let query = target.split_once('?').map_or("", |(_, query)| query);
        let mut mode = None;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("mode", value) => mode = Some(value),
                ("vfs", _) | ("cache", "private") | ("immutable", "false" | "0") => {}
                (key, value) => {
                    let reason = format!(
                        "`{key}={value}` is not supported: the parameters are mode and vfs"
                    );
                    return Err(refused(target, reason));
                }
            }
        }
        let parsed = Parsed::of(&options);
        if parsed.memory && parsed.vfs.is_none() {
            return Ok(Self::in_memory());
        }
        let file = options.get_filename();
        if file.as_os_str().is_empty() {
            return Err(refused(target, format!("the URL names no file; {example}")));
        }
        if file.to_string_lossy().starts_with("file:") {
            let reason = "SQLite's own URIs are not read within a URL: write sqlite://app.db";
            return Err(refused(target, reason));
        }
        Ok(Self {
            vfs: parsed.vfs,
            create: matches!(mode, None | Some("rwc")),
            read_only: mode == Some("ro"),
            ..Self::at(file, target)?
        })
    }

    /// Reads where the database of an application's pool is.
    pub(crate) fn of_pool(options: &SqliteConnectOptions) -> Result<Self> {
        const INSTEAD: &str = "a database file, or for a database in memory that several \
                               connections share the filename `file:/name?vfs=memdb`";
        let parsed = Parsed::of(options);
        let name = options.get_filename();
        let shown = name.display().to_string();
        let memdb = shown.contains("vfs=memdb") || parsed.vfs.as_deref() == Some("memdb");
        if (parsed.memory && !memdb)
            || shown.contains("mode=memory")
            || shown == ":memory:"
            || shown.is_empty()
        {
            return Err(refused_pool(&shown, INSTEAD));
        }
        if memdb && !(shown.starts_with("file:/") || shown.starts_with('/')) {
            return Err(refused_pool(&shown, INSTEAD));
        }
        let (mut vfs, mut create) = (parsed.vfs, parsed.mode == "rwc");
        if !memdb && shown.starts_with("file:") {
            let query = shown.split_once('?').map_or("", |(_, query)| query);
            for pair in query.split('&').filter(|pair| !pair.is_empty()) {
                match pair.split_once('=').unwrap_or((pair, "")) {
                    ("mode", mode) => create |= mode == "rwc",
                    ("vfs", name) => vfs = Some(name.to_owned()),
                    _ => {
                        let reason = "a file that is named by its path: a URI with other \
                                      parameters than mode and vfs is not supported";
                        return Err(refused_pool(&shown, reason));
                    }
                }
            }
        }
        let place = if shown.starts_with("file:") || memdb {
            Self::named(name.to_owned())
        } else {
            Self::at(name, &shown).map_err(|_| refused_pool(&shown, INSTEAD))?
        };
        Ok(Self {
            vfs,
            memory: memdb,
            create,
            read_only: parsed.mode == "ro",
            ..place
        })
    }

    /// A file, by its absolute name.
    fn at(name: &Path, target: &str) -> Result<Self> {
        let absolute = std::path::absolute(name).map_err(|error| {
            refused(
                target,
                format!("it cannot be made an absolute path: {error}"),
            )
        })?;
        Ok(Self::named(absolute))
    }
}

/// What the options of sqlx tell only through their URL.
struct Parsed {
    memory: bool,
    mode: String,
    vfs: Option<String>,
}

impl Parsed {
    fn of(options: &SqliteConnectOptions) -> Self {
        // Some file names make no URL that parses, and the driver panics then.
        let url = options.clone().filename("/name").to_url_lossy();
        let value = |name: &str| {
            url.query_pairs()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.into_owned())
        };
        let mode = value("mode").unwrap_or_default();
        Self {
            memory: mode == "memory",
            mode,
            vfs: value("vfs"),
        }
    }
}

fn refused(target: &str, reason: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::InvalidArgument {
        argument: "target",
        value: target.into(),
        reason: reason.into(),
    }
}

fn refused_pool(name: &str, accepted: &'static str) -> Error {
    Error::InvalidArgument {
        argument: "pool",
        value: name.into(),
        reason: accepted.into(),
    }
}
