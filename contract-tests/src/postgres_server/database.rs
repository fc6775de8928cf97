//! A database of a test's own.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{PostgresServer, SqlError};

/// A fresh database, dropped with this value.
#[derive(Debug)]
pub struct Database<'s> {
    server: &'s PostgresServer,
    name: String,
}

impl<'s> Database<'s> {
    pub(super) fn create(server: &'s PostgresServer, options: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // A given server may serve several test processes at once.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("alkstore_test_{}_{count}", std::process::id());
        // A test that was killed earlier may have had the same process id.
        let stale = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        if !server.is_own() {
            server.sql("postgres", &stale);
        }
        server.sql(
            "postgres",
            &format!("CREATE DATABASE {name} TEMPLATE template0 {options}"),
        );
        Self { server, name }
    }

    /// Its server.
    #[must_use]
    pub fn server(&self) -> &'s PostgresServer {
        self.server
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// See [`PostgresServer::url`].
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// See [`PostgresServer::socket_url`].
    #[must_use]
    pub fn socket_url(&self) -> String {
        self.server.socket_url(&self.name)
    }

    /// Runs SQL in it, see [`PostgresServer::sql`].
    ///
    /// # Panics
    ///
    /// If the SQL fails.
    pub fn sql(&self, text: &str) -> String {
        self.server.sql(&self.name, text)
    }

    /// Like [`Database::sql`].
    ///
    /// # Errors
    ///
    /// The server's answer.
    pub fn try_sql(&self, text: &str) -> Result<String, SqlError> {
        self.server.try_sql(&self.name, text)
    }

    /// Cuts connections to it: ends the sessions for which this condition on
    /// `pg_stat_activity` holds, and returns how many those were.
    ///
    /// ```no_run
    /// use alkstore_contract_tests::postgres_server::PostgresServer;
    ///
    /// let database = PostgresServer::shared().create_database();
    /// let listeners = database.terminate("query LIKE 'LISTEN%'");
    /// ```
    ///
    /// # Panics
    ///
    /// If the condition is no SQL.
    pub fn terminate(&self, condition: &str) -> u64 {
        let count = self.sql(&format!(
            "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid() AND ({condition})"
        ));
        count.parse().expect("a count is a number")
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        // A server that a test has stopped is removed as a whole.
        let text = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        self.server.try_sql("postgres", &text).ok();
    }
}
