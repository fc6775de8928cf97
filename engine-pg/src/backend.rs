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
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgTransaction, Row as _, Type,
};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::error::{self, failed};
use crate::listener::Listener;
use crate::notify::Notifier;
use crate::pool::{Lease, Pool};
use crate::schema::Statements;
use crate::tx::PostgresTx;
use crate::{Postgres, tx};

/// How long a statement that lost its connection waits at most before it is tried again.
const MOST_JITTER_MS: u64 = 20;
/// How often a statement that did nothing on one connection is tried on another.
const MOST_UNFIT: u32 = 10;
/// How long a statement waits in the server for others, at first and when it is tried again.
pub(crate) const FIRST_PATIENCE: Duration = Duration::from_millis(100);
pub(crate) const LATER_PATIENCE: Duration = Duration::from_millis(10);
/// How long it waits before it is tried again, the first time and later; some of it is jitter.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// How long a session has to forget its statements.
const CLEARING: Duration = Duration::from_secs(2);
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
    /// that cannot do a thing twice. One that waits for others does so without a connection,
    /// but for a moment at first: those who wait would use them all up.
    pub(crate) async fn run(
        &self,
        at: At<'_, PgConnection>,
        statement: &Statement,
        arguments: impl Fn() -> Arguments + Send,
    ) -> Result<Vec<PgRow>> {
        self.live()?;
        let connection = match at {
            At::In(connection) => connection,
            At::Auto => return self.run_until_done(statement, &arguments).await,
        };
        // The server waits as long as the transaction says. It answers first where it knows of
        // this limit, and then says what it waited for.
        let most = self.settings.operation_timeout;
        let rows = self.fetch(connection, statement, arguments(), None);
        match timeout(most, rows).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                self.learn(&error);
                Err(failed(statement.doing, error))
            }
            Err(_) => Err(error::held_up(statement.doing, most)),
        }
    }

    async fn run_until_done(
        &self,
        statement: &Statement,
        arguments: &(impl Fn() -> Arguments + Send),
    ) -> Result<Vec<PgRow>> {
        let deadline = Instant::now() + self.settings.operation_timeout;
        if let Ok(patience) = ONCE.try_with(|patience| *patience) {
            let attempt = self.run_once(statement, arguments, patience, deadline);
            return match attempt.await? {
                Attempt::Done(rows) => Ok(rows),
                Attempt::Blocked(blocked) => Err(blocked),
            };
        }
        let mut patience = FIRST_PATIENCE;
        let mut pause = SHORTEST_PAUSE;
        loop {
            let attempt = self.run_once(statement, arguments, patience, deadline);
            let blocked = match attempt.await? {
                Attempt::Done(rows) => return Ok(rows),
                Attempt::Blocked(blocked) => blocked,
            };
            let jittered = pause.mul_f32(0.5 + fastrand::f32() / 2.0);
            if Instant::now() + jittered >= deadline {
                return Err(blocked);
            }
            sleep(jittered).await;
            patience = LATER_PATIENCE;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Runs one statement on a connection of the engine's, once, until the deadline.
    ///
    /// In the server it waits for others for no longer than `patience`, if it is one that may
    /// (see [`Statement::waiting`]): then it is [`Attempt::Blocked`]. What has failed on one
    /// connection without having done a thing is tried again on another.
    pub(crate) async fn run_once(
        &self,
        statement: &Statement,
        arguments: &(impl Fn() -> Arguments + Send),
        patience: Duration,
        deadline: Instant,
    ) -> Result<Attempt> {
        let mut unfit = 0;
        loop {
            let error = match self
                .attempt(statement, arguments, patience, deadline)
                .await?
            {
                Ok(rows) => return Ok(Attempt::Done(rows)),
                Err(error) => error,
            };
            self.learn(&error);
            if error::is_conflict(&error) || error::is_blocked(&error) {
                return Ok(Attempt::Blocked(failed(statement.doing, error)));
            }
            let lost_read =
                statement.reads_only && error::is_lost(&error) && error::is_transient(&error);
            unfit += u32::from(!lost_read);
            // What was made after a server was found read-only leads to where it can be written.
            let most = if error::is_read_only(&error) {
                1
            } else {
                MOST_UNFIT
            };
            let again = lost_read || error::is_unfit(&error) && unfit <= most;
            if !again || Instant::now() >= deadline {
                return Err(failed(statement.doing, error));
            }
            if lost_read {
                sleep(Duration::from_millis(fastrand::u64(1..=MOST_JITTER_MS))).await;
            }
        }
    }

    async fn attempt(
        &self,
        statement: &Statement,
        arguments: &(impl Fn() -> Arguments + Send),
        patience: Duration,
        deadline: Instant,
    ) -> Result<sqlx::Result<Vec<PgRow>>> {
        let most = self.settings.operation_timeout;
        let lease = timeout_at(deadline, self.pool.acquire(statement.reads_only));
        let mut lease = match lease.await {
            Ok(lease) => lease?,
            Err(_) => return Err(error::starved(statement.doing, most)),
        };
        self.live()?;
        let in_line = statement.waits.then(|| self.pool.wait_in_line());
        let patience = match in_line {
            Some(None) => patience.min(LATER_PATIENCE),
            _ => patience,
        };
        let patience = patience.min(deadline.saturating_duration_since(Instant::now()));
        let rows = self.fetch_committed(&mut lease, statement, arguments(), patience);
        let Ok(rows) = timeout_at(deadline, rows).await else {
            return Err(error::timed_out(statement.doing, most));
        };
        match &rows {
            Ok(_) => lease.ended(),
            Err(error) if error::is_lost(error) => lease.note_if_lost(error),
            // A failed explicit transaction is still open: the connection is closed for it.
            Err(_) if !self.settings.plain_auto_commit => {}
            Err(error) if error::is_unfit(error) && !error::is_stale(error) => {}
            Err(_) => lease.ended(),
        }
        Ok(rows)
    }

    async fn fetch_committed(
        &self,
        lease: &mut Lease,
        statement: &Statement,
        arguments: Arguments,
        patience: Duration,
    ) -> sqlx::Result<Vec<PgRow>> {
        if self.settings.plain_auto_commit {
            let connection = lease.start();
            return self
                .fetch(connection, statement, arguments, Some(patience))
                .await;
        }
        // Behind a pooler the parts of an unnamed statement can reach different servers, unless
        // they are in a transaction.
        let connection = lease.start();
        let begin = AssertSqlSafe([tx::BEGIN, tx::TELL].concat());
        let begun = sqlx::raw_sql(begin).fetch_one(&mut *connection);
        let pid = begun.await?.try_get(0)?;
        lease.served_by(pid);
        let connection = lease.connection();
        let rows = self
            .fetch(connection, statement, arguments, Some(patience))
            .await?;
        connection.execute("COMMIT").await?;
        Ok(rows)
    }

    async fn fetch(
        &self,
        connection: &mut PgConnection,
        statement: &Statement,
        arguments: Arguments,
        patience: Option<Duration>,
    ) -> sqlx::Result<Vec<PgRow>> {
        let arguments = match (statement.waits, patience) {
            (false, _) => arguments,
            (true, None) => arguments.add(0_i64),
            (true, Some(patience)) => {
                let patience = i64::try_from(patience.as_millis()).unwrap_or(i64::MAX);
                arguments.add(patience.max(1))
            }
        };
        let text = AssertSqlSafe(Arc::clone(&statement.text));
        let rows = sqlx::query_with(text, arguments.0.map_err(sqlx::Error::Encode)?)
            .persistent(self.settings.statement_cache)
            .fetch_all(&mut *connection)
            .await;
        if rows.as_ref().is_err_and(error::is_stale) {
            // What was prepared before a change of the schema fails for ever.
            let cleared = connection.clear_cached_statements();
            timeout(CLEARING, Box::pin(cleared)).await.ok();
        }
        rows
    }

    /// Minds what an error says of other connections.
    fn learn(&self, error: &sqlx::Error) {
        if error::is_read_only(error) {
            self.pool.suspect_read_only();
        }
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

tokio::task_local! {
    /// How long the statements of this task wait for others in the server before they end with
    /// an error that [`error::says_blocked`]; nothing is tried again then. Without it they are.
    static ONCE: Duration;
}

/// Runs what ends rather than wait for others for long.
pub(crate) async fn once<T>(patience: Duration, work: impl Future<Output = T>) -> T {
    ONCE.scope(patience, work).await
}

/// What became of one attempt.
pub(crate) enum Attempt {
    /// It was done.
    Done(Vec<PgRow>),
    /// Others were in the way, and nothing was done. It can be tried again; the error is for
    /// when there is no time left for that.
    Blocked(Error),
}

/// SQL for a value that is not null, at the price of a limit to how long the statement's own
/// transaction waits for a lock: so many milliseconds as the argument says, if it is not 0.
///
/// It must be evaluated before a row is locked: as the condition of a statement it is, and as
/// that of the rows which it inserts.
pub(crate) fn patience(argument: usize) -> String {
    format!(
        "(SELECT CASE WHEN ${argument}::bigint > 0 \
         THEN set_config('lock_timeout', ${argument}::bigint::text, true) ELSE '' END) IS NOT NULL"
    )
}

/// One statement of the engine, its schema's name in it.
pub(crate) struct Statement {
    text: Arc<str>,
    doing: &'static str,
    reads_only: bool,
    waits: bool,
}

impl Statement {
    /// A statement that is called `doing` in errors.
    pub(crate) fn new(doing: &'static str, text: String) -> Self {
        Self {
            text: text.into(),
            doing,
            reads_only: false,
            waits: false,
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

    /// A statement that may have to wait for a row that others hold. It has one argument more
    /// than it is given, for [`patience`].
    pub(crate) fn waiting(doing: &'static str, text: String) -> Self {
        Self {
            waits: true,
            ..Self::new(doing, text)
        }
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
