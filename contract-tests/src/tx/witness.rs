//! Who looks from outside at what a transaction did.

use alkstore::{Engine, EnqueueOpts, OnConnection, QueueOpts, Result, Store, Tx, WakeReceiver};

use crate::Harness;
use crate::support::{count_rows, deliver_one, find_job, numbers, read_all, within};

/// What a transaction wrote besides the rest, which has fixed names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    job: i64,
    message: i64,
}

/// Writes one of everything: a business row, a job, a message, events, a notify and a saved
/// offset.
pub(super) async fn write_everything<H: Harness, T: OnConnection<crate::Conn<H>>>(
    tx: &mut Tx<H::Engine, T>,
) -> Result<Written> {
    H::insert_row(tx.connection(), "row").await?;
    let job = tx.enqueue_tx("queue", EnqueueOpts::default(), &1).await?;
    let message = tx
        .outbox_enqueue_tx("outbox", EnqueueOpts::default(), &1)
        .await?;
    tx.publish_tx("stream", &1).await?;
    tx.publish_with_key_tx("stream", Some("key"), &2).await?;
    tx.notify_tx("channel", &1).await?;
    tx.save_offset_tx("stream", "consumer", 1).await?;
    Ok(Written { job, message })
}

/// Two processes that watch.
pub(super) struct Witness<E> {
    stores: [Store<E>; 2],
    wakes: Vec<(&'static str, WakeReceiver)>,
}

impl<E: Engine> Witness<E> {
    /// Watches from `store` itself and from another on the same database.
    pub(super) async fn new<H: Harness<Engine = E>>(h: &H, store: &Store<E>) -> Self {
        let stores = [store.clone(), h.open().await];
        let mut wakes = Vec::new();
        for store in &stores {
            let queue = store.queue("queue", QueueOpts::default()).unwrap();
            wakes.extend([
                ("channel", store.listen("channel").await.unwrap()),
                (
                    "stream",
                    store.stream("stream").unwrap().listen().await.unwrap(),
                ),
                ("queue", queue.listen().await.unwrap()),
                (
                    "outbox",
                    store.outbox("outbox").unwrap().listen().await.unwrap(),
                ),
            ]);
        }
        Self { stores, wakes }
    }

    /// Asserts that nobody was woken yet.
    pub(super) async fn hears_nothing<H: Harness<Engine = E>>(&mut self, h: &H) {
        tokio::time::sleep(h.quiet()).await;
        for (what, wakes) in &mut self.wakes {
            assert_eq!(wakes.try_recv().unwrap(), None, "the {what} woke");
        }
    }

    /// Asserts that one of everything is there, once, and that everybody was woken.
    pub(super) async fn sees_everything<H: Harness<Engine = E>>(
        &mut self,
        h: &H,
        written: Written,
    ) {
        for (_, wakes) in &mut self.wakes {
            assert!(within(h, wakes.recv()).await.is_some());
        }
        for store in &self.stores {
            assert_eq!(count_rows::<H>(store).await, 1);
            assert!(find_job(store, "queue", written.job).await.is_some());
            let outbox = store.outbox("outbox").unwrap();
            assert!(outbox.get_job(written.message).await.unwrap().is_some());
            assert_eq!(numbers(&read_all(store, "stream").await), [1, 2]);
            let stream = store.stream("stream").unwrap();
            assert_eq!(stream.get_offset("consumer").await.unwrap(), 1);
        }
        self.is_free(3).await;
        let queue = self.stores[0].queue("queue", QueueOpts::default()).unwrap();
        let jobs = queue.claim_batch("worker", 10).await.unwrap();
        assert_eq!(
            jobs.iter().map(|job| job.id).collect::<Vec<_>>(),
            [written.job]
        );
    }

    /// Asserts that nothing is there, that nobody was woken, and that nothing is held.
    pub(super) async fn sees_nothing<H: Harness<Engine = E>>(&mut self, h: &H) {
        self.hears_nothing(h).await;
        for store in &self.stores {
            assert_eq!(count_rows::<H>(store).await, 0);
            assert!(read_all(store, "stream").await.is_empty());
            let stream = store.stream("stream").unwrap();
            assert_eq!(stream.get_offset("consumer").await.unwrap(), 0);
            let queue = store.queue("queue", QueueOpts::default()).unwrap();
            assert!(queue.claim_one("worker").await.unwrap().is_none());
            assert!(!deliver_one(store, "outbox").await);
        }
        self.is_free(1).await;
    }

    /// Asserts that both processes can write, the first event getting the offset `next`.
    async fn is_free(&self, next: i64) {
        for (store, offset) in std::iter::zip(&self.stores, next..) {
            let stream = store.stream("stream").unwrap();
            assert_eq!(stream.publish(&0).await.unwrap(), offset);
            let mut tx = store.begin_tx().await.unwrap();
            tx.publish_tx("probe", &0).await.unwrap();
            tx.rollback().await.unwrap();
        }
    }
}
