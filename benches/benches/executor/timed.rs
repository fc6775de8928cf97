//! A future whose polls are timed.

use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use pin_project::pin_project;

/// How long a poll took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Took {
    /// On the clock.
    pub(crate) whole: Duration,
    /// Without the time for which the thread was ready to run and other programs had the
    /// processors. It is what the poll did and what it waited for.
    pub(crate) own: Duration,
}

/// A future that comes back with how long each of its polls took, beside what it was for.
#[pin_project]
#[derive(Debug)]
pub(crate) struct Timed<F> {
    #[pin]
    future: F,
    polls: Vec<Took>,
}

impl<F> Timed<F> {
    pub(crate) fn new(future: F) -> Self {
        let polls = Vec::new();
        Self { future, polls }
    }
}

impl<F: Future> Future for Timed<F> {
    type Output = (F::Output, Vec<Took>);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (before, begin) = (waited(), Instant::now());
        let polled = this.future.poll(context);
        let whole = begin.elapsed();
        let own = whole.saturating_sub(waited().saturating_sub(before));
        this.polls.push(Took { whole, own });
        Poll::Ready((ready!(polled), std::mem::take(this.polls)))
    }
}

/// How long this thread has waited for a processor in its life; none where the system does not
/// tell.
fn waited() -> Duration {
    thread_local! {
        static TOLD: Option<File> = File::open("/proc/thread-self/schedstat").ok();
    }
    let nanos = TOLD.with(|told| {
        let mut text = [0; 64];
        let length = told.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = str::from_utf8(&text[..length]).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    });
    Duration::from_nanos(nanos.unwrap_or(0))
}
