//! Named locks: mutual exclusion for a bounded time, with fencing tokens.

use std::sync::Arc;

use crate::engine::Engine;
use crate::options::at_least;
use crate::{Result, Store, name};

impl<E: Engine> Store<E> {
    /// Takes the lock for `ttl` seconds if it is free; `None` if another owner holds it.
    ///
    /// Never part of a transaction. An owner that asks again while it holds the lock gets a
    /// handle on what it holds, and not more time. After `ttl` the lock lapses silently: hold
    /// it longer with [`Lock::renew`], and guard what must never be written by two with
    /// [`Lock::token`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName) for the name or the owner,
    /// [`Error::ReservedName`](crate::Error::ReservedName);
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a `ttl` below 1;
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call may have taken the lock; it lapses, or the owner asks again.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>) -> Result<()> {
    /// if let Some(lock) = store.try_lock("nightly-report", "host-1", 30).await? {
    ///     // Only one owner is here at a time.
    ///     lock.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_lock(&self, name: &str, owner: &str, ttl: i64) -> Result<Option<Lock<E>>> {
        name::check_shared(name)?;
        self.lock_any(name, owner, ttl).await
    }

    /// [`Store::try_lock`] for the library's own names too.
    pub(crate) async fn lock_any(
        &self,
        name: &str,
        owner: &str,
        ttl: i64,
    ) -> Result<Option<Lock<E>>> {
        name::check_local(owner)?;
        at_least("ttl", ttl, 1)?;
        let token = self.live()?.acquire_lock(name, owner, ttl).await?;
        let handle = |token| Lock {
            store: self.clone(),
            name: name.into(),
            token,
        };
        Ok(token.map(handle))
    }
}

/// An acquisition of a lock. Dropping it does nothing: the lock lapses.
#[derive(Debug)]
pub struct Lock<E> {
    store: Store<E>,
    name: Arc<str>,
    token: i64,
}

impl<E: Engine> Lock<E> {
    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fencing token: greater than that of every acquisition of this name before it,
    /// across releases and restarts. Store it with what the lock guards and refuse writes
    /// that carry a lower one.
    #[must_use]
    pub fn token(&self) -> i64 {
        self.token
    }

    /// Sets the deadline to now plus `ttl` seconds; `false` if this acquisition has lapsed or
    /// ended, and then the lock must be tried anew.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a `ttl` below 1;
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has moved the deadline or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, Lock, Result};
    /// # async fn example<E: Engine>(lock: Lock<E>) -> Result<()> {
    /// assert!(lock.renew(30).await?, "another owner may hold it: stop");
    /// # Ok(()) }
    /// ```
    pub async fn renew(&self, ttl: i64) -> Result<bool> {
        at_least("ttl", ttl, 1)?;
        self.store
            .live()?
            .renew_lock(&self.name, self.token, ttl)
            .await
    }

    /// [`Lock::renew`] also of an acquisition that has lapsed, unless the lock was acquired by
    /// anyone since then.
    pub(crate) async fn resume(&self, ttl: i64) -> Result<bool> {
        self.store
            .live()?
            .resume_lock(&self.name, self.token, ttl)
            .await
    }

    /// Frees the lock; `false` if this acquisition has lapsed or ended already.
    ///
    /// # Errors
    ///
    /// [`Error::Database`](crate::Error::Database).
    ///
    /// # Cancel safety
    ///
    /// A dropped call has freed the lock or has not; if not, it lapses.
    ///
    /// ```
    /// # use alkstore::{Engine, Lock, Result};
    /// # async fn example<E: Engine>(lock: Lock<E>) -> Result<()> {
    /// lock.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<bool> {
        self.store
            .live()?
            .release_lock(&self.name, self.token)
            .await
    }
}
