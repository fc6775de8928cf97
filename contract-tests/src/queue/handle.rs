use alkstore::{EnqueueOpts, Error, JobState};

use super::*;
use crate::Harness;
use crate::support::{Clock, attempts, error_of, job_of};

/// After its deadline a claim can do nothing, though nobody has taken the job over.
pub(super) async fn a_lapsed_claim_cannot_act<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let claims = four(&queue).await;
    h.advance(302);
    assert_refused(&queue, claims).await;
    take_many(&queue, "w", 4).await;
}

/// Once another worker took the jobs over, the old claims can do nothing.
pub(super) async fn a_claim_taken_over_cannot_act<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let stale = four(&queue).await;
    h.advance(302);
    let taken = take_many(&queue, "other", 4).await;
    assert_refused(&queue, stale).await;
    assert_eq!(queue.ack_batch(&taken).await.unwrap(), 4);
}

/// A worker that restarts under its name takes its jobs over from its own old claims.
pub(super) async fn a_claim_taken_over_under_the_same_worker_name_cannot_act<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let stale = four(&queue).await;
    h.advance(302);
    let taken = take_many(&queue, "w", 4).await;
    assert_refused(&queue, stale).await;
    assert_eq!(queue.ack_batch(&taken).await.unwrap(), 4);
}

/// A cancelled job's claim can do nothing and does not bring the job back.
pub(super) async fn a_claim_of_a_cancelled_job_cannot_act<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let claims = four(&queue).await;
    for id in ids(&claims) {
        assert!(queue.cancel(id).await.unwrap());
    }
    assert_refused(&queue, claims).await;
}

/// A claim ends once.
pub(super) async fn a_claim_that_was_acked_cannot_act<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let claims = four(&queue).await;
    assert_eq!(queue.ack_batch(&claims).await.unwrap(), 4);
    assert_refused(&queue, claims).await;
}

/// A job that died while it was claimed stays dead, whatever its worker says.
pub(super) async fn a_claim_of_a_dead_job_cannot_act<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    put_many(&queue, 4, expiring(60)).await;
    let claims = take_many(&queue, "w", 4).await;
    h.advance(61);
    assert_eq!(queue.sweep_expired().await.unwrap().expired, 4);
    let died = jobs(&queue, &ids(&claims)).await;
    assert!(died.iter().flatten().all(|job| job.state == JobState::Dead));
    assert_refused(&queue, claims).await;
}

/// Four claims, one for each operation that can end or hold one.
async fn four<E: Engine>(queue: &Queue<E>) -> [JobHandle<E>; 4] {
    put_many(queue, 4, EnqueueOpts::default()).await;
    let claims = take_many(queue, "w", 4).await;
    claims
        .try_into()
        .unwrap_or_else(|_| panic!("four were claimed"))
}

/// Asserts that every operation is refused and leaves its job as it is.
async fn assert_refused<E: Engine>(
    queue: &Queue<E>,
    claims: impl IntoIterator<Item = JobHandle<E>>,
) {
    let claims: Vec<_> = claims.into_iter().collect();
    let all = ids(&claims);
    let before = jobs(queue, &all).await;
    assert_eq!(queue.ack_batch(&claims).await.unwrap(), 0);
    let [ack, retry, fail, beat]: [_; 4] = claims
        .try_into()
        .unwrap_or_else(|_| panic!("one claim for each operation"));
    assert!(!beat.heartbeat(1000).await.unwrap());
    assert!(!ack.ack().await.unwrap());
    assert!(!retry.retry("too late", Some(0)).await.unwrap());
    assert!(!fail.fail(Some("too late")).await.unwrap());
    assert!(!beat.retry("too late", None).await.unwrap());
    assert_eq!(jobs(queue, &all).await, before);
}

