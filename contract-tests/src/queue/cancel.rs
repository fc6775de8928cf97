use alkstore::{EnqueueOpts, JobState};

use super::*;
use crate::Harness;

/// Cancelling deletes a live job, pending or claimed, and leaves nothing dead behind.
pub(super) async fn cancel_deletes_a_live_job_whoever_holds_it<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let queue = plain(&store);
    let held = put(&queue, EnqueueOpts::default()).await;
    let _claim = take(&plain(&other), "w").await;
    let pending = put(&queue, EnqueueOpts::default()).await;
    let delayed = put(
        &queue,
        EnqueueOpts::default().delay(Duration::from_secs(60)),
    )
    .await;
    for id in [held, pending, delayed] {
        assert!(queue.cancel(id).await.unwrap());
        assert_eq!(queue.get_job(id).await.unwrap(), None);
        assert!(!queue.cancel(id).await.unwrap(), "it is gone");
    }
    h.advance(1000);
    none_ready(&queue).await;
}

/// Cancelling an unknown id, another queue's job or a dead job is `false` and does nothing.
pub(super) async fn cancel_finds_nothing_elsewhere<H: Harness>(h: &H) {
    let store = h.open().await;
    let (queue, other) = (
        plain(&store),
        store.queue("other", QueueOpts::default()).unwrap(),
    );
    let dead = put(&queue, EnqueueOpts::default()).await;
    assert!(take(&queue, "w").await.fail(None).await.unwrap());
    let live = put(&queue, EnqueueOpts::default()).await;
    assert!(!other.cancel(live).await.unwrap());
    assert!(!other.cancel(dead).await.unwrap());
    for id in [dead, live + 1, 0, -1, i64::MIN, i64::MAX] {
        assert!(!queue.cancel(id).await.unwrap(), "id {id}");
    }
    assert_eq!(job(&queue, live).await.state, JobState::Pending);
    assert_eq!(job(&queue, dead).await.state, JobState::Dead);
}

/// A job is found through its own queue only, live or dead; an unknown id is no job.
pub(super) async fn get_job_is_of_one_queue<H: Harness>(h: &H) {
    let store = h.open().await;
    let (queue, other) = (
        plain(&store),
        store.queue("other", QueueOpts::default()).unwrap(),
    );
    let dead = put(&queue, EnqueueOpts::default()).await;
    assert!(take(&queue, "w").await.fail(None).await.unwrap());
    let live = put(&queue, EnqueueOpts::default()).await;
    for id in [dead, live] {
        assert_eq!(job(&queue, id).await.id, id);
        assert_eq!(other.get_job(id).await.unwrap(), None);
    }
    for id in [live + 1, 0, -1, i64::MIN, i64::MAX] {
        assert_eq!(queue.get_job(id).await.unwrap(), None, "id {id}");
    }
}
