//! The connections that the engine works on.
//!
//! The driver's own pool asks the server at each release whether the connection is sound, a
//! whole round trip. Here a connection is known to be sound, or closed: [`Lease`] keeps track.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use alkstore::{Error, Result};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::error::{self, failed};
use crate::login::Login;

/// A connection that idled for longer is asked whether it is there, before it is used.
const FRESH: Duration = Duration::from_secs(1);
/// A connection that idles for longer is closed.
const MOST_IDLE: Duration = Duration::from_secs(600);
/// How long a connection that idled has for its answer.
const PING: Duration = Duration::from_secs(2);
/// How long the server has for a goodbye.
const GOODBYE: Duration = Duration::from_millis(500);

const CONNECTING: &str = "connecting";

/// A bounded number of connections.
#[derive(Debug)]
pub(crate) struct Pool {
    source: Source,
    permits: Arc<Semaphore>,
    acquire_timeout: Duration,
    idle: Mutex<Idle>,
}

/// Where connections come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// Made here.
    Own(Login),
    /// The application's pool.
    Shared(PgPool),
}

#[derive(Debug, Default)]
struct Idle {
    closed: bool,
    /// The one that was used last is last, and is used next.
    connections: Vec<(PgConnection, Instant)>,
    /// When a connection was last found lost: those that idled then may be as well.
    suspect: Option<Instant>,
}

impl Pool {
    pub(crate) fn new(source: Source, most: usize, acquire_timeout: Duration) -> Arc<Self> {
        let idle = Mutex::default();
        let permits = Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
        Arc::new(Self {
            source,
            permits,
            acquire_timeout,
            idle,
        })
    }

    /// A connection for one operation. A dropped call takes none.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Result<Lease> {
        match &self.source {
            Source::Own(login) => self.acquire_own(login).await,
            Source::Shared(pool) => {
                let connection = Box::pin(timeout(self.acquire_timeout, pool.acquire())).await;
                let connection = connection
                    .map_err(|_| error::starved("acquiring a connection", self.acquire_timeout))?
                    .map_err(|error| failed("acquiring a connection", error))?;
                Ok(Lease::new(self, Connection::Shared(connection), None))
            }
        }
    }

    async fn acquire_own(self: &Arc<Self>, login: &Login) -> Result<Lease> {
        let most = self.acquire_timeout;
        let permit = timeout(most, Arc::clone(&self.permits).acquire_owned()).await;
        let permit = permit
            .map_err(|_| error::starved("acquiring a connection", most))?
            .map_err(|_| Error::store_closed())?;
        while let Some((mut connection, fresh)) = self.take_idle() {
            if fresh || Box::pin(is_there(&mut connection)).await {
                return Ok(Lease::new(self, Connection::Own(connection), Some(permit)));
            }
            self.suspect();
        }
        // What is rare is boxed: or else each call, and each task that waits for one, has room
        // for all that connecting may take.
        let connecting = async { connect(&login.options(most).await?, most).await };
        let connection = Box::pin(connecting).await?;
        Ok(Lease::new(self, Connection::Own(connection), Some(permit)))
    }

    /// Closes what idles; what is in use is closed at its release.
    pub(crate) async fn close(&self) {
        self.permits.close();
        let idle = {
            let mut idle = self.idle();
            idle.closed = true;
            std::mem::take(&mut idle.connections)
        };
        let goodbyes = idle.into_iter().map(|(connection, _)| connection.close());
        timeout(GOODBYE, futures::future::join_all(goodbyes))
            .await
            .ok();
    }

    /// The connection that idles and was used last, and whether it can be taken as it is.
    fn take_idle(&self) -> Option<(PgConnection, bool)> {
        let mut idle = self.idle();
        let (connection, since) = idle.connections.pop()?;
        let unsuspected = idle.suspect.is_none_or(|suspect| since > suspect);
        Some((connection, unsuspected && since.elapsed() < FRESH))
    }

    fn give_back(&self, connection: PgConnection) {
        let mut idle = self.idle();
        if idle.closed {
            return;
        }
        let now = Instant::now();
        let old = |since: &Instant| now.duration_since(*since) > MOST_IDLE;
        let stale = idle.connections.partition_point(|(_, since)| old(since));
        idle.connections.drain(..stale);
        idle.connections.push((connection, now));
    }

    fn suspect(&self) {
        self.idle().suspect = Some(Instant::now());
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        // Nothing in here can be left half done by a panic.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn is_there(connection: &mut PgConnection) -> bool {
    matches!(timeout(PING, connection.ping()).await, Ok(Ok(())))
}

/// A new connection, or the reason why there is none, in time.
pub(crate) async fn connect(options: &PgConnectOptions, most: Duration) -> Result<PgConnection> {
    match timeout(most, PgConnection::connect_with(options)).await {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(failed(CONNECTING, error)),
        Err(_) => Err(error::timed_out(CONNECTING, most)),
    }
}

/// A connection in use. It goes back to the pool, or is closed if an operation on it began and
/// did not end well: what the server would answer next is then unknown.
#[derive(Debug)]
pub(crate) struct Lease {
    connection: Option<Connection>,
    pool: Arc<Pool>,
    in_doubt: bool,
    _permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum Connection {
    Own(PgConnection),
    Shared(PoolConnection<sqlx::Postgres>),
}

impl Lease {
    fn new(pool: &Arc<Pool>, connection: Connection, permit: Option<OwnedSemaphorePermit>) -> Self {
        let pool = Arc::clone(pool);
        Self {
            connection: Some(connection),
            pool,
            in_doubt: false,
            _permit: permit,
        }
    }

    /// The connection, in doubt until [`Lease::ended`].
    pub(crate) fn start(&mut self) -> &mut PgConnection {
        self.in_doubt = true;
        self.connection()
    }

    /// An operation came to its end; the connection is as it was before.
    pub(crate) fn ended(&mut self) {
        self.in_doubt = false;
    }

    /// If that was said by a connection that is lost, others may be.
    pub(crate) fn note_if_lost(&self, error: &sqlx::Error) {
        if error::is_lost(error) {
            self.pool.suspect();
        }
    }

    /// The application's pool's own handle, if it is one.
    pub(crate) fn into_shared(mut self) -> Result<PoolConnection<sqlx::Postgres>, Self> {
        match self.connection.take() {
            Some(Connection::Shared(connection)) => Ok(connection),
            connection => {
                self.connection = connection;
                Err(self)
            }
        }
    }

    /// The connection, whatever the pool makes of it later.
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        // It is taken by `drop` alone.
        #[allow(clippy::expect_used)]
        match self
            .connection
            .as_mut()
            .expect("a lease has its connection")
        {
            Connection::Own(connection) => connection,
            Connection::Shared(connection) => connection,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.connection.take() {
            Some(Connection::Own(connection)) if !self.in_doubt => self.pool.give_back(connection),
            // Dropped, it is closed, and the application's pool makes another.
            Some(Connection::Shared(connection)) if self.in_doubt => drop(connection.detach()),
            _ => {}
        }
    }
}