/// A heartbeat sets the deadline to now plus what it is given, be that later or sooner.
pub(super) async fn a_heartbeat_counts_from_now<H: Harness>(h: &H) {
    let store = h.open().await;
    let (queue, clock) = (
        with_opts(&store, visible_after(1000)),
        Clock::new(h, &store),
    );
    for () in attempts() {
        let id = put(&queue, EnqueueOpts::default()).await;
        let claim = take(&queue, "w").await;
        h.advance(400);
        let now = clock.now().await;
        assert!(claim.heartbeat(5000).await.unwrap());
        let longer = job(&queue, id).await;
        assert!(claim.heartbeat(30).await.unwrap());
        let shorter = job(&queue, id).await;
        let in_time = clock.shows(now).await;
        clock.go_to(now + 31).await;
        let beat = claim.heartbeat(30).await.unwrap();
        if !(in_time && clock.shows(now + 31).await) {
            queue.cancel(id).await.unwrap();
            continue;
        }
        let expected = |deadline| {
            job_of! {
                claim_expires_at: Some(deadline),
                ..claim.job().clone()
            }
        };
        assert_eq!(longer, expected(now + 5000));
        assert_eq!(shorter, expected(now + 30));
        assert!(!beat, "the shorter lease is over");
        assert_eq!(take(&queue, "other").await.id, id);
        return;
    }
}

/// An extension below one second is an invalid argument, and the claim stays as it is.
pub(super) async fn a_heartbeat_below_one_second_is_refused<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let id = put(&queue, EnqueueOpts::default()).await;
    let claim = take(&queue, "w").await;
    for extend in [0, -1, i64::MIN] {
        let error = error_of(claim.heartbeat(extend).await);
        let Error::InvalidArgument {
            argument: "extend",
            value,
            ..
        } = &error
        else {
            panic!("{error:?}");
        };
        assert_eq!(*value, extend.to_string());
    }
    assert_eq!(job(&queue, id).await, *claim.job());
    assert!(claim.ack().await.unwrap());
}

/// An extension of `i64::MAX` saturates: the claim holds for ever.
pub(super) async fn an_endless_heartbeat_saturates<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let id = put(&queue, EnqueueOpts::default()).await;
    let claim = take(&queue, "w").await;
    assert!(claim.heartbeat(i64::MAX).await.unwrap());
    assert_eq!(job(&queue, id).await.claim_expires_at, Some(i64::MAX));
    h.advance(100 * 365 * 86_400);
    none_ready(&queue).await;
    assert!(claim.ack().await.unwrap());
}

/// Some claims of a batch land and some do not; the count is of those that did.
pub(super) async fn ack_batch_judges_each_claim_by_itself<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = with_opts(&store, visible_after(60));
    let all = put_many(&queue, 6, EnqueueOpts::default()).await;
    let claims = take_many(&queue, "w", 6).await;
    for claim in &claims[..4] {
        assert!(claim.heartbeat(1000).await.unwrap());
    }
    h.advance(62);
    // Two have lapsed, of which one is taken over; one is cancelled and one acked already.
    let taken = take(&queue, "other").await;
    assert_eq!(taken.id, all[4]);
    assert!(queue.cancel(all[0]).await.unwrap());
    assert_eq!(queue.ack_batch([&claims[1]]).await.unwrap(), 1);
    assert_eq!(queue.ack_batch(&claims).await.unwrap(), 2);
    let left: Vec<_> = jobs(&queue, &all)
        .await
        .into_iter()
        .flatten()
        .map(|job| job.id)
        .collect();
    assert_eq!(left, all[4..]);
    assert!(taken.ack().await.unwrap());
    assert_eq!(queue.ack_batch(&[]).await.unwrap(), 0);
}

/// Another queue's claims do not land and stay as they are.
pub(super) async fn ack_batch_leaves_other_queues_alone<H: Harness>(h: &H) {
    let store = h.open().await;
    let (queue, other) = (
        plain(&store),
        store.queue("other", QueueOpts::default()).unwrap(),
    );
    put(&queue, EnqueueOpts::default()).await;
    let foreign = put(&other, EnqueueOpts::default()).await;
    let claims = [take(&queue, "w").await, take(&other, "w").await];
    assert_eq!(queue.ack_batch(&claims).await.unwrap(), 1);
    assert_eq!(job(&other, foreign).await, *claims[1].job());
    assert_eq!(queue.ack_batch(&claims[1..]).await.unwrap(), 0);
    assert_eq!(other.ack_batch(&claims).await.unwrap(), 1);
}

/// A claim that is given twice lands once.
pub(super) async fn ack_batch_counts_a_claim_once<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    put_many(&queue, 2, EnqueueOpts::default()).await;
    let claims = take_many(&queue, "w", 2).await;
    let twice = [&claims[0], &claims[1], &claims[0], &claims[1], &claims[0]];
    assert_eq!(queue.ack_batch(twice).await.unwrap(), 2);
    assert_eq!(queue.ack_batch(twice).await.unwrap(), 0);
}
