//! A cluster in a temporary folder, and its server.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::binaries::Binaries;
use super::watch::Watch;
use super::{ServerOptions, Stop};

/// How long a server has to start, with recovery, and to stop.
const PATIENCE: Duration = Duration::from_secs(60);
/// Another process may take a free port before the server does.
const MOST_PORTS: usize = 20;

/// Who may log in how. Over TCP roles other than the owner need a password.
const LOGINS: &str = "local all all trust\n\
     local replication postgres trust\n\
     host all postgres 127.0.0.1/32 trust\n\
     host all all 127.0.0.1/32 scram-sha-256\n";

#[derive(Debug)]
pub(super) struct Cluster {
    binaries: Binaries,
    folder: PathBuf,
    sockets: String,
    port: u16,
    user: Option<User>,
    server: Mutex<Option<Child>>,
    /// Dropped first by hand: it stops the server and removes the folder.
    watch: Option<Watch>,
}

/// Whom the server's processes belong to.
#[derive(Debug, Clone, Copy)]
struct User {
    uid: u32,
    gid: u32,
}

impl Cluster {
    pub(super) fn start(binaries: Binaries, options: &ServerOptions) -> Self {
        let cluster = Self::in_temporary_folder(binaries);
        cluster.initialize(options);
        cluster.started()
    }

    fn in_temporary_folder(binaries: Binaries) -> Self {
        let folder = temporary_folder();
        let sockets = folder
            .to_str()
            .expect("the temporary folder's name is text")
            .to_owned();
        // Watched before anything is in it: what comes later cannot be left behind.
        let watch = Some(Watch::over(&folder));
        let user = unprivileged(&folder);
        Self {
            binaries,
            folder,
            sockets,
            port: 0,
            user,
            server: Mutex::new(None),
            watch,
        }
    }

    /// The same with its server running, on a port that was free.
    pub(super) fn started(mut self) -> Self {
        for _ in 0..MOST_PORTS {
            self.port = free_port();
            if self.try_run().is_ok() {
                return self;
            }
        }
        panic!("the Postgres server does not start:\n{}", self.log());
    }

    /// A standby of this cluster, whose server has to be stopped, to be started when it is back.
    pub(super) fn copy_as_standby(&self) -> Self {
        let standby = Self::in_temporary_folder(self.binaries.clone());
        let copied = Command::new("cp")
            .arg("-a")
            .args([self.data(), standby.data()])
            .status();
        assert!(
            copied.is_ok_and(|status| status.success()),
            "the cluster's folder cannot be copied"
        );
        let primary = format!("host={} port={} user=postgres", self.sockets, self.port);
        let settings = [
            ("unix_socket_directories", standby.sockets.as_str()),
            ("primary_conninfo", &primary),
        ];
        let own = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        standby.configure(&own);
        standby.write("standby.signal", "");
        standby
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The folder of the Unix socket.
    pub(super) fn sockets(&self) -> &str {
        &self.sockets
    }

    /// Starts the server that was stopped.
    pub(super) fn run(&self) {
        self.try_run().unwrap_or_else(|error| panic!("{error}"));
    }

    pub(super) fn stop(&self, how: Stop) {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut child) = server.take() else {
            return;
        };
        let signal = match how {
            Stop::Fast => "INT",
            Stop::Immediate => "QUIT",
            Stop::Kill => "KILL",
        };
        // Its own children outlive a killed server until they notice, and hold its memory.
        let whole = format!("-{}", child.id());
        let target = if how == Stop::Kill {
            whole
        } else {
            child.id().to_string()
        };
        let killed = Command::new("kill")
            .args(["-s", signal, "--", &target])
            .status();
        assert!(
            killed.is_ok_and(|status| status.success()),
            "the server cannot be signalled"
        );
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait().is_ok_and(|ended| ended.is_none()) {
            assert!(
                Instant::now() < deadline,
                "the server does not stop:\n{}",
                self.log()
            );
            sleep(Duration::from_millis(5));
        }
    }

