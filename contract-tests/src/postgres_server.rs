//! A throw-away Postgres server for tests.
//!
//! [`PostgresServer::shared`] is one server for the whole test process: a cluster of its own in
//! a temporary folder, made by the binaries that are found in `PATH`, in
//! `/usr/lib/postgresql/*/bin` or by `pg_config`, and run by an unprivileged user if the process
//! belongs to root. Each test takes a database of its own from it. A server that a test wants to
//! stop, kill and start again is its own: [`PostgresServer::start`]. The folder that
//! `ALKSTORE_TEST_POSTGRES_BIN` names is used instead, for tests on another version.
//!
//! When the test process ends, in whatever way, the servers are stopped and their folders
//! removed: a small process watches over each.
//!
//! With `ALKSTORE_TEST_POSTGRES_URL` set to the URL of a superuser, the shared server is that
//! one instead, and cannot be stopped. Binaries are not needed then, except for tests that take a
//! server of their own: [`PostgresServer::start_or_skip`].
//!
//! ```no_run
//! use alkstore_contract_tests::postgres_server::PostgresServer;
//!
//! let server = PostgresServer::shared();
//! let database = server.create_database();
//! assert_eq!(database.sql("SELECT 1 + 1"), "2");
//! println!("connect to {}", database.url());
//! ```

mod binaries;
mod cluster;
mod database;
mod proxy;
mod sql;
mod watch;

use std::io::Write as _;
use std::sync::OnceLock;

pub use database::Database;
pub use proxy::{Mode, Proxy};
pub use sql::SqlError;

use binaries::Binaries;
use cluster::Cluster;

/// The variable that names a server to use instead of a throw-away one.
const GIVEN: &str = "ALKSTORE_TEST_POSTGRES_URL";

/// A server for tests.
#[derive(Debug)]
pub struct PostgresServer(Place);

#[derive(Debug)]
enum Place {
    Own(Cluster),
    Given(String),
}

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are ended and their transactions rolled back; the next start is a plain one.
    Fast,
    /// At once; the next start recovers from the log.
    Immediate,
    /// The processes are killed; the next start recovers from the log.
    Kill,
}

/// How to make a server.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct ServerOptions {
    oldest: u32,
    durable: bool,
    settings: Vec<(String, String)>,
}

impl ServerOptions {
    /// A server that does not wait for the disk, with the server's defaults otherwise.
    ///
    /// ```
    /// use alkstore_contract_tests::postgres_server::ServerOptions;
    ///
    /// let options = ServerOptions::new().durable(true).setting("max_connections", "20");
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether what is committed survives a loss of power: whether the server waits for the
    /// disk, by default no. It survives the death of the server in either case.
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// The oldest version that will do, for tests of what older ones have not: they are skipped
    /// by [`PostgresServer::start_or_skip`].
    pub fn oldest(mut self, version: u32) -> Self {
        self.oldest = version;
        self
    }

