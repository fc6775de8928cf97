//! The connections that read.

use std::sync::{Mutex, PoisonError};

use alkstore::{Error, Result};
use rusqlite::Connection;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::error::Busy;
use crate::place::{Place, Role};

/// Connections that only read, made when they are needed.
#[derive(Debug)]
pub(crate) struct Readers {
    permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            permits: Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)),
            idle: Mutex::new(Vec::new()),
        }
    }

    pub(crate) async fn take(
        &self,
        place: &Place,
        doing: &'static str,
        backoff: &mut Backoff,
    ) -> Result<(SemaphorePermit<'_>, Connection)> {
        let permit = match self.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => timeout(backoff.left(), self.permits.acquire())
                .await
                .map_err(|_| Busy::Readers.into_error(doing))?
                .map_err(|_| Error::store_closed())?,
        };
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let connection = match idle {
            Some(connection) => connection,
            None => place
                .connect(Role::Reader)
                .map_err(|failure| failure.into_error(doing))?,
        };
        Ok((permit, connection))
    }

    pub(crate) fn give(&self, connection: Connection) {
        if !self.permits.is_closed() {
            self.idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(connection);
        }
    }

    pub(crate) fn close(&self) {
        self.permits.close();
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}
