//! The options, and opening.

mod url;

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use alkstore::engine::check_runtime;
use alkstore::{Error, Result};
use sqlx::postgres::PgConnectOptions;
use sqlx::{PgConnection, PgPool, Row as _};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::Postgres;
use crate::backend::{Inner, Settings};
use crate::error::{self, failed};
use crate::listener::{Config, Listener};
use crate::login::{Hook, HookError, Login};
use crate::notify::internal_channel;
use crate::pool::{Connector, Pool, Source};
use crate::schema::Schema;
use crate::tx::{BEGIN, TELL};

use url::parse;

const OPENING: &str = "opening the database";

/// No limit, in effect: what is added to the clock must not overflow it.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// More often than this looking again is all that a process does.
const SHORTEST_REREAD: Duration = Duration::from_millis(5);
const SHORTEST_PROBE: Duration = Duration::from_millis(50);

/// How the engine's own statements are planned: by the indexes that are there for them, once.
/// Left to itself the server plans for the size that a table had when a statement was new, and
/// a plan for an empty queue reads all of a full one. What is compiled first takes longer than
/// all that these statements do.
///
/// Nor may it collect rows from an index and sort them, which it thinks is as good as to walk the
/// index after a look at a queue that was empty.
const PLANNER: [(&str, &str); 4] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("jit", "off"),
];

/// How to open a [`Postgres`].
///
/// ```no_run
/// use std::time::Duration;
/// use alkstore::Store;
/// use alkstore_postgres::PostgresOptions;
///
/// # async fn example() -> alkstore::Result<()> {
/// let engine = PostgresOptions::new()
///     .schema("coordination")
///     .pool(20)
///     .reread_interval(Duration::from_secs(10))
///     .open("postgres://app:secret@db.example.com/app?sslmode=verify-full")
///     .await?;
/// let store = Store::new(engine);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct PostgresOptions {
    schema: String,
    pool: u32,
    acquire_timeout: Duration,
    operation_timeout: Duration,
    reread_interval: Duration,
    probe_interval: Duration,
    wake_debounce: Duration,
    listener_url: Option<String>,
    listen: bool,
    statement_cache: bool,
    hook: Option<Hook>,
    clock_offset: Arc<AtomicI64>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            schema: "alkstore".into(),
            pool: 10,
            acquire_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(30),
            reread_interval: Duration::from_secs(5),
            probe_interval: Duration::from_secs(5),
            wake_debounce: Duration::from_millis(5),
            listener_url: None,
            listen: true,
            statement_cache: true,
            hook: None,
            clock_offset: Arc::default(),
        }
    }
}

