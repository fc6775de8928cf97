//! How connections end whose last operation did not.
//!
//! A statement that nobody waits for any more goes on in the server, and holds and takes what it
//! would: the server is told to let go of it, and as long as it has not, the connection counts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::lease::Connection;
use super::session::Connector;
use super::{GOODBYE, Pool, Source, is_lost};
use crate::login::Login;

/// How long an operation that was given up has to end by itself: most do, and so does all that
/// waits no longer than the engine lets it.
pub(crate) const GRACE: Duration = Duration::from_millis(150);
/// How long the server has to let go of a statement that it was told to cancel.
const LETTING_GO: Duration = Duration::from_secs(5);
/// How long it may take to tell the server.
const TELLING: Duration = Duration::from_secs(3);

/// The processes that are to be told to cancel what they do.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    pids: Mutex<Vec<i32>>,
    /// One connection at a time does it for all.
    turn: tokio::sync::Mutex<()>,
}

impl Cancels {
    fn take(&self) -> Vec<i32> {
        std::mem::take(&mut self.pids.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, pid: i32) {
        let pids = self.pids.lock();
        pids.unwrap_or_else(PoisonError::into_inner).push(pid);
    }
}

impl Pool {
    /// Has the server cancel what a process does.
    pub(crate) async fn cancel(self: &Arc<Self>, pid: i32) {
        self.cancels.push(pid);
        let telling = Box::pin(async {
            let _turn = self.cancels.turn.lock().await;
            let pids = self.cancels.take();
            if pids.is_empty() {
                return;
            }
            let calls: Vec<_> = pids
                .iter()
                .map(|pid| format!("pg_cancel_backend({pid})"))
                .collect();
            let text = format!("SELECT {}", calls.join(", "));
            if let Err(error) = self.tell(text).await {
                tracing::debug!(%error, "statements that were given up were not cancelled");
            }
        });
        timeout(TELLING, telling).await.ok();
    }

    /// Runs a statement beside all others: on a connection that is free, else on one more.
    async fn tell(self: &Arc<Self>, text: String) -> alkstore::Result<()> {
        let connector = match &self.source {
            Source::Own(connector, _) => connector.as_ref(),
            Source::Shared(pool) => &Connector::pooled(Login::OfPool(pool.clone())),
        };
        if let (Source::Own(..), Ok(permit)) =
            (&self.source, Arc::clone(&self.permits).try_acquire_owned())
        {
            let mut lease = self.find_or_connect(connector, permit).await?;
            if lease.start().execute(AssertSqlSafe(text)).await.is_ok() {
                lease.ended();
            }
            return Ok(());
        }
        let session = connector.connect(TELLING).await;
        let mut connection = session.map_err(|refused| refused.error)?.connection;
        let told = connection.execute(AssertSqlSafe(text)).await;
        timeout(GOODBYE, connection.close()).await.ok();
        told.map(drop)
            .map_err(|error| crate::error::failed("cancelling a statement", error))
    }
}

/// Ends a connection whose last operation did not, in the background.
pub(super) fn let_go(
    pool: Arc<Pool>,
    connection: Connection,
    pid: Option<i32>,
    permit: Option<OwnedSemaphorePermit>,
) {
    let Ok(runtime) = Handle::try_current() else {
        // Nobody is there to do it: what closes is all that can be done.
        drop(connection.detach());
        return;
    };
    let here = connection.is_of(&runtime);
    runtime.spawn(async move {
        let _permit = permit;
        if !here {
            // Nobody may be driving the runtime that it was made on.
            drop(connection.detach());
            if let Some(pid) = pid {
                pool.cancel(pid).await;
            }
            return;
        }
        let mut connection = connection;
        if timeout(GRACE, drained(connection.get())).await.is_err() {
            if let Some(pid) = pid {
                pool.cancel(pid).await;
            }
            timeout(LETTING_GO, drained(connection.get())).await.ok();
        }
        match connection {
            Connection::Own(session) => {
                timeout(GOODBYE, session.connection.close()).await.ok();
            }
            Connection::Shared(connection) => close(connection).await,
        }
    });
}

/// Closes a connection of the application's pool, which counts it until then.
pub(super) async fn close(mut connection: PoolConnection<sqlx::Postgres>) {
    connection.close_on_drop();
    timeout(GOODBYE, connection.close()).await.ok();
}

/// Reads what the server still has to say. Whether the connection is there at its end.
pub(crate) async fn drained(connection: &mut PgConnection) -> bool {
    // Each error of what was given up ends one attempt.
    for _ in 0..4 {
        match connection.ping().await {
            Ok(()) => return true,
            Err(error) if is_lost(&error) => return false,
            Err(_) => {}
        }
    }
    false
}
