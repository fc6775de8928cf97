//! Whether who is on a lane is still at work.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};

use futures::task::AtomicWaker;

use super::Work;
use super::lanes::pass_on;

/// Whether the future of who is on a lane is polled when it is woken.
///
/// The caller may keep it and never poll it again, for instance while it waits for a call of
/// its own that came later. Those who wait must not wait for that.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    polls: AtomicU64,
    woken: AtomicBool,
    waker: AtomicWaker,
}

impl Wake for Pulse {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Pulse {
    pub(super) async fn watch<T>(
        self: &Arc<Self>,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        let waker = Waker::from(Arc::clone(self));
        poll_fn(|cx| {
            self.waker.register(cx.waker());
            self.woken.store(false, Ordering::Release);
            self.polls.fetch_add(1, Ordering::Relaxed);
            work.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }
}

/// What one who waits saw of the holder when it last looked.
#[derive(Debug, Default)]
pub(super) struct Look(Option<(Arc<Pulse>, u64)>);

impl Look {
    /// Takes the lane from a holder that was woken before the last look and not polled since.
    pub(super) fn again<E, W>(&mut self, engine: &E, lane: &str)
    where
        E: Clone + Send + Sync + 'static,
        W: Work<E>,
    {
        let holder = W::lanes(engine)
            .lock()
            .get(lane)
            .map(|lane| Arc::clone(&lane.holder));
        let Some(holder) = holder.filter(|holder| holder.woken.load(Ordering::Acquire)) else {
            self.0 = None;
            return;
        };
        let polls = holder.polls.load(Ordering::Relaxed);
        match self.0.take() {
            Some((before, then)) if Arc::ptr_eq(&before, &holder) && then == polls => {
                pass_on::<E, W>(engine, lane, &holder);
            }
            _ => self.0 = Some((holder, polls)),
        }
    }
}