impl PostgresOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The schema that holds everything, by default `alkstore`. Any name that the server takes
    /// will do, whatever characters are in it, up to 63 bytes. It is created if it is missing.
    pub fn schema(mut self, name: &str) -> Self {
        self.schema = name.to_owned();
        self
    }

    /// The most connections that operations and transactions use together, by default 10; one
    /// at least. The listening session comes on top, and while all are in use one more for a
    /// moment, to cancel what was given up. No meaning over an application's pool.
    ///
    /// Of this and of every duration here the greatest value means no limit, in effect.
    pub fn pool(mut self, max_connections: u32) -> Self {
        self.pool = max_connections.max(1);
        self
    }

    /// How long an operation waits for a connection to be free, to be made, or to listen, by
    /// default 10 seconds; zero is refused. Then it ends in a transient error.
    ///
    /// A far server has as long to let the listening session in, and then for each of its
    /// answers several times what that took, 1.5 seconds at least.
    pub fn acquire_timeout(mut self, most: Duration) -> Self {
        self.acquire_timeout = most.min(LONGEST);
        self
    }

    /// How long an operation waits for the server, by default 30 seconds, zero is
    /// refused; and so do the begin and
    /// the end of a transaction, each. Then it ends in a transient error. The server is told to
    /// cancel it; what it asked for may have been done.
    ///
    /// In a [`Tx`](alkstore::Tx) every statement, the application's too, waits for a lock that
    /// others hold for a little less at most, since `lock_timeout` is set for the transaction; in
    /// a transaction that the application began, the engine's operations end in time, and then
    /// it has to be rolled back.
    pub fn operation_timeout(mut self, most: Duration) -> Self {
        self.operation_timeout = most.min(LONGEST);
        self
    }

    /// How long a lost wake delays what waits on it at most, by default 5 seconds. Without
    /// LISTEN it is how often receivers look by themselves. 5 milliseconds at least.
    pub fn reread_interval(mut self, interval: Duration) -> Self {
        self.reread_interval = interval.clamp(SHORTEST_REREAD, LONGEST);
        self
    }

    /// How often the listening session proves that it is alive, by default every 5 seconds. A
    /// connection that is silently gone is noticed within that time and two seconds more, or, of
    /// a far server, as many as its answers may take. 50 milliseconds at least.
    pub fn probe_interval(mut self, interval: Duration) -> Self {
        self.probe_interval = interval.clamp(SHORTEST_PROBE, LONGEST);
        self
    }

    /// The shortest time between two `NOTIFY` for one queue, stream or the schedules that this
    /// process sends outside of transactions, by default 5 milliseconds. Receivers of this
    /// process are woken at once all the same.
    pub fn wake_debounce(mut self, time: Duration) -> Self {
        self.wake_debounce = time.min(LONGEST);
        self
    }

    /// A URL for the listening session alone, for when the other one leads to a pooler that
    /// does not pass LISTEN on.
    pub fn listener_url(mut self, url: &str) -> Self {
        self.listener_url = Some(url.to_owned());
        self
    }

    /// Asks for fresh connect options before each connection, the listening session's included:
    /// for passwords that change or expire while the process runs. `refresh` takes the options
    /// of the URL and returns them changed; what they carry besides must stay. It has
    /// [`PostgresOptions::acquire_timeout`]; if it fails so does the operation, with a transient
    /// error, and the listening session is tried again later.
    ///
    /// No meaning over an application's pool: there the listening session is made with the
    /// pool's options of that moment, see [`sqlx::Pool::set_connect_options`].
    ///
    /// ```no_run
    /// use alkstore_postgres::PostgresOptions;
    ///
    /// # async fn todays_password() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # async fn example() -> alkstore::Result<()> {
    /// let engine = PostgresOptions::new()
    ///     .connect_options(|options| async move {
    ///         Ok(options.password(&todays_password().await?))
    ///     })
    ///     .open("postgres://app@db.example.com/app")
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn connect_options<F, R>(mut self, refresh: F) -> Self
    where
        F: Fn(PgConnectOptions) -> R + Send + Sync + 'static,
        R: Future<Output = std::result::Result<PgConnectOptions, HookError>> + Send + 'static,
    {
        self.hook = Some(Hook::new(refresh));
        self
    }

    /// Whether there is a listening session, by default yes. Without one everything works, with
    /// wakes of other processes, and of transactions that the application began, as late as
    /// [`PostgresOptions::reread_interval`].
    pub fn listen(mut self, listen: bool) -> Self {
        self.listen = listen;
        self
    }

    /// Whether the server keeps prepared statements from one use to the next, by default yes.
    /// Switch it off behind a pooler that gives a session to each transaction: nothing is kept
    /// in the session then, at the cost of more round trips.
    pub fn statement_cache(mut self, keep: bool) -> Self {
        self.statement_cache = keep;
        self
    }

    /// Seconds that are added to the server's clock. For tests.
    #[doc(hidden)]
    pub fn clock_offset(mut self, seconds: Arc<AtomicI64>) -> Self {
        self.clock_offset = seconds;
        self
    }

    /// Connects and brings the schema up to date. TLS is as the URL's `sslmode` says, with the
    /// system's root certificates or those of `sslrootcert`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a URL or a schema name that is none, or a timeout of zero;
    /// [`Error::Database`] outside of a Tokio runtime, if the server cannot be reached, lets
    /// nobody in, is older than version 14 or read-only while the schema is not up to date, if
    /// the database has another encoding than UTF8 or SQL_ASCII, if the role lacks rights, or if
    /// the schema is newer than this library or has relations of the same names that it did not
    /// make. Nothing was changed then.
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have brought the schema up to date.
    ///
    /// ```no_run
    /// use alkstore::Store;
    /// use alkstore_postgres::PostgresOptions;
    ///
    /// # async fn example() -> alkstore::Result<()> {
    /// let engine = PostgresOptions::new().open("postgres://app@localhost/app").await?;
    /// let store = Store::new(engine);
    /// # Ok(()) }
    /// ```
    pub async fn open(self, url: &str) -> Result<Postgres> {
        check_runtime()?;
        let schema = self.check()?;
        let mut options = parse(url)?;
        if !self.statement_cache {
            options = options.statement_cache_capacity(0);
        }
        let plain = self.statement_cache;
        let login = Login::Url(Box::new(options.clone()), self.hook.clone());
        let first = Connector::pooled(login);
        let migrating = async {
            let session = first.connect(self.acquire_timeout).await;
            let mut connection = session.map_err(|refused| refused.error)?.connection;
            schema.migrate(&mut connection).await?;
            let begin = begin_with_defaults(&mut connection, self.operation_timeout, plain).await;
            begin.map_err(|error| failed(OPENING, error))
        };
        let begin = self.in_time(migrating).await?;
        let listener = self.listener_login(Login::Url(Box::new(parse(url)?), self.hook.clone()))?;
        let login = Login::Url(Box::new(options), self.hook.clone());
        let connector = if plain {
            let isolation = ("default_transaction_isolation", "read committed");
            let settings = PLANNER.into_iter().chain([isolation]);
            Connector::plain(login, settings.collect())
        } else {
            Connector::pooled(login)
        };
        let own = Source::Own(Box::new(connector), self.pool as usize);
        let pool = Pool::new(own, self.acquire_timeout);
        Ok(self.engine(&schema, pool, listener, plain, begin))
    }

    /// Works on the connections of a pool that the application has; the listening session is
    /// made beside it, from the options that the pool has then. The application may close the pool once the
    /// engine is closed.
    ///
    /// The driver's pool asks the server about each connection at its return, so operations
    /// take longer than on the engine's own connections; and before the engine writes it looks
    /// whether the application left the session in a transaction, which makes the pool's own
    /// question (`test_before_acquire`) needless. Its sessions plan statements as the
    /// database says; on the engine's own, `plan_cache_mode` is `force_generic_plan`, and
    /// `enable_seqscan`, `enable_bitmapscan` and `jit` are off, so that a plan from when a queue
    /// was empty is good for a full one too. A pool that works on long queues should set the same.
    ///
    /// # Errors
    ///
    /// As for [`PostgresOptions::open`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have brought the schema up to date.
    ///
    /// ```no_run
    /// use alkstore::Store;
    /// use alkstore_postgres::PostgresOptions;
    /// use sqlx::PgPool;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = PgPool::connect("postgres://app@localhost/app").await?;
    /// let store = Store::new(PostgresOptions::new().over_pool(pool.clone()).await?);
    /// # Ok(()) }
    /// ```
    pub async fn over_pool(self, pool: PgPool) -> Result<Postgres> {
        check_runtime()?;
        let schema = self.check()?;
        let opening = |error| failed(OPENING, error);
        let migrating = async {
            let mut connection = pool.acquire().await.map_err(opening)?;
            // Closed if this fails half-way, with its transaction.
            connection.close_on_drop();
            schema.migrate(&mut connection).await?;
            let isolation = default_isolation(&mut connection).await.map_err(opening)?;
            let limit = limit_to_waits(&mut connection, self.operation_timeout).await;
            Ok((isolation, limit.map_err(opening)?))
        };
        let (isolation, limit) = self.in_time(migrating).await?;
        let listener = self.listener_login(Login::OfPool(pool.clone()))?;
        let plain = self.statement_cache && isolation == "read committed";
        let pool = Pool::new(Source::Shared(pool), self.acquire_timeout);
        let begin = [BEGIN, &limit].concat().into();
        Ok(self.engine(&schema, pool, listener, plain, begin))
    }

    fn engine(
        self,
        schema: &Schema,
        pool: Arc<Pool>,
        listener: Option<Login>,
        plain_auto_commit: bool,
        begin: Arc<str>,
    ) -> Postgres {
        let settings = Settings {
            reread_interval: self.reread_interval,
            wake_debounce: self.wake_debounce,
            operation_timeout: self.operation_timeout,
            statement_cache: self.statement_cache,
            begin,
            plain_auto_commit,
            clock_offset: self.clock_offset,
        };
        let sender = fastrand::u32(1..);
        let listener = Listener::new(Config {
            login: listener,
            probe_interval: self.probe_interval,
            reread_interval: self.reread_interval,
            patience: self.acquire_timeout,
            channel: internal_channel(schema),
            sender,
        });
        Postgres(Arc::new(Inner::new(
            pool,
            schema.statements(),
            settings,
            listener,
            sender,
        )))
    }

    /// The schema, if all that was asked for is possible.
    fn check(&self) -> Result<Schema> {
        let timeouts = [
            ("acquire_timeout", self.acquire_timeout),
            ("operation_timeout", self.operation_timeout),
        ];
        for (argument, timeout) in timeouts {
            if timeout.is_zero() {
                return Err(Error::InvalidArgument {
                    argument,
                    value: format!("{timeout:?}"),
                    reason: "no operation would have the time to succeed".into(),
                });
            }
        }
        if let Err(missing) = Handle::try_current() {
            return Err(Error::database(OPENING, missing));
        }
        Schema::new(&self.schema)
    }

    /// Where the listening session goes, if there is to be one.
    fn listener_login(&self, same: Login) -> Result<Option<Login>> {
        if !self.listen {
            return Ok(None);
        }
        let Some(url) = &self.listener_url else {
            return Ok(Some(same));
        };
        let options = Box::new(parse(url)?);
        Ok(Some(Login::Url(options, self.hook.clone())))
    }

    async fn in_time<T>(&self, opening: impl Future<Output = Result<T>>) -> Result<T> {
        match timeout(self.operation_timeout, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(error::timed_out(OPENING, self.operation_timeout)),
        }
    }
}

