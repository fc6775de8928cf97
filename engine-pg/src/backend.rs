//! How statements run: on a connection of the engine's, or in somebody's transaction.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use alkstore::engine::{At, Backend, WakeHub};
use alkstore::{Error, Result};
use sqlx::encode::Encode;
use sqlx::error::BoxDynError;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, PgTransaction, Type};
use tokio::time::{Instant, sleep, timeout_at};

use crate::error::{self, failed};
use crate::listener::Listener;
use crate::notify::Notifier;
use crate::pool::Pool;
use crate::schema::Statements;
use crate::tx::PostgresTx;
use crate::{Postgres, tx};

/// How long a statement that met other transactions waits at most before it is tried again.
const MOST_JITTER_MS: u64 = 20;
/// How long `close` waits for what it says goodbye to.
const CLOSING: Duration = Duration::from_secs(2);

/// What all clones of an engine share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) pool: Arc<Pool>,
    pub(crate) statements: Statements,
    pub(crate) settings: Settings,
    pub(crate) hub: WakeHub,
    pub(crate) notifier: Notifier,
    pub(crate) listener: Listener,
    closed: AtomicBool,
}

/// The options that matter after opening.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) reread_interval: Duration,
    pub(crate) wake_debounce: Duration,
    pub(crate) operation_timeout: Duration,
    /// Whether the server keeps statements from one use to the next.
    pub(crate) statement_cache: bool,
    /// How a transaction begins.
    pub(crate) begin: Arc<str>,
    /// Whether a statement is its own transaction, of the isolation that the engine expects.
    pub(crate) plain_auto_commit: bool,
    pub(crate) clock_offset: Arc<AtomicI64>,
}

impl Settings {
    /// What the tests move the clock by, in seconds.
    pub(crate) fn clock_offset(&self) -> i64 {
        self.clock_offset.load(Ordering::Relaxed)
    }
}

impl Inner {
    pub(crate) fn new(
        pool: Arc<Pool>,
        statements: Statements,
        settings: Settings,
        listener: Listener,
        sender: u32,
    ) -> Self {
        let notifier = Notifier::new(settings.wake_debounce, sender);
        let hub = listener.hub().clone();
        let closed = AtomicBool::new(false);
        Self {
            pool,
            statements,
            settings,
            hub,
            notifier,
            listener,
            closed,
        }
    }

    pub(crate) fn live(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            Err(Error::store_closed())
        } else {
            Ok(())
        }
    }

    /// The arguments of a statement; the first is what the tests move the clock by.
    pub(crate) fn arguments(&self) -> Arguments {
        Arguments::default().add(self.settings.clock_offset())
    }

    /// Runs one statement and returns its rows.
    ///
    /// On a connection of the engine's it is tried again, within the operation's time, where
    /// that cannot do a thing twice.
    pub(crate) async fn run(
        &self,
        at: At<'_, PgConnection>,
        statement: &Statement,
        arguments: impl Fn() -> Arguments + Send,
    ) -> Result<Vec<PgRow>> {
        self.live()?;
        match at {
            At::In(connection) => {
                let rows = self.fetch(connection, statement, arguments()).await;
                rows.map_err(|error| failed(statement.doing, error))
            }
            At::Auto => {
                let most = self.settings.operation_timeout;
                let deadline = Instant::now() + most;
                loop {
                    let attempt = self.attempt(statement, &arguments);
                    let rows = match timeout_at(deadline, attempt).await {
                        Ok(rows) => rows?,
                        Err(_) => return Err(error::timed_out(statement.doing, most)),
                    };
                    match rows {
                        Ok(rows) => return Ok(rows),
                        Err(error) if statement.may_repeat(&error) && Instant::now() < deadline => {
                            sleep(Duration::from_millis(fastrand::u64(1..=MOST_JITTER_MS))).await;
                        }
                        Err(error) => return Err(failed(statement.doing, error)),
                    }
                }
            }
        }
    }

    /// Runs one statement on a connection of the engine's, once.
    async fn attempt(
        &self,
        statement: &Statement,
        arguments: &(impl Fn() -> Arguments + Send),
    ) -> Result<sqlx::Result<Vec<PgRow>>> {
        let mut lease = self.pool.acquire().await?;
        self.live()?;
        let arguments = arguments();
        let rows = self
            .fetch_committed(lease.start(), statement, arguments)
            .await;
        match &rows {
            Ok(_) => lease.ended(),
            Err(error) if error::is_lost(error) => lease.note_if_lost(error),
            // A failed explicit transaction is still open: the connection is closed for it.
            Err(_) if !self.settings.plain_auto_commit => {}
            Err(_) => lease.ended(),
        }
        Ok(rows)
    }

    async fn fetch_committed(
        &self,
        connection: &mut PgConnection,
        statement: &Statement,
        arguments: Arguments,
    ) -> sqlx::Result<Vec<PgRow>> {
        if self.settings.plain_auto_commit {
            return self.fetch(connection, statement, arguments).await;
        }
        // Behind a pooler the parts of an unnamed statement can reach different servers, unless
        // they are in a transaction.
        connection.execute(tx::BEGIN).await?;
        let rows = self.fetch(connection, statement, arguments).await?;
        connection.execute("COMMIT").await?;
        Ok(rows)
    }

    async fn fetch(
        &self,
        connection: &mut PgConnection,
        statement: &Statement,
        arguments: Arguments,
    ) -> sqlx::Result<Vec<PgRow>> {
        let text = AssertSqlSafe(Arc::clone(&statement.text));
        sqlx::query_with(text, arguments.0.map_err(sqlx::Error::Encode)?)
            .persistent(self.settings.statement_cache)
            .fetch_all(connection)
            .await
    }

    async fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.hub.close();
        let goodbyes = async {
            self.listener.stop().await;
            self.pool.close().await;
        };
        tokio::time::timeout(CLOSING, goodbyes).await.ok();
    }
}

