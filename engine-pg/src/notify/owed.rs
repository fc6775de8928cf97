//! Wakes that are sent after the commits that they belong to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use alkstore::engine::{At, Topic, Wakes};
use alkstore::{Error, Result};
use tokio::runtime::Handle;
use tokio::time::{sleep, sleep_until, timeout};

use super::debounce::Due;
use super::{encode, for_anyone, had_room};
use crate::Postgres;
use crate::backend::{Arguments, Inner};
use crate::error;

/// How long an operation waits for wakes that are owed and do not concern it.
const FLUSHING: Duration = Duration::from_secs(1);

/// Wakes that found no room in the server go out once it has some.
pub(crate) fn wake_with_room(inner: &Arc<Inner>, wakes: impl IntoIterator<Item = String>) {
    inner.notifier.has_no_room();
    owe(inner, wakes);
}

/// Makes up for the wakes of a transaction that began then, if some found no room.
pub(crate) fn wake_after_commit(inner: &Arc<Inner>, began: Instant, wakes: &Wakes) {
    if inner.notifier.had_no_room_since(began) {
        owe(inner, wakes.iter().map(for_anyone));
    }
}

/// Wakes who waits for a topic that was changed by a commit without a `NOTIFY`.
pub(crate) fn wake_later(inner: &Arc<Inner>, topic: Topic<'_>) {
    inner.hub.wake(topic);
    owe(inner, [encode(inner.notifier.sender, topic)]);
}

pub(super) fn owe(inner: &Arc<Inner>, wakes: impl IntoIterator<Item = String>) {
    let mut table = inner.notifier.table();
    table.owed.extend(wakes);
    if table.owed.is_empty() || table.paying {
        return;
    }
    if let Ok(runtime) = Handle::try_current() {
        table.paying = true;
        drop(table);
        runtime.spawn(pay(Paying {
            inner: Arc::clone(inner),
            sending: Vec::new(),
        }));
    }
}

/// The task that pays. If its runtime ends first, the next change that owes a wake starts another,
/// which sends as well what this one had not sent.
struct Paying {
    inner: Arc<Inner>,
    sending: Vec<String>,
}

impl Drop for Paying {
    fn drop(&mut self) {
        let mut table = self.inner.notifier.table();
        table.owed.extend(self.sending.drain(..));
        table.paying = false;
    }
}

/// Sends what is owed when it is due, until nothing is.
async fn pay(mut paying: Paying) {
    /// The references that this task itself has.
    const MINE: usize = 2;
    let inner = &Arc::clone(&paying.inner);
    loop {
        match inner.notifier.due() {
            Due::Nothing => return,
            Due::At(next) => sleep_until(next.into()).await,
            Due::Now(wakes) => {
                paying.sending = wakes;
                let sent = send(inner, &paying.sending).await;
                let wakes = std::mem::take(&mut paying.sending);
                let Err(error) = sent else {
                    inner.notifier.table().outage.is_over(Instant::now());
                    continue;
                };
                inner.notifier.table().owed.extend(wakes);
                // Closed, or dropped by all but this task: there is no more to come.
                if inner.live().is_err() || Arc::strong_count(inner) == MINE {
                    return;
                }
                let (pause, told) = {
                    let outage = &mut inner.notifier.table().outage;
                    (outage.pause(), outage.is_to_be_told(Instant::now()))
                };
                if told {
                    tracing::warn!(%error, "wakes wait for the server");
                }
                sleep(pause).await;
            }
        }
    }
}

async fn send(inner: &Inner, wakes: &[String]) -> Result<()> {
    let arguments = || Arguments::default().add(wakes);
    let rows = inner
        .run(At::Auto, &inner.statements.notify.wake, arguments)
        .await?;
    if had_room(&rows) {
        Ok(())
    } else {
        Err(no_room())
    }
}

pub(super) fn no_room() -> Error {
    Error::transient("notifying failed", error::NOTIFY_QUEUE_FULL)
}

impl Postgres {
    /// Sends what is owed at once.
    pub(crate) async fn flush_wakes(&self) {
        let inner = self.inner();
        let owed: Vec<_> = inner.notifier.table().owed.drain().collect();
        if owed.is_empty() {
            return;
        }
        if !matches!(timeout(FLUSHING, send(inner, &owed)).await, Ok(Ok(()))) {
            owe(inner, owed);
        }
    }
}