/// The begin of a transaction in which statements are planned as in any session of the role, and
/// wait for others for a limited time.
async fn begin_with_defaults(
    connection: &mut PgConnection,
    most: Duration,
    plain: bool,
) -> sqlx::Result<Arc<str>> {
    let mut begin = [BEGIN, &limit_to_waits(connection, most).await?].concat();
    if !plain {
        begin.push_str(TELL);
        return Ok(begin.into());
    }
    for (setting, _) in PLANNER {
        let text = "SELECT quote_literal(current_setting($1))";
        let value = sqlx::query(text).persistent(false).bind(setting);
        let value: String = value.fetch_one(&mut *connection).await?.try_get(0)?;
        begin.push_str(&format!("; SET LOCAL {setting} = {value}"));
    }
    Ok(begin.into())
}

/// What follows the begin of a transaction, so that its statements wait for a lock that others
/// hold as long as operations have, or less if the database or the role says so.
async fn limit_to_waits(connection: &mut PgConnection, most: Duration) -> sqlx::Result<String> {
    let text = "SELECT setting::bigint FROM pg_settings WHERE name = 'lock_timeout'";
    let own = sqlx::query(text).persistent(false).fetch_one(connection);
    let own: i64 = own.await?.try_get(0)?;
    // The server is to answer first: it knows what was waited for.
    let most = most - (most / 2).min(Duration::from_millis(100));
    let most = i64::from(i32::try_from(most.as_millis()).unwrap_or(i32::MAX).max(1));
    let limit = if own > 0 { own.min(most) } else { most };
    Ok(format!("; SET LOCAL lock_timeout = {limit}"))
}

async fn default_isolation(connection: &mut PgConnection) -> sqlx::Result<String> {
    let text = "SELECT current_setting('default_transaction_isolation')";
    sqlx::query(text)
        .persistent(false)
        .fetch_one(connection)
        .await?
        .try_get(0)
}
