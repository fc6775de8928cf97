//! What the tests share.

use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use alkstore::{Error, Store};
use alkstore_sqlite::{Sqlite, SqliteOptions};
use tempfile::TempDir;

/// How long a test waits for what must happen before it calls it missing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A folder of a test's own with a database in it.
pub(crate) struct Files {
    pub(crate) folder: TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn database(&self) -> String {
        self.path("app.db")
            .to_str()
            .expect("a path of text")
            .to_owned()
    }

    pub(crate) async fn open(&self) -> Store<Sqlite> {
        self.open_with(SqliteOptions::new()).await
    }

    pub(crate) async fn open_with(&self, options: SqliteOptions) -> Store<Sqlite> {
        Store::new(
            options
                .open(&self.database())
                .await
                .expect("the database opens"),
        )
    }

    /// A pool of the application's own on the same database.
    pub(crate) async fn pool(&self) -> sqlx::SqlitePool {
        let options = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(self.database())
            .busy_timeout(PATIENCE)
            .create_if_missing(true);
        // One connection: a statement is not answered while the one before is still finishing.
        let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
        pool.connect_with(options).await.expect("a pool")
    }
}

/// Options of a store that does not wait long for a writer.
pub(crate) fn impatient() -> SqliteOptions {
    SqliteOptions::new().busy_timeout(Duration::from_millis(200))
}

/// The message and those of all sources.
pub(crate) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(" / ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Polls a future so many times, letting others run in between, and drops it; its output if
/// it came to an end.
pub(crate) async fn polled<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..times {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}
