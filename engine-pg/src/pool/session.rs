//! Sessions: how they are made and what is known of them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use alkstore::Error;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};
use tokio::runtime::{Handle, Id};
use tokio::time::timeout;

use crate::error::{self, failed};
use crate::login::Login;

/// A connection of the engine's own.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: PgConnection,
    /// The process that serves it, if it is always the same.
    pub(super) pid: Option<i32>,
    /// The runtime that it was made on, and that alone can drive it.
    pub(super) runtime: Id,
    /// When it was last known that its server can write, as far as anybody knows.
    pub(super) checked: Instant,
}

/// How sessions are made.
#[derive(Debug)]
pub(crate) struct Connector {
    login: Login,
    settings: Vec<(&'static str, &'static str)>,
    /// Whether a session stays with one process of the server.
    plain: bool,
    /// Whether settings are made once connected: a pooler is in between that takes none before.
    settings_after: AtomicBool,
}

/// Why a connection was not made.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) error: Error,
    /// Whether it was for lack of room, which may pass.
    pub(crate) full: bool,
}

impl Connector {
    /// Sessions that have their process for themselves, with these settings.
    pub(crate) fn plain(login: Login, settings: Vec<(&'static str, &'static str)>) -> Self {
        Self {
            plain: true,
            settings,
            ..Self::pooled(login)
        }
    }

    /// Sessions that may have another process in each transaction.
    pub(crate) fn pooled(login: Login) -> Self {
        Self {
            login,
            settings: Vec::new(),
            plain: false,
            settings_after: AtomicBool::new(false),
        }
    }

    /// A new connection, or the reason why there is none, in time.
    pub(crate) async fn connect(&self, most: Duration) -> Result<Session, Refused> {
        let options = self.login.options(most).await;
        let options = options.map_err(|error| Refused { error, full: false })?;
        match timeout(most, self.establish(&options)).await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(error)) => Err(Refused {
                full: error::is_full(&error),
                error: failed(&connecting(&options), error),
            }),
            Err(_) => Err(Refused {
                error: error::timed_out(&connecting(&options), most),
                full: false,
            }),
        }
    }

    async fn establish(&self, options: &PgConnectOptions) -> sqlx::Result<Session> {
        let (mut connection, setting) = self.log_in(options).await?;
        let pid = match (self.plain, setting) {
            (true, true) => {
                connection.execute(AssertSqlSafe(self.set())).await?;
                Some(pid(&mut connection).await?)
            }
            (true, false) => Some(pid(&mut connection).await?),
            (false, _) => None,
        };
        Ok(Session {
            connection,
            pid,
            runtime: Handle::current().id(),
            checked: Instant::now(),
        })
    }

    /// A connection, and whether its settings are still to be made.
    async fn log_in(&self, options: &PgConnectOptions) -> sqlx::Result<(PgConnection, bool)> {
        if self.settings.is_empty() {
            let connection = PgConnection::connect_with(options).await?;
            return Ok((connection, false));
        }
        if !self.settings_after.load(Ordering::Acquire) {
            let settings = self.settings.iter().copied();
            let set = options.clone().options(settings);
            match PgConnection::connect_with(&set).await {
                Err(error) if error::is_startup_refused(&error) => {}
                connected => return Ok((connected?, false)),
            }
        }
        let connection = PgConnection::connect_with(options).await?;
        self.settings_after.store(true, Ordering::Release);
        Ok((connection, true))
    }

    fn set(&self) -> String {
        let set = |(name, value): &(&str, &str)| format!("SET {name} = '{value}'; ");
        self.settings.iter().map(set).collect()
    }
}

/// What the server says of a session that somebody else had.
#[derive(Debug)]
pub(super) struct State {
    pub(super) pid: i32,
    pub(super) in_transaction: bool,
    pub(super) is_read_only: bool,
}

/// Asks for the [`State`]; an error too if the session is in a transaction that has failed.
pub(super) async fn state(connection: &mut PgConnection) -> sqlx::Result<State> {
    // Without arguments a statement and the transaction that it is begin at the same time.
    let row = sqlx::raw_sql(
        "SELECT pg_backend_pid(), now() <> statement_timestamp(),
             current_setting('transaction_read_only')::bool",
    )
    .fetch_one(connection)
    .await?;
    Ok(State {
        pid: row.try_get(0)?,
        in_transaction: row.try_get(1)?,
        is_read_only: row.try_get(2)?,
    })
}

/// The process that serves a session.
pub(crate) async fn pid(connection: &mut PgConnection) -> sqlx::Result<i32> {
    sqlx::raw_sql("SELECT pg_backend_pid()")
        .fetch_one(connection)
        .await?
        .try_get(0)
}

/// What is being done, for errors.
pub(super) fn connecting(options: &PgConnectOptions) -> String {
    format!("connecting to {}", place(options))
}

/// Where sessions go and as whom, without the password.
pub(crate) fn place(options: &PgConnectOptions) -> impl fmt::Display {
    let role = options.get_username();
    let host = match options.get_socket() {
        Some(folder) => folder.display().to_string(),
        None => options.get_host().to_owned(),
    };
    let port = options.get_port();
    let database = options.get_database().unwrap_or(role);
    format!("{role}@{host}:{port}/{database}")
}
