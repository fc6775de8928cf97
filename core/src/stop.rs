//! Telling loops to stop.

use tokio::sync::watch;

/// Stops what runs with any clone of it, such as [`Store::run_schedules`](crate::Store::run_schedules).
///
/// ```
/// use alkstore::StopToken;
///
/// let stop = StopToken::new();
/// let other = stop.clone();
/// stop.cancel();
/// assert!(other.is_cancelled());
/// ```
#[derive(Debug, Clone)]
pub struct StopToken(watch::Sender<bool>);

impl Default for StopToken {
    fn default() -> Self {
        Self::new()
    }
}

impl StopToken {
    /// A token that nobody has cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Stops everything that runs with this token or a clone of it. For good; idempotent.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }

    /// Whether a clone was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until a clone is cancelled.
    ///
    /// # Cancel safety
    ///
    /// A dropped call changes nothing.
    ///
    /// ```
    /// # use alkstore::StopToken;
    /// # async fn example(stop: StopToken) {
    /// stop.cancelled().await;
    /// # }
    /// ```
    pub async fn cancelled(&self) {
        // The sender lives in `self`, so the channel cannot close meanwhile.
        self.0
            .subscribe()
            .wait_for(|cancelled| *cancelled)
            .await
            .ok();
    }
}
