//! Transactions of the engine's own.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use alkstore::engine::{Transaction, Wakes};
use alkstore::{Error, Result};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgTransaction, Row as _,
    SqlSafeStr as _,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use crate::backend::Inner;
use crate::error::{self, failed, is_lost};
use crate::notify;
use crate::pool::{GRACE, Lease, Pool, drained, pid};

/// What the engine relies on: a statement sees what was committed before it, and a row that it
/// locks as it is then. The server's default may differ.
pub(crate) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// What follows it where a transaction has another process than the one before.
pub(crate) const TELL: &str = "; SELECT pg_backend_pid()";

/// A commit of a transaction that has failed is a rollback, without an error. The statement
/// before it has one.
const COMMIT: &str = "SELECT 1; COMMIT";

/// How many errors a connection has to tell at most before it rolls back.
const MOST_ANSWERS: u32 = 4;

const BEGINNING: &str = "beginning a transaction";
const COMMITTING: &str = "committing a transaction";
const ROLLING_BACK: &str = "rolling back a transaction";

/// A transaction that the engine began, see [`Tx`](alkstore::Tx). Dropping it rolls it back,
/// and then its connection goes back to the pool.
pub struct PostgresTx {
    open: Option<Open>,
    began: std::time::Instant,
    inner: Arc<Inner>,
}

impl fmt::Debug for PostgresTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTx").finish_non_exhaustive()
    }
}

impl PostgresTx {
    pub(crate) async fn begin(inner: &Arc<Inner>) -> Result<Self> {
        let began = std::time::Instant::now();
        let deadline = Instant::now() + inner.settings.operation_timeout;
        loop {
            let lease = inner.pool.acquire(false).await?;
            inner.live()?;
            // Half-way through, the server has begun a transaction that nobody knows of.
            match finish(BEGINNING, Open::begin(lease, Arc::clone(inner))).await? {
                Ok(open) => {
                    return Ok(Self {
                        open: Some(open),
                        began,
                        inner: Arc::clone(inner),
                    });
                }
                // Nothing has happened yet, so nothing happens twice.
                Err(error) if may_try_another(&error) && Instant::now() < deadline => {}
                Err(error) => return Err(failed(BEGINNING, error)),
            }
        }
    }

    fn open(&mut self) -> &mut Open {
        // It is taken by what consumes the transaction.
        #[allow(clippy::expect_used)]
        self.open
            .as_mut()
            .expect("a transaction is open until it ends")
    }
}

impl Transaction for PostgresTx {
    type Conn = PgConnection;

    fn conn(&mut self) -> &mut PgConnection {
        self.open().connection()
    }

    async fn commit(mut self, wakes: Wakes) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let (inner, began) = (Arc::clone(&self.inner), self.began);
        finish(COMMITTING, async move {
            let most = inner.settings.operation_timeout;
            let done = open.commit(most).await;
            if done.is_ok() {
                notify::wake_after_commit(&inner, began, &wakes);
            }
            // The server tells the listener of the commit; without one, this does.
            if done.is_ok() && !inner.listener.is_enabled() {
                wakes.iter().for_each(|topic| inner.hub.wake(topic));
            }
            done
        })
        .await?
    }

    async fn rollback(mut self) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let most = self.inner.settings.operation_timeout;
        finish(ROLLING_BACK, open.rollback(most)).await?
    }
}

impl Drop for PostgresTx {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        let most = self.inner.settings.operation_timeout;
        // Without a runtime, or on one that the connection cannot be used on, the connection is
        // closed, and the server rolls back for it.
        if let (Ok(runtime), true) = (Handle::try_current(), open.is_here()) {
            runtime.spawn(open.rollback(most));
        }
    }
}

/// A connection in a transaction.
enum Open {
    /// The engine's, in doubt until the transaction has ended.
    Own(Lease),
    /// The application's pool's, which the driver takes back itself.
    Shared(Shared),
}

struct Shared {
    tx: PgTransaction<'static>,
    pid: Option<i32>,
    pool: Arc<Pool>,
}

impl Open {
    async fn begin(lease: Lease, inner: Arc<Inner>) -> sqlx::Result<Self> {
        let begin = AssertSqlSafe(Arc::clone(&inner.settings.begin));
        let begun = async {
            let pid = lease.pid().filter(|_| inner.settings.statement_cache);
            match lease.into_shared() {
                Ok(connection) => Ok(Self::Shared(Shared {
                    tx: PgTransaction::begin(connection, Some(begin.into_sql_str())).await?,
                    pid,
                    pool: Arc::clone(&inner.pool),
                })),
                Err(lease) => Self::begin_own(lease, begin).await,
            }
        };
        match timeout(inner.settings.operation_timeout, begun).await {
            Ok(begun) => begun,
            Err(elapsed) => Err(sqlx::Error::Io(std::io::Error::other(elapsed))),
        }
    }