impl Backend for Postgres {
    type Conn = PgConnection;
    type Tx = PostgresTx;

    async fn begin(&self) -> Result<PostgresTx> {
        PostgresTx::begin(self.inner()).await
    }

    fn downcast(connection: &mut (dyn Any + Send)) -> Option<&mut PgConnection> {
        // Each look borrows anew: the borrow that is returned must be the last one.
        if connection.is::<PgConnection>() {
            connection.downcast_mut::<PgConnection>()
        } else if connection.is::<PgTransaction<'static>>() {
            connection
                .downcast_mut::<PgTransaction<'static>>()
                .map(|tx| &mut **tx)
        } else {
            let pooled = connection.downcast_mut::<PoolConnection<sqlx::Postgres>>();
            pooled.map(|connection| &mut **connection)
        }
    }

    fn upcast(connection: &mut PgConnection) -> &mut (dyn Any + Send) {
        connection
    }

    fn reread_interval(&self) -> Duration {
        self.inner().settings.reread_interval
    }

    async fn close(&self) {
        self.flush_wakes().await;
        self.inner().close().await;
    }
}

/// One statement of the engine, its schema's name in it.
pub(crate) struct Statement {
    text: Arc<str>,
    doing: &'static str,
    reads_only: bool,
}

impl Statement {
    /// A statement that is called `doing` in errors.
    pub(crate) fn new(doing: &'static str, text: String) -> Self {
        Self {
            text: text.into(),
            doing,
            reads_only: false,
        }
    }

    /// A statement that changes nothing: it is tried again even if nobody knows what became
    /// of the first attempt.
    pub(crate) fn reading(doing: &'static str, text: String) -> Self {
        Self {
            reads_only: true,
            ..Self::new(doing, text)
        }
    }

    fn may_repeat(&self, error: &sqlx::Error) -> bool {
        error::is_conflict(error)
            || self.reads_only && error::is_lost(error) && error::is_transient(error)
    }
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.doing)
    }
}

/// The arguments of a statement, in their order.
pub(crate) struct Arguments(Result<PgArguments, BoxDynError>);

impl Default for Arguments {
    fn default() -> Self {
        Self(Ok(PgArguments::default()))
    }
}

impl Arguments {
    #[must_use]
    pub(crate) fn add<'t, T>(mut self, value: T) -> Self
    where
        T: Encode<'t, sqlx::Postgres> + Type<sqlx::Postgres>,
    {
        use sqlx::Arguments as _;
        if let Ok(arguments) = &mut self.0
            && let Err(error) = arguments.add(value)
        {
            self.0 = Err(error);
        }
        self
    }
}
