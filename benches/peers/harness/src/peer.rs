//! What a peer says about itself, and how it does an operation.

use std::future::Future;
use std::time::Duration;

use crate::{Answer, Durability, Ear, Engine, Front, Workload};

/// Who is measured.
pub trait Peer: Sized + Send + Sync + 'static {
    /// Its name in results.
    const NAME: &'static str;
    /// The published version, or what is measured instead.
    const VERSION: &'static str;
    /// What it can do. A workload that it has no call for is left out rather than imitated.
    const CAN: &'static [Workload];
    /// Whether its calls block the thread. Then each task is a thread of its own.
    const BLOCKS: bool = false;
    /// Whether jobs are handed to a handler, see [`Peer::drain`], rather than claimed by a call.
    const HANDS_OUT: bool = false;
    /// Whether a file can be opened with [`Durability::Full`], see [`Peer::open_full`].
    const CAN_BE_FULL: bool = false;

    /// One task's way to the store.
    type Caller: Caller;

    /// Opens the store, for this many tasks, and makes its schema.
    fn open(store: &str, tasks: usize) -> impl Future<Output = Answer<Self>> + Send;

    /// Opens a file so that each commit waits for the disk.
    #[expect(clippy::must_use_candidate, reason = "nobody forgets a future")]
    fn open_full(_store: &str, _tasks: usize) -> impl Future<Output = Answer<Self>> + Send {
        async { Err("its durability cannot be set".into()) }
    }

    /// What it is set to, so that a reader can tell whether figures compare.
    #[must_use]
    fn settings(engine: Engine, durability: Durability) -> String {
        engine.durability(durability).to_owned()
    }

    /// The way to the store of the task with this number.
    fn caller(&self, number: usize) -> impl Future<Output = Answer<Self::Caller>> + Send;

    /// For a peer with workers of its own: has so many ready jobs done by a handler that does
    /// nothing, with this concurrency, and returns how long it took from the worker's start
    /// until the last job was done in the database. [`until_done`](crate::until_done) says when
    /// that is, or that there is no more time.
    fn drain(&self, _jobs: usize, _tasks: usize) -> impl Future<Output = Answer<Duration>> + Send {
        async { Err("the peer hands out no jobs".into()) }
    }

    /// Listens to what [`Caller::wake`] does: says to the ear once that it listens, and each time
    /// that it has heard something, until the process ends.
    fn listen(&self, _ear: Ear) -> impl Future<Output = Answer<()>> + Send {
        async { Err("the peer does not listen".into()) }
    }
}

/// One task's operations. Those that are not in [`Peer::CAN`] are never called.
pub trait Caller: Send + 'static {
    /// Enqueues one job and commits.
    fn enqueue(&mut self) -> impl Future<Output = Answer<()>> + Send {
        async { Err("the peer does not enqueue".into()) }
    }

    /// Enqueues many jobs in one commit.
    fn enqueue_batch(&mut self, _jobs: usize) -> impl Future<Output = Answer<()>> + Send {
        async { Err("the peer does not enqueue in batches".into()) }
    }

    /// Claims one job and acks it. Returns whether there was one.
    fn claim_ack(&mut self) -> impl Future<Output = Answer<bool>> + Send {
        async { Err("the peer does not claim".into()) }
    }

    /// Claims up to so many jobs, acks all in one call and returns how many.
    fn claim_batch_ack(&mut self, _jobs: usize) -> impl Future<Output = Answer<usize>> + Send {
        async { Err("the peer does not claim in batches".into()) }
    }

    /// Publishes one event and commits.
    fn publish(&mut self) -> impl Future<Output = Answer<()>> + Send {
        async { Err("the peer does not publish".into()) }
    }

    /// Publishes events as fast as it can, before the clock starts.
    fn publish_batch(&mut self, events: usize) -> impl Future<Output = Answer<()>> + Send {
        async move {
            for _ in 0..events {
                self.publish().await?;
            }
            Ok(())
        }
    }

    /// Reads events after an offset, the first of the stream being 1, and returns how many.
    fn read_since(
        &mut self,
        _offset: usize,
        _limit: usize,
    ) -> impl Future<Output = Answer<usize>> + Send {
        async { Err("the peer does not read events back".into()) }
    }

    /// Puts so many jobs before all that are enqueued afterwards, none of which can be claimed by
    /// the time that it returns.
    fn put_in_front(
        &mut self,
        _front: Front,
        _jobs: usize,
    ) -> impl Future<Output = Answer<()>> + Send {
        async { Err("the peer puts no jobs in front".into()) }
    }

    /// Commits what [`Peer::listen`] hears of: a job, unless the peer listens to something else.
    fn wake(&mut self) -> impl Future<Output = Answer<()>> + Send {
        self.enqueue()
    }
}
