//! The options, and opening.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use alkstore::engine::check_runtime;
use alkstore::{Error, Result};
use sqlx::postgres::PgConnectOptions;
use sqlx::{PgConnection, PgPool, Row as _};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::Postgres;
use crate::backend::{Inner, Settings};
use crate::error::{self, failed};
use crate::listener::{Config, Listener};
use crate::notify::internal_channel;
use crate::pool::{Pool, Source, connect};
use crate::schema::Schema;
use crate::tx::BEGIN;

const OPENING: &str = "opening the database";

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
    /// at least. The listening session comes on top. No meaning over an application's pool.
    pub fn pool(mut self, max_connections: u32) -> Self {
        self.pool = max_connections.max(1);
        self
    }

    /// How long an operation waits for a connection to be free, to be made, or to listen, by
    /// default 10 seconds. Then it ends in a transient error.
    pub fn acquire_timeout(mut self, most: Duration) -> Self {
        self.acquire_timeout = most;
        self
    }

    /// How long an operation that commits at once waits for the server, by default 30 seconds;
    /// and so do the begin and the end of a transaction, each. Then it ends in a transient
    /// error, and what it asked for may still be done.
    pub fn operation_timeout(mut self, most: Duration) -> Self {
        self.operation_timeout = most;
        self
    }

    /// How long a lost wake delays what waits on it at most, by default 5 seconds. Without
    /// LISTEN it is how often receivers look by themselves.
    pub fn reread_interval(mut self, interval: Duration) -> Self {
        self.reread_interval = interval;
        self
    }

    /// How often the listening session proves that it is alive, by default every 5 seconds. A
    /// connection that is silently gone is noticed within that time and two seconds more.
    pub fn probe_interval(mut self, interval: Duration) -> Self {
        self.probe_interval = interval;
        self
    }

    /// The shortest time between two `NOTIFY` for one queue, stream or the schedules that this
    /// process sends outside of transactions, by default 5 milliseconds. Receivers of this
    /// process are woken at once all the same.
    pub fn wake_debounce(mut self, time: Duration) -> Self {
        self.wake_debounce = time;
        self
    }

    /// A URL for the listening session alone, for when the other one leads to a pooler that
    /// does not pass LISTEN on.
    pub fn listener_url(mut self, url: &str) -> Self {
        self.listener_url = Some(url.to_owned());
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
    /// [`Error::InvalidArgument`] for a URL or a schema name that is none;
    /// [`Error::Database`] if the server cannot be reached, lets nobody in, is older than
    /// version 12 or read-only while the schema is not up to date, if the role lacks rights, or
    /// if the schema is newer than this library. Nothing was changed then.
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
        let schema = Schema::new(&self.schema)?;
        let mut options = parse(url)?;
        if !self.statement_cache {
            options = options.statement_cache_capacity(0);
        }
        let migrating = async {
            let mut connection = connect(&options, self.acquire_timeout).await?;
            schema.migrate(&mut connection).await?;
            let begin = begin_with_defaults(&mut connection).await;
            begin.map_err(|error| failed(OPENING, error))
        };
        let begin_with_defaults = self.in_time(migrating).await?;
        let listener = self.listener_options(parse(url)?)?;
        let plain = self.statement_cache;
        let begin = if plain {
            begin_with_defaults
        } else {
            BEGIN.into()
        };
        if plain {
            let isolation = [("default_transaction_isolation", "read committed")];
            options = options.options(PLANNER).options(isolation);
        }
        let (own, most) = (Source::Own(Box::new(options)), self.pool as usize);
        let pool = Pool::new(own, most, self.acquire_timeout);
        Ok(self.engine(&schema, pool, listener, plain, begin))
    }

    /// Works on the connections of a pool that the application has; the listening session is
    /// made beside it, from the same options. The application may close the pool once the
    /// engine is closed.
    ///
    /// The driver's pool asks the server about each connection at its return, so operations
    /// take longer than on the engine's own connections. Its sessions plan statements as the
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
        let schema = Schema::new(&self.schema)?;
        let opening = |error| failed(OPENING, error);
        let migrating = async {
            let mut connection = pool.acquire().await.map_err(opening)?;
            // Closed if this fails half-way, with its transaction.
            connection.close_on_drop();
            schema.migrate(&mut connection).await?;
            default_isolation(&mut connection).await.map_err(opening)
        };
        let isolation = self.in_time(migrating).await?;
        let listener = self.listener_options(PgConnectOptions::clone(&pool.connect_options()))?;
        let plain = self.statement_cache && isolation == "read committed";
        let pool = Pool::new(
            Source::Shared(pool),
            Semaphore::MAX_PERMITS,
            self.acquire_timeout,
        );
        Ok(self.engine(&schema, pool, listener, plain, BEGIN.into()))
    }

    fn engine(
        self,
        schema: &Schema,
        pool: Arc<Pool>,
        listener: Option<PgConnectOptions>,
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
            options: listener,
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

    /// Where the listening session goes, if there is to be one.
    fn listener_options(&self, same: PgConnectOptions) -> Result<Option<PgConnectOptions>> {
        if !self.listen {
            return Ok(None);
        }
        self.listener_url
            .as_deref()
            .map_or(Ok(same), parse)
            .map(Some)
    }

    async fn in_time<T>(&self, opening: impl Future<Output = Result<T>>) -> Result<T> {
        match timeout(self.operation_timeout, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(error::timed_out(OPENING, self.operation_timeout)),
        }
    }
}

fn parse(url: &str) -> Result<PgConnectOptions> {
    PgConnectOptions::from_str(url)
        .map(|options| match options.get_application_name() {
            Some(_) => options,
            None => options.application_name("alkstore"),
        })
        .map_err(|_| Error::InvalidArgument {
            argument: "url",
            value: without_password(url),
            reason: "it must be like `postgres://role:password@host:port/database`".into(),
        })
}

/// The URL with nothing in it that a log must not have.
fn without_password(url: &str) -> String {
    let place = url.split(['?', '#']).next().unwrap_or_default();
    match place.rsplit_once('@') {
        Some((login, place)) => {
            let scheme = login.split_once("://").map_or("", |(scheme, _)| scheme);
            format!("{scheme}://…@{place}")
        }
        None => place.to_owned(),
    }
}

/// The begin of a transaction in which statements are planned as in any session of the role.
async fn begin_with_defaults(connection: &mut PgConnection) -> sqlx::Result<Arc<str>> {
    let mut begin = BEGIN.to_owned();
    for (setting, _) in PLANNER {
        let text = "SELECT quote_literal(current_setting($1))";
        let value = sqlx::query(text).persistent(false).bind(setting);
        let value: String = value.fetch_one(&mut *connection).await?.try_get(0)?;
        begin.push_str(&format!("; SET LOCAL {setting} = {value}"));
    }
    Ok(begin.into())
}

async fn default_isolation(connection: &mut PgConnection) -> sqlx::Result<String> {
    let text = "SELECT current_setting('default_transaction_isolation')";
    sqlx::query(text)
        .persistent(false)
        .fetch_one(connection)
        .await?
        .try_get(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_no_password() {
        for url in [
            "postgres://app:se:c@ret@host:notaport/db",
            "postgres://app:secret@[::1/db?password=secret",
            "secret",
        ] {
            let shown = parse(url).expect_err("the URL is none").to_string();
            assert!(url == "secret" || !shown.contains("ret"), "{shown}");
        }
    }
}
