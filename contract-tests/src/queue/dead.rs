use alkstore::{EnqueueOpts, JobState};

use super::*;
use crate::Harness;
use crate::support::{Clock, attempts};

/// A failed job is dead at once, attempts left or not, of what was said or of "failed".
pub(super) async fn a_failed_job_is_dead_at_once<H: Harness>(h: &H) {
    let store = h.open().await;
    let (queue, clock) = (plain(&store), Clock::new(h, &store));
    for (said, shown) in [
        (None, "failed"),
        (Some("no such recipient"), "no such recipient"),
    ] {
        let id = put(&queue, EnqueueOpts::default()).await;
        let claim = take(&queue, "w").await;
        let claimed = claim.job().clone();
        let before = clock.now().await;
        assert!(claim.fail(said).await.unwrap());
        let dead = job(&queue, id).await;
        assert_died(&dead, &claimed, shown);
        assert!((before..=clock.now().await).contains(&dead.died_at.unwrap()));
        assert_eq!(dead.attempts, 1);
        none_ready(&queue).await;
    }
}

/// Dead jobs are not claimed, cancelled or swept, and without a retention never deleted.
pub(super) async fn dead_jobs_are_left_alone_and_kept_for_ever<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let id = put(&queue, expiring(1_000)).await;
    assert!(take(&queue, "w").await.fail(Some("broken")).await.unwrap());
    let dead = job(&queue, id).await;
    h.advance(100 * 365 * 86_400);
    none_ready(&queue).await;
    assert!(!queue.cancel(id).await.unwrap());
    assert_eq!(queue.sweep_expired().await.unwrap(), Swept::default());
    assert_eq!(job(&queue, id).await, dead);
}

/// A sweep deletes a dead job from the second on at which its own retention is over.
pub(super) async fn a_dead_job_is_purged_after_its_retention<H: Harness>(h: &H) {
    let store = h.open().await;
    let keep = |seconds| QueueOpts::default().dead_letter_retention(Duration::from_secs(seconds));
    let (queue, clock) = (with_opts(&store, keep(100)), Clock::new(h, &store));
    for () in attempts() {
        let id = put(&queue, EnqueueOpts::default()).await;
        assert!(take(&queue, "w").await.fail(None).await.unwrap());
        let longer = put(&with_opts(&store, keep(200)), EnqueueOpts::default()).await;
        assert!(take(&queue, "w").await.fail(None).await.unwrap());
        let over = job(&queue, id).await.died_at.unwrap() + 100;
        clock.go_to(over - 1).await;
        let before = queue.sweep_expired().await.unwrap();
        let kept = queue.get_job(id).await.unwrap();
        if clock.shows(over - 1).await {
            assert_eq!((before.expired, before.purged), (0, 0));
            assert_eq!(kept.map(|job| job.state), Some(JobState::Dead));
            clock.go_to(over).await;
            let after = queue.sweep_expired().await.unwrap();
            let gone = queue.get_job(id).await.unwrap();
            if clock.shows(over).await {
                assert_eq!((after.expired, after.purged), (0, 1));
                assert_eq!(gone, None);
                assert_eq!(job(&queue, longer).await.state, JobState::Dead);
                return;
            }
        }
        h.advance(300);
        queue.sweep_expired().await.unwrap();
    }
}

/// A retention of `i64::MAX` saturates: the job is kept for ever.
pub(super) async fn an_endless_retention_saturates<H: Harness>(h: &H) {
    let store = h.open().await;
    let opts = changed(|opts: &mut QueueOpts| opts.dead_letter_retention_s = Some(i64::MAX));
    let queue = with_opts(&store, opts);
    let id = put(&queue, EnqueueOpts::default()).await;
    assert!(take(&queue, "w").await.fail(None).await.unwrap());
    h.advance(100 * 365 * 86_400);
    assert_eq!(queue.sweep_expired().await.unwrap(), Swept::default());
    assert_eq!(
        job(&queue, id).await.dead_letter_retention_s,
        Some(i64::MAX)
    );
}

/// A live job is never deleted for its age, whatever its retention.
pub(super) async fn a_retention_is_of_dead_jobs_only<H: Harness>(h: &H) {
    let store = h.open().await;
    let forget = QueueOpts::default().dead_letter_retention(Duration::ZERO);
    let queue = with_opts(&store, forget);
    let held = put(&queue, EnqueueOpts::default()).await;
    take(&queue, "gone").await;
    let pending = put(&queue, EnqueueOpts::default()).await;
    let before = jobs(&queue, &[held, pending]).await;
    h.advance(400 * 86_400);
    assert_eq!(queue.sweep_expired().await.unwrap(), Swept::default());
    assert_eq!(jobs(&queue, &[held, pending]).await, before);
    assert_eq!(ids(&take_many(&queue, "w", 2).await), [held, pending]);
}

/// A job that expires with a retention of zero is dead and deleted by one and the same sweep.
pub(super) async fn a_retention_of_zero_ends_with_the_sweep_that_finds_it<H: Harness>(h: &H) {
    let store = h.open().await;
    let forget = QueueOpts::default().dead_letter_retention(Duration::ZERO);
    let queue = with_opts(&store, forget);
    let id = put(&queue, expiring(10)).await;
    h.advance(11);
    let swept = queue.sweep_expired().await.unwrap();
    assert_eq!((swept.expired, swept.purged), (1, 1));
    assert_eq!(queue.get_job(id).await.unwrap(), None);
}
