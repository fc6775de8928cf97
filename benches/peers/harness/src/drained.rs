//! When a peer with workers of its own has done enough.

use std::future::Future;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::{Answer, Failure};

/// A worker needs a moment to start: it has the time of other workloads so many times.
const LONGER: u32 = 2;

/// A worker that has done nothing by then does nothing.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long a drain may take: a process measures once.
static TIME: OnceLock<Duration> = OnceLock::new();

/// How many jobs were done when it was over.
static DONE: AtomicUsize = AtomicUsize::new(0);

/// Says how much time a drain has.
pub(crate) fn limit(time: Duration) {
    TIME.get_or_init(|| time * LONGER);
}

/// How many jobs the last drain has done.
pub(crate) fn done() -> usize {
    DONE.load(Ordering::Relaxed)
}

/// For [`Peer::drain`](crate::Peer::drain): waits until the handler has seen so many jobs, and
/// then until they are done in the database. To ask it earlier would slow the worker down. When
/// the time is over what is done by then is what counts.
///
/// # Errors
///
/// The database's; or that the worker does nothing.
pub async fn until_done<F, E>(jobs: usize, seen: &AtomicUsize, done: impl Fn() -> F) -> Answer<()>
where
    F: Future<Output = Result<i64, E>>,
    Failure: From<E>,
{
    let start = Instant::now();
    let time = TIME.get().copied().unwrap_or(Duration::MAX);
    while seen.load(Ordering::Relaxed) < jobs && start.elapsed() < time {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    loop {
        let count = usize::try_from(done().await?)?.min(jobs);
        if count == jobs || (count > 0 && start.elapsed() >= time) {
            DONE.store(count, Ordering::Relaxed);
            return Ok(());
        }
        if count == 0 && start.elapsed() > PATIENCE {
            return Err("its worker does nothing".into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
