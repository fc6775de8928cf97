//! The connections that the engine works on.
//!
//! The driver's own pool asks the server at each release whether the connection is sound, a
//! whole round trip. Here a connection is known to be sound, or closed: [`Lease`] keeps track.

mod idle;
mod lease;
mod release;
mod session;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alkstore::{Error, Result};
use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, PgPool};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{self, failed, is_lost};

use idle::Idle;
use release::Cancels;

pub(crate) use lease::Lease;
pub(crate) use release::{GRACE, drained};
pub(crate) use session::{Connector, pid};

use session::Session;

/// How long a connection that idled, or that somebody else had, has for its answer.
const PING: Duration = Duration::from_secs(2);
/// How long the server has for a goodbye.
const GOODBYE: Duration = Duration::from_millis(500);
/// How often one call takes another of the application's sessions for one that will not do.
const MOST_UNFIT: u32 = 10;
/// The shortest and the longest time between two attempts to connect to a server that is full.
const FULL: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(500)];

const ACQUIRING: &str = "acquiring a connection";

/// A bounded number of connections.
#[derive(Debug)]
pub(crate) struct Pool {
    source: Source,
    permits: Arc<Semaphore>,
    most: usize,
    acquire_timeout: Duration,
    idle: Mutex<Idle>,
    /// Told when a connection is given back while somebody waits for one.
    given_back: Notify,
    cancels: Cancels,
    /// How many statements are on their way that may wait in the server for others.
    waiting: AtomicUsize,
}

/// Where connections come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// Made here, so many at most.
    Own(Box<Connector>, usize),
    /// The application's pool.
    Shared(PgPool),
}