    /// A setting of the server, by its name in `postgresql.conf`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl PostgresServer {
    /// The server that all tests of this process share.
    ///
    /// # Panics
    ///
    /// If there is none: without the binaries it says what to install.
    ///
    /// ```no_run
    /// use alkstore_contract_tests::postgres_server::PostgresServer;
    ///
    /// let database = PostgresServer::shared().create_database();
    /// ```
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(|| match std::env::var(GIVEN) {
            Ok(url) => Self(Place::Given(url)),
            Err(_) => Self::start(&ServerOptions::new()),
        })
    }

    /// A server of the caller's own, running. It is stopped and removed when it is dropped.
    ///
    /// # Panics
    ///
    /// If it cannot be made or does not start: without the binaries it says what to install.
    ///
    /// ```no_run
    /// use alkstore_contract_tests::postgres_server::{PostgresServer, ServerOptions, Stop};
    ///
    /// let server = PostgresServer::start(&ServerOptions::new());
    /// server.stop(Stop::Immediate);
    /// server.restart();
    /// ```
    #[must_use]
    pub fn start(options: &ServerOptions) -> Self {
        let binaries = Binaries::find().unwrap_or_else(|missing| panic!("{missing}"));
        Self(Place::Own(Cluster::start(binaries, options)))
    }

    /// Like [`PostgresServer::start`], for tests that also run where a server is given and no
    /// binaries are installed: `None` there, and the run shows that and why the test was skipped.
    ///
    /// # Panics
    ///
    /// If no server is given and there are no binaries, or it does not start.
    ///
    /// ```no_run
    /// use alkstore_contract_tests::postgres_server::{PostgresServer, ServerOptions};
    ///
    /// let Some(server) = PostgresServer::start_or_skip(&ServerOptions::new()) else {
    ///     return;
    /// };
    /// let database = server.create_database();
    /// ```
    #[must_use]
    pub fn start_or_skip(options: &ServerOptions) -> Option<Self> {
        match Binaries::find() {
            Err(missing) if std::env::var_os(GIVEN).is_some() => {
                skip(&format!("it needs a server of its own, and {missing}"));
                None
            }
            Ok(binaries) if binaries.version() < options.oldest => {
                let (needed, there) = (options.oldest, binaries.version());
                skip(&format!(
                    "it needs a server of version {needed}, and there is {there}"
                ));
                None
            }
            _ => Some(Self::start(options)),
        }
    }

    /// A hot standby of this server, which follows all that is committed here and can be read.
    /// This server is stopped and started again for it.
    ///
    /// # Panics
    ///
    /// If this server is a given one, or the standby does not start.
    ///
    /// ```no_run
    /// use alkstore_contract_tests::postgres_server::{PostgresServer, ServerOptions};
    ///
    /// let primary = PostgresServer::start(&ServerOptions::new());
    /// let standby = primary.start_standby();
    /// assert_eq!(standby.sql("postgres", "SELECT pg_is_in_recovery()"), "t");
    /// ```
    #[must_use]
    pub fn start_standby(&self) -> Self {
        self.stop(Stop::Fast);
        let standby = self.cluster().copy_as_standby();
        self.restart();
        Self(Place::Own(standby.started()))
    }

    /// Whether the server is this process's own, so that it can be stopped.
    #[must_use]
    pub fn is_own(&self) -> bool {
        matches!(self.0, Place::Own(_))
    }

    /// A fresh database. It is dropped with the value, whoever is connected to it.
    ///
    /// # Panics
    ///
    /// If the server does not create it.
    ///
    /// ```no_run
    /// use alkstore_contract_tests::postgres_server::PostgresServer;
    ///
    /// let database = PostgresServer::shared().create_database();
    /// assert_eq!(database.sql("SELECT current_database()"), database.name());
    /// ```
    #[must_use]
    pub fn create_database(&self) -> Database<'_> {
        self.create_database_with("")
    }

    /// A fresh database with options of `CREATE DATABASE`.
    ///
    /// # Panics
    ///
    /// If the server does not create it.
    ///
    /// ```no_run
    /// use alkstore_contract_tests::postgres_server::PostgresServer;
    ///
    /// let server = PostgresServer::shared();
    /// let database = server.create_database_with("ENCODING 'LATIN1' LOCALE 'C'");
    /// ```
    #[must_use]
    pub fn create_database_with(&self, options: &str) -> Database<'_> {
        Database::create(self, options)
    }

    /// The URL of a database for the role that owns the server, over TCP.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        match &self.0 {
            Place::Own(cluster) => {
                format!(
                    "postgres://postgres@127.0.0.1:{}/{database}",
                    cluster.port()
                )
            }
            Place::Given(url) => with_database(url, database),
        }
    }

    /// The URL of a database for a role with this password, over TCP. A role needs one there,
    /// except for the owner of the server.
    #[must_use]
    pub fn url_of_role(&self, role: &str, password: &str, database: &str) -> String {
        let url = self.url(database);
        let place = url.rsplit_once('@').map_or_else(
            || {
                url.split_once("://")
                    .map_or(url.as_str(), |(_, place)| place)
            },
            |(_, place)| place,
        );
        format!("postgres://{role}:{password}@{place}")
    }

    /// The URL of a database for the role that owns the server, over a Unix socket: a round
    /// trip takes half as long. The same as [`PostgresServer::url`] on a given server.
    #[must_use]
    pub fn socket_url(&self, database: &str) -> String {
        match &self.0 {
            Place::Own(cluster) => {
                let folder = cluster.sockets().replace('/', "%2F");
                format!("postgres://postgres@{folder}:{}/{database}", cluster.port())
            }
            Place::Given(url) => with_database(url, database),
        }
    }

    /// The TCP address, for a [`Proxy`].
    ///
    /// # Panics
    ///
    /// If the server is a given one.
    #[must_use]
    pub fn address(&self) -> (String, u16) {
        ("127.0.0.1".to_owned(), self.cluster().port())
    }

    /// Stops the server and waits until it is gone.
    ///
    /// # Panics
    ///
    /// If the server is a given one, or does not stop.
    pub fn stop(&self, how: Stop) {
        self.cluster().stop(how);
    }

    /// Starts the server that was stopped, at the same place, and waits until it is ready.
    ///
    /// # Panics
    ///
    /// If the server is a given one, or does not start.
    pub fn restart(&self) {
        self.cluster().run();
    }

    /// Runs SQL in a database as the owner of the server, and returns what it prints: a line
    /// for each row, the columns with `|` between them.
    ///
    /// # Panics
    ///
    /// If the SQL fails.
    ///
    /// ```no_run
    /// use alkstore_contract_tests::postgres_server::PostgresServer;
    ///
    /// assert_eq!(PostgresServer::shared().sql("postgres", "SELECT 1, 'a'"), "1|a");
    /// ```
    pub fn sql(&self, database: &str, text: &str) -> String {
        self.try_sql(database, text)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Like [`PostgresServer::sql`].
    ///
    /// # Errors
    ///
    /// The server's answer.
    pub fn try_sql(&self, database: &str, text: &str) -> Result<String, SqlError> {
        sql::run(&self.socket_url(database), text)
    }

    /// The server's major version.
    ///
    /// # Panics
    ///
    /// If the server is not there.
    #[must_use]
    pub fn version(&self) -> u32 {
        let number = self.sql("postgres", "SHOW server_version_num");
        number.parse::<u32>().expect("a version is a number") / 10_000
    }

    fn cluster(&self) -> &Cluster {
        match &self.0 {
            Place::Own(cluster) => cluster,
            Place::Given(_) => panic!("a given server is not stopped by tests: unset {GIVEN}"),
        }
    }
}

