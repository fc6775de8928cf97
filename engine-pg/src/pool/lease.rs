//! Connections in use.

use std::sync::Arc;

use sqlx::PgConnection;
use sqlx::pool::PoolConnection;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

use super::release::let_go;
use super::session::Session;
use super::{Pool, is_lost};

/// A connection in use. It goes back to the pool, or is closed if an operation on it began and
/// did not end well: what the server would answer next is then unknown.
#[derive(Debug)]
pub(crate) struct Lease {
    connection: Option<Connection>,
    pool: Arc<Pool>,
    in_doubt: bool,
    is_lost: bool,
    pid: Option<i32>,
    permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
pub(super) enum Connection {
    Own(Session),
    Shared(PoolConnection<sqlx::Postgres>),
}

impl Connection {
    pub(super) fn get(&mut self) -> &mut PgConnection {
        match self {
            Self::Own(session) => &mut session.connection,
            Self::Shared(connection) => connection,
        }
    }

    /// The driver's connection, with nobody else who keeps track of it.
    pub(super) fn detach(self) -> PgConnection {
        match self {
            Self::Own(session) => session.connection,
            Self::Shared(connection) => connection.detach(),
        }
    }

    /// Whether it can be used on the runtime. Where the application's was made nobody knows.
    pub(super) fn is_of(&self, runtime: &Handle) -> bool {
        match self {
            Self::Own(session) => session.runtime == runtime.id(),
            Self::Shared(_) => true,
        }
    }
}

impl Lease {
    pub(super) fn own(pool: &Arc<Pool>, session: Session, permit: OwnedSemaphorePermit) -> Self {
        let pid = session.pid;
        Self::new(pool, Connection::Own(session), pid, Some(permit))
    }

    pub(super) fn shared(
        pool: &Arc<Pool>,
        connection: PoolConnection<sqlx::Postgres>,
        pid: Option<i32>,
    ) -> Self {
        Self::new(pool, Connection::Shared(connection), pid, None)
    }

    fn new(
        pool: &Arc<Pool>,
        connection: Connection,
        pid: Option<i32>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            connection: Some(connection),
            pool: Arc::clone(pool),
            in_doubt: false,
            is_lost: false,
            pid,
            permit,
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
    pub(crate) fn note_if_lost(&mut self, error: &sqlx::Error) {
        if is_lost(error) {
            self.is_lost = true;
            self.pool.suspect_lost();
        }
    }

    /// The process that serves the connection now, if it is known.
    pub(crate) fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// That this process serves the connection until [`Lease::ended`].
    pub(crate) fn served_by(&mut self, pid: i32) {
        self.pid = Some(pid);
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Whether it can be used on the runtime that is running.
    pub(crate) fn is_here(&self) -> bool {
        let runtime = Handle::try_current();
        runtime.is_ok_and(|runtime| self.connection.as_ref().is_some_and(|c| c.is_of(&runtime)))
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
        self.connection
            .as_mut()
            .expect("a lease has its connection")
            .get()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        match connection {
            connection if self.is_lost => drop(connection.detach()),
            connection if self.in_doubt => {
                let_go(
                    Arc::clone(&self.pool),
                    connection,
                    self.pid,
                    self.permit.take(),
                );
            }
            Connection::Own(session) => self.pool.give_back(session),
            // The driver takes it back in a task, for which there must be a runtime.
            Connection::Shared(connection) if Handle::try_current().is_err() => {
                drop(connection.detach());
            }
            Connection::Shared(_) => {}
        }
    }
}
