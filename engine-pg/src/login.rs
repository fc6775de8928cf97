//! Where connections lead, and how to log in there.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use alkstore::{Error, Result};
use futures::future::BoxFuture;
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::time::timeout;

use crate::error;

const DOING: &str = "asking for fresh connect options";

/// The application's own error.
pub(crate) type HookError = Box<dyn std::error::Error + Send + Sync>;

/// Makes fresh options out of those of the URL.
#[derive(Clone)]
pub(crate) struct Hook(Arc<Refresh>);

type Refresh = dyn Fn(PgConnectOptions) -> BoxFuture<'static, Result<PgConnectOptions, HookError>>
    + Send
    + Sync;

impl Hook {
    pub(crate) fn new<F, R>(refresh: F) -> Self
    where
        F: Fn(PgConnectOptions) -> R + Send + Sync + 'static,
        R: Future<Output = Result<PgConnectOptions, HookError>> + Send + 'static,
    {
        Self(Arc::new(move |options| Box::pin(refresh(options))))
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").finish_non_exhaustive()
    }
}

/// What a new connection is made from. Looked at for each: a password may have changed.
#[derive(Clone)]
pub(crate) enum Login {
    /// A URL, whose options the hook makes fresh.
    Url(Box<PgConnectOptions>, Option<Hook>),
    /// The options that the application's pool has at that moment.
    OfPool(PgPool),
}

impl fmt::Debug for Login {
    /// Without the password, which the driver's options show.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Url(options, _) = self else {
            return f.write_str("OfPool");
        };
        f.debug_struct("Url")
            .field("host", &options.get_host())
            .field("port", &options.get_port())
            .field("username", &options.get_username())
            .field("database", &options.get_database())
            .finish_non_exhaustive()
    }
}

impl Login {
    /// The options for one connection.
    pub(crate) async fn options(&self, most: Duration) -> Result<PgConnectOptions> {
        match self {
            Self::Url(options, None) => Ok(PgConnectOptions::clone(options)),
            Self::Url(options, Some(hook)) => {
                match timeout(most, (hook.0)(PgConnectOptions::clone(options))).await {
                    Ok(fresh) => fresh.map_err(|error| Error::transient(DOING, error)),
                    Err(_) => Err(error::timed_out(DOING, most)),
                }
            }
            Self::OfPool(pool) => Ok(PgConnectOptions::clone(&pool.connect_options())),
        }
    }
}