impl Pool {
    pub(crate) fn new(source: Source, acquire_timeout: Duration) -> Arc<Self> {
        let (most, permits) = match &source {
            Source::Own(_, most) => (*most, (*most).clamp(1, Semaphore::MAX_PERMITS)),
            Source::Shared(pool) => {
                let most = pool.options().get_max_connections();
                (most as usize, Semaphore::MAX_PERMITS)
            }
        };
        Arc::new(Self {
            source,
            permits: Arc::new(Semaphore::new(permits)),
            most,
            acquire_timeout,
            idle: Mutex::default(),
            given_back: Notify::new(),
            cancels: Cancels::default(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// A connection for one operation, that may write or `reads_only`. A dropped call takes none.
    pub(crate) async fn acquire(self: &Arc<Self>, reads_only: bool) -> Result<Lease> {
        match &self.source {
            Source::Own(connector, _) => self.acquire_own(connector).await,
            Source::Shared(pool) => Box::pin(self.acquire_shared(pool, reads_only)).await,
        }
    }

    /// Waits until a connection can be had at once, or nearly so.
    pub(crate) async fn has_room(&self) -> Result<()> {
        match &self.source {
            Source::Own(..) => match self.permits.try_acquire() {
                Ok(_) => Ok(()),
                Err(_) => timeout(self.acquire_timeout, self.permits.acquire())
                    .await
                    .map_err(|_| error::starved(ACQUIRING, self.acquire_timeout))?
                    .map(drop)
                    .map_err(|_| Error::store_closed()),
            },
            Source::Shared(_) => Ok(()),
        }
    }

    async fn acquire_own(self: &Arc<Self>, connector: &Connector) -> Result<Lease> {
        let most = self.acquire_timeout;
        // A free permit is taken without a timer.
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => timeout(most, Arc::clone(&self.permits).acquire_owned())
                .await
                .map_err(|_| error::starved(ACQUIRING, most))?
                .map_err(|_| Error::store_closed())?,
        };
        if let Some((session, true)) = self.idle().take() {
            return Ok(Lease::own(self, session, permit));
        }
        // What is rare is boxed: or else each call, and each task that waits for one, has room
        // for all that connecting may take.
        Box::pin(self.find_or_connect(connector, permit)).await
    }

    async fn find_or_connect(
        self: &Arc<Self>,
        connector: &Connector,
        permit: OwnedSemaphorePermit,
    ) -> Result<Lease> {
        let deadline = Instant::now() + self.acquire_timeout;
        let mut pause = FULL[0];
        let mut hungry = None;
        loop {
            let given_back = self.given_back.notified();
            while let Some((mut session, fresh)) = self.take_idle() {
                if fresh || self.is_there(&mut session).await {
                    return Ok(Lease::own(self, session, permit));
                }
            }
            self.idle().make_room(self.permits.available_permits());
            match connector.connect(self.acquire_timeout).await {
                Ok(session) => return Ok(Lease::own(self, session, permit)),
                // The server has none to spare: one of those that are there will be free.
                Err(refused) if refused.full && Instant::now() + pause < deadline => {
                    hungry.get_or_insert_with(|| Hungry::new(self));
                    timeout(pause, given_back).await.ok();
                    pause = pause.mul_f32(1.0 + fastrand::f32()).min(FULL[1]);
                }
                Err(refused) => return Err(refused.error),
            }
        }
    }

    /// A session of the application's pool that is in no transaction: what it gives back in one
    /// is closed.
    async fn acquire_shared(self: &Arc<Self>, pool: &PgPool, reads_only: bool) -> Result<Lease> {
        let deadline = Instant::now() + self.acquire_timeout;
        for unfit in 0.. {
            let connection = timeout_at(deadline, pool.acquire()).await;
            let mut connection = connection
                .map_err(|_| error::starved(ACQUIRING, self.acquire_timeout))?
                .map_err(|error| failed(&session::connecting(&pool.connect_options()), error))?;
            if reads_only {
                return Ok(Lease::shared(self, connection, None));
            }
            match self.look_at(&mut connection).await {
                Ok(pid) => return Ok(Lease::shared(self, connection, Some(pid))),
                Err(error) => {
                    release::close(connection).await;
                    if unfit == MOST_UNFIT {
                        return Err(error);
                    }
                }
            }
        }
        Err(error::starved(ACQUIRING, self.acquire_timeout))
    }

    /// The number of the session's process, if the session is fit for use.
    async fn look_at(&self, connection: &mut PoolConnection<sqlx::Postgres>) -> Result<i32> {
        const LOOKING: &str = "looking at a session of the application's pool";
        let state = timeout(PING, session::state(connection)).await;
        let state = state
            .map_err(|_| error::timed_out(LOOKING, PING))?
            .map_err(|error| failed(LOOKING, error))?;
        if state.in_transaction {
            return Err(Error::transient(
                LOOKING,
                "it was given back in a transaction",
            ));
        }
        if state.is_read_only && self.idle().is_read_only_of_late() {
            return Err(Error::transient(LOOKING, "its server is read-only"));
        }
        Ok(state.pid)
    }

    /// Closes what idles; what is in use is closed at its release.
    pub(crate) async fn close(&self) {
        self.permits.close();
        let goodbyes = self.idle().close();
        let goodbyes = goodbyes.into_iter().map(|connection| connection.close());
        timeout(GOODBYE, futures::future::join_all(goodbyes))
            .await
            .ok();
    }

    /// The connection that idles and was used last, and whether it can be taken as it is.
    fn take_idle(&self) -> Option<(Session, bool)> {
        self.idle().take()
    }

    fn give_back(&self, session: Session) {
        if self.idle().give_back(session) {
            self.given_back.notify_one();
        }
    }

    /// A connection was found lost: those that idle may be as well.
    fn suspect_lost(&self) {
        self.idle().suspect_lost();
    }

    /// A server was found read-only: those that were made before may lead to it.
    pub(crate) fn suspect_read_only(&self) {
        self.idle().suspect_read_only();
    }

    async fn is_there(&self, session: &mut Session) -> bool {
        let asked = async {
            if !self.idle().may_be_read_only(session) {
                return session.connection.ping().await.is_ok();
            }
            let state = session::state(&mut session.connection).await;
            session.checked = std::time::Instant::now();
            state.is_ok_and(|state| !state.is_read_only)
        };
        let there = timeout(PING, asked).await.unwrap_or(false);
        if !there {
            self.suspect_lost();
        }
        there
    }

    /// Counts a statement that may wait in the server; `None` if so many do that this one must
    /// not wait for long: the others need connections too.
    pub(crate) fn wait_in_line(self: &Arc<Self>) -> Option<InLine> {
        let most = self.most - self.most.div_ceil(4);
        let counted = InLine(Arc::clone(self));
        (self.waiting.fetch_add(1, Ordering::AcqRel) < most).then_some(counted)
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        // Nothing in here can be left half done by a panic.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that waits for a connection to be given back.
struct Hungry<'p>(&'p Pool);

impl<'p> Hungry<'p> {
    fn new(pool: &'p Pool) -> Self {
        pool.idle().hungry += 1;
        Self(pool)
    }
}

impl Drop for Hungry<'_> {
    fn drop(&mut self) {
        self.0.idle().hungry -= 1;
    }
}

/// A statement that may wait in the server, counted.
#[derive(Debug)]
pub(crate) struct InLine(Arc<Pool>);

impl Drop for InLine {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