    async fn begin_own(mut lease: Lease, begin: AssertSqlSafe<Arc<str>>) -> sqlx::Result<Self> {
        match begin_on(&mut lease, begin).await {
            Ok(()) => Ok(Self::Own(lease)),
            Err(error) => {
                lease.note_if_lost(&error);
                Err(error)
            }
        }
    }

    fn connection(&mut self) -> &mut PgConnection {
        match self {
            Self::Own(lease) => lease.connection(),
            Self::Shared(shared) => &mut shared.tx,
        }
    }

    /// Whether the connection can be used on the runtime that is running.
    fn is_here(&self) -> bool {
        match self {
            Self::Own(lease) => lease.is_here(),
            Self::Shared(_) => true,
        }
    }

    async fn commit(mut self, most: Duration) -> Result<()> {
        let committed = async {
            match &mut self {
                Self::Own(lease) => lease.start().execute(COMMIT).await.map(drop),
                Self::Shared(shared) => shared.tx.execute("SELECT 1").await.map(drop),
            }
        };
        match timeout(most, committed).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                // Whether the commit or what came before it failed, this ends it.
                if is_lost(&error) {
                    self.note_if_lost(&error);
                } else {
                    self.rollback(most).await.ok();
                }
                return Err(failed(COMMITTING, error));
            }
            Err(_) => return Err(error::timed_out(COMMITTING, most)),
        }
        match self {
            Self::Own(mut lease) => {
                lease.ended();
                Ok(())
            }
            Self::Shared(shared) => match timeout(most, shared.tx.commit()).await {
                Ok(committed) => committed.map_err(|error| failed(COMMITTING, error)),
                Err(_) => Err(error::timed_out(COMMITTING, most)),
            },
        }
    }

    fn note_if_lost(&mut self, error: &sqlx::Error) {
        if let Self::Own(lease) = self {
            lease.note_if_lost(error);
        }
    }

    /// Rolls back. A statement that is still on its way is cancelled, or else it would hold what
    /// it has and wait for what it lacks.
    async fn rollback(mut self, most: Duration) -> Result<()> {
        let (pool, pid) = match &mut self {
            Self::Own(lease) => (Arc::clone(lease.pool()), lease.pid()),
            Self::Shared(shared) => (Arc::clone(&shared.pool), shared.pid),
        };
        let mut rolled_back = timeout(GRACE, self.roll_back()).await;
        if rolled_back.is_err() {
            if let Some(pid) = pid {
                pool.cancel(pid).await;
            }
            rolled_back = timeout(most, self.roll_back()).await;
        }
        match (rolled_back, self) {
            (Ok(Ok(())), Self::Own(mut lease)) => {
                lease.ended();
                Ok(())
            }
            (Ok(Ok(())), Self::Shared(shared)) => match timeout(most, shared.tx.rollback()).await {
                Ok(rolled_back) => rolled_back.map_err(|error| failed(ROLLING_BACK, error)),
                Err(_) => Err(error::timed_out(ROLLING_BACK, most)),
            },
            (Ok(Err(error)), mut open) => {
                open.note_if_lost(&error);
                Err(failed(ROLLING_BACK, error))
            }
            (Err(_), _) => Err(error::timed_out(ROLLING_BACK, most)),
        }
    }

    /// Rolls back on a connection of the engine's; on another, waits until the driver can.
    async fn roll_back(&mut self) -> sqlx::Result<()> {
        match self {
            Self::Own(lease) => {
                let connection = lease.start();
                let mut tries = 0;
                loop {
                    tries += 1;
                    match connection.execute("ROLLBACK").await {
                        Ok(_) => return Ok(()),
                        // What the statement before it came to.
                        Err(error) if !is_lost(&error) && tries < MOST_ANSWERS => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Self::Shared(shared) => {
                drained(&mut shared.tx).await;
                Ok(())
            }
        }
    }
}

/// Begins a transaction on a connection of the engine's, in doubt from then on.
async fn begin_on(lease: &mut Lease, begin: AssertSqlSafe<Arc<str>>) -> sqlx::Result<()> {
    let told = lease.pid().is_some();
    let connection = lease.start();
    // The driver counts transactions to turn an application's nested ones into savepoints. The
    // count of a connection that stays with the engine is never taken back.
    let counted = connection.is_in_transaction();
    if !counted {
        connection.begin_with(begin).await.map(std::mem::forget)?;
    } else if told {
        connection.execute(begin).await?;
    } else {
        let row = sqlx::raw_sql(begin).fetch_one(connection).await?;
        lease.served_by(row.try_get(0)?);
        return Ok(());
    }
    if !told {
        let pid = pid(lease.connection()).await?;
        lease.served_by(pid);
    }
    Ok(())
}

/// Whether another connection may do better.
fn may_try_another(error: &sqlx::Error) -> bool {
    is_lost(error) && error::is_transient(error)
}

/// Runs to the end, however early the caller is dropped.
async fn finish<T: Send + 'static>(
    doing: &'static str,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    tokio::spawn(work)
        .await
        .map_err(|error| Error::database(format!("{doing} failed"), error))
}