/// Says that the test that runs returns without having shown anything, and why: in spite of the
/// captured output of tests that pass the run shows it.
///
/// ```
/// use alkstore_contract_tests::postgres_server::skip;
///
/// skip("it needs a server of version 17 or newer");
/// ```
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    writeln!(std::io::stderr(), "SKIPPED {test}: {reason}").ok();
}

/// The URL with another database.
fn with_database(url: &str, database: &str) -> String {
    let (place, query) = match url.split_once('?') {
        Some((place, query)) => (place, format!("?{query}")),
        None => (url, String::new()),
    };
    let authority = place.find("://").map_or(0, |at| at + 3);
    let end = place[authority..]
        .find('/')
        .map_or(place.len(), |at| authority + at);
    format!("{}/{database}{query}", &place[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_url_leads_to_other_databases() {
        let given = "postgres://me:pw@host:5433/postgres?sslmode=disable";
        assert_eq!(
            with_database(given, "t"),
            "postgres://me:pw@host:5433/t?sslmode=disable"
        );
        assert_eq!(with_database("postgres://host", "t"), "postgres://host/t");
    }

    #[test]
    fn a_database_is_fresh_and_goes_with_its_value() {
        let server = PostgresServer::shared();
        let database = server.create_database();
        let name = database.name().to_owned();
        assert_eq!(database.sql("SELECT current_database()"), name);
        let there = format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'");
        assert_eq!(server.sql("postgres", &there), "1");
        drop(database);
        assert_eq!(server.sql("postgres", &there), "0");
        assert!(server.try_sql("postgres", "SELEC").is_err());
    }

    #[test]
    fn a_server_is_stopped_in_every_way_and_starts_again() {
        let Some(server) = PostgresServer::start_or_skip(&ServerOptions::new()) else {
            return;
        };
        let folder = server.cluster().sockets().to_owned();
        server.sql("postgres", "CREATE TABLE kept (n int)");
        for how in [Stop::Fast, Stop::Immediate, Stop::Kill] {
            server.stop(how);
            assert!(server.try_sql("postgres", "SELECT 1").is_err());
            server.restart();
            assert_eq!(server.sql("postgres", "SELECT count(*) FROM kept"), "0");
        }
        drop(server);
        assert!(!std::path::Path::new(&folder).exists());
    }

    #[test]
    fn a_standby_follows_and_a_proxy_leads_to_either() {
        let Some(primary) = PostgresServer::start_or_skip(&ServerOptions::new()) else {
            return;
        };
        let standby = primary.start_standby();
        primary.sql("postgres", "CREATE TABLE followed (n int)");
        let there = "SELECT count(*) FROM pg_tables WHERE tablename = 'followed'";
        while standby.sql("postgres", there) != "1" {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(standby.try_sql("postgres", "DROP TABLE followed").is_err());
        let proxy = Proxy::to(primary.address());
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", proxy.port());
        let follows = || sql::run(&url, "SELECT pg_is_in_recovery()").expect("a server answers");
        assert_eq!(follows(), "f");
        proxy.lead_to(standby.address());
        assert_eq!(follows(), "t");
        proxy.lead_to(primary.address());
        assert_eq!(follows(), "f");
    }
}
