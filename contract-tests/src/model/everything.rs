//! A look at all that there is.

use alkstore::engine::{At, Schedules as _};
use alkstore::{QueueOpts, Result};

use super::lock::LOCKS;
use super::outbox::OUTBOXES;
use super::queue::QUEUES;
use super::scheduler::in_order;
use super::seen::Seen;
use super::side::Side;
use super::stream::{CONSUMERS, STREAMS};
use crate::Harness;
use crate::support::count_rows;

impl<H: Harness> Side<'_, H> {
    /// All jobs, events, saved offsets, schedules, business rows, locks, and then what can still be claimed.
    pub(super) async fn everything(&mut self) -> Result<Seen> {
        let mut seen = self.jobs().await?;
        let store = &self.stores[0];
        for stream in STREAMS {
            let stream = store.stream(stream)?;
            seen.push(Seen::Events(stream.read_since(0, i64::MAX).await?));
            for consumer in CONSUMERS {
                seen.push(Seen::Count(stream.get_offset(consumer).await?));
            }
        }
        let agenda = store.engine().read_agenda(At::Auto, 16).await?;
        seen.push(Seen::Agenda(in_order(agenda)));
        seen.push(Seen::Count(count_rows::<H>(store).await));
        for (number, name) in LOCKS.into_iter().enumerate() {
            let locked = self.stores[0].try_lock(name, "the last", 1).await?;
            seen.push(self.kept.locked(number, locked));
        }
        for queue in 0..QUEUES.len() {
            let claimed = self.plain(0, queue)?.claim_batch("the last", 1000).await?;
            seen.push(self.kept.claimed(claimed));
        }
        // The claims have moved what had lapsed or expired.
        seen.append(&mut self.jobs().await?);
        Ok(Seen::All(seen))
    }

    /// Every job that was enqueued, where it is to be found.
    async fn jobs(&self) -> Result<Vec<Seen>> {
        let mut seen = Vec::new();
        for (queue, outbox) in std::iter::zip(QUEUES, OUTBOXES) {
            let queue = self.stores[1].queue(queue, QueueOpts::default())?;
            let outbox = self.stores[1].outbox(outbox)?;
            for id in &self.kept.jobs {
                seen.push(self.kept.found(queue.get_job(*id).await?.as_ref()));
                seen.push(self.kept.found(outbox.get_job(*id).await?.as_ref()));
            }
        }
        Ok(seen)
    }
}