    fn initialize(&self, options: &ServerOptions) {
        let mut initdb = self.command("initdb");
        initdb.args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]);
        let said = initdb
            .arg("-D")
            .arg(self.data())
            .output()
            .expect("initdb runs");
        assert!(
            said.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&said.stderr)
        );
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut settings = vec![
            setting("unix_socket_directories", &self.sockets),
            setting("listen_addresses", "127.0.0.1"),
            setting("max_connections", "400"),
        ];
        if !options.durable {
            // Commits are still written before they return: a server that is killed keeps them.
            settings.extend([setting("fsync", "off"), setting("full_page_writes", "off")]);
        }
        settings.extend_from_slice(&options.settings);
        self.configure(&settings);
        self.write("pg_hba.conf", LOGINS);
    }

    /// Adds settings; the last one of a name counts.
    fn configure(&self, settings: &[(String, String)]) {
        let config = self.data().join("postgresql.conf");
        let mut text = fs::read_to_string(&config).expect("a cluster has its settings");
        for (name, value) in settings {
            text.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        self.write("postgresql.conf", &text);
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.data().join(name), text).expect("the cluster's folder can be written");
    }

    fn try_run(&self) -> Result<(), String> {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("log"));
        let log = log.expect("the cluster's folder can be written");
        let mut postgres = self.command("postgres");
        postgres
            .arg("-D")
            .arg(self.data())
            .args(["-p", &self.port.to_string()]);
        postgres.stdout(Stdio::null()).stderr(log);
        // A group of its own: a Ctrl-C in the terminal is for the tests.
        let mut child = postgres.process_group(0).spawn().expect("postgres runs");
        let deadline = Instant::now() + PATIENCE;
        while !self.is_ready(child.id()) {
            if let Ok(Some(_)) = child.try_wait() {
                return Err(format!("the server has ended:\n{}", self.log()));
            }
            assert!(
                Instant::now() < deadline,
                "the server is not ready:\n{}",
                self.log()
            );
            sleep(Duration::from_millis(5));
        }
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        Ok(())
    }

    /// The server writes its state into the last line of this file, its id into the first.
    fn is_ready(&self, id: u32) -> bool {
        let said = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        said.lines().next() == Some(&id.to_string())
            && said
                .lines()
                .last()
                .is_some_and(|state| state.trim() == "ready")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = self.binaries.command(name);
        command.current_dir(&self.folder);
        if let Some(User { uid, gid }) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.watch.take());
        let server = self
            .server
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(child) = server {
            child.wait().ok();
        }
    }
}

fn temporary_folder() -> PathBuf {
    let mut number = fastrand::Rng::new();
    // Short, since the path of a Unix socket has to fit into about 100 bytes.
    let name = format!("alkpg-{}-{:x}", std::process::id(), number.u32(..));
    let folder = std::env::temp_dir().join(name);
    fs::create_dir(&folder).expect("the temporary folder can be written");
    folder
}

/// A user for the server if this process is root's, which a server refuses to run as.
fn unprivileged(folder: &Path) -> Option<User> {
    let owner = fs::metadata(folder).expect("the folder was just made");
    if owner.uid() != 0 {
        return None;
    }
    let id = |which: &str, name: &str| {
        let said = Command::new("id")
            .args([which, name])
            .stderr(Stdio::null())
            .output()
            .ok()?;
        String::from_utf8_lossy(&said.stdout).trim().parse().ok()
    };
    let user = ["postgres", "nobody"].iter().find_map(|name| {
        Some(User {
            uid: id("-u", name)?,
            gid: id("-g", name)?,
        })
    });
    let user = user.expect("there is an unprivileged user to run the server as");
    chown(folder, Some(user.uid), Some(user.gid)).expect("root may give a folder away");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("root may do this");
    Some(user)
}

fn free_port() -> u16 {
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|port| port.local_addr());
    free.expect("the loopback has a free port").port()
}
