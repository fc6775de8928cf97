use alkstore::{EnqueueOpts, WakeReceiver};

use super::*;
use crate::Harness;
use crate::support::{never, within};

/// An enqueue wakes who waits on the queue, in its own process and in others.
pub(super) async fn an_enqueue_wakes_its_queue_in_every_process<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut here = plain(&store).listen().await.unwrap();
    let mut there = plain(&other).listen().await.unwrap();
    put(&plain(&store), EnqueueOpts::default()).await;
    assert_woken(h, &mut here).await;
    assert_woken(h, &mut there).await;
}

/// A batch of jobs wakes its queue as one job does.
pub(super) async fn a_batch_wakes_its_queue<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut wakes = plain(&other).listen().await.unwrap();
    put_many(&plain(&store), 3, EnqueueOpts::default()).await;
    assert_woken(h, &mut wakes).await;
}

/// A queue's receiver hears neither of other queues, nor of a channel or a stream that has
/// its name, nor of what was enqueued before it listened.
pub(super) async fn a_queue_hears_nothing_of_others<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    put(&queue, EnqueueOpts::default()).await;
    let mut wakes = queue.listen().await.unwrap();
    let mut channel = store.listen("work").await.unwrap();
    let other = store.queue("other", QueueOpts::default()).unwrap();
    put(&other, EnqueueOpts::default()).await;
    store
        .outbox("work")
        .unwrap()
        .enqueue(&(), EnqueueOpts::default())
        .await
        .unwrap();
    store.stream("work").unwrap().publish(&()).await.unwrap();
    never(h, wakes.recv()).await;
    never(h, channel.recv()).await;
    store.notify("work", &()).await.unwrap();
    assert!(within(h, channel.recv()).await.is_some());
    never(h, wakes.recv()).await;
    put(&queue, EnqueueOpts::default()).await;
    assert_woken(h, &mut wakes).await;
}

/// In a transaction an enqueue wakes its queue at the commit, and never after a rollback.
pub(super) async fn enqueue_tx_wakes_at_the_commit<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut here = plain(&store).listen().await.unwrap();
    let mut there = plain(&other).listen().await.unwrap();
    for commit in [false, true] {
        let mut tx = store.begin_tx().await.unwrap();
        tx.enqueue_tx("work", EnqueueOpts::default(), &())
            .await
            .unwrap();
        never(h, here.recv()).await;
        never(h, there.recv()).await;
        if commit {
            tx.commit().await.unwrap();
            assert_woken(h, &mut here).await;
            assert_woken(h, &mut there).await;
        } else {
            tx.rollback().await.unwrap();
            never(h, here.recv()).await;
            never(h, there.recv()).await;
        }
    }
}

/// A retry without waiting wakes the queue: there is work again.
pub(super) async fn a_job_that_is_ready_again_wakes_its_queue<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let queue = plain(&store);
    put(&queue, EnqueueOpts::default()).await;
    let claim = take(&queue, "w").await;
    let mut here = queue.listen().await.unwrap();
    let mut there = plain(&other).listen().await.unwrap();
    assert!(claim.retry("again", Some(0)).await.unwrap());
    assert_woken(h, &mut here).await;
    assert_woken(h, &mut there).await;
}

async fn assert_woken<H: Harness>(h: &H, wakes: &mut WakeReceiver) {
    let wake = within(h, wakes.recv()).await.expect("the receiver is open");
    assert_eq!(wake.channel(), "work");
}
