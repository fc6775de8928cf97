//! The right to write: one holder at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// The right to write. It is never handed over: a future that is not polled holds up nobody.
#[derive(Debug, Default)]
pub(super) struct Writer {
    held: AtomicBool,
    released: Notify,
}

/// The right to write, held. Dropping it lets others write.
#[derive(Debug)]
pub(super) struct WriterGuard(Arc<Writer>);

impl Writer {
    /// Waits until nobody writes.
    pub(super) async fn acquire(self: Arc<Self>) -> WriterGuard {
        loop {
            let released = self.released.notified();
            if !self.held.swap(true, Ordering::AcqRel) {
                return WriterGuard(Arc::clone(&self));
            }
            released.await;
        }
    }
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
        self.0.released.notify_waiters();
    }
}
