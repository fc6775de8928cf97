use alkstore::{EnqueueOpts, JobState};

use super::*;
use crate::Harness;
use crate::support::{Clock, attempts, job_of};

/// A claim holds while now is at most its deadline: nobody else gets the job, its ack lands.
pub(super) async fn a_claim_holds_through_its_deadline<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let (queue, clock) = (with_opts(&store, visible_after(60)), Clock::new(h, &store));
    for () in attempts() {
        let id = put(&queue, EnqueueOpts::default()).await;
        let claim = take(&queue, "holder").await;
        let deadline = claim.claim_expires_at.unwrap();
        assert_eq!(deadline, claim.claimed_at.unwrap() + 60);
        clock.go_to(deadline).await;
        let other = plain(&other).claim_one("other").await.unwrap();
        let beat = claim.heartbeat(60).await.unwrap();
        if !clock.shows(deadline).await {
            queue.cancel(id).await.unwrap();
            continue;
        }
        assert_eq!(other.map(|job| job.id), None);
        assert!(beat, "the claim holds");
        let deadline = deadline + 60;
        clock.go_to(deadline).await;
        let acked = claim.ack().await.unwrap();
        if clock.shows(deadline).await {
            assert!(acked, "the claim holds");
            return;
        }
        queue.cancel(id).await.unwrap();
    }
}

/// One second after its deadline a claim has lapsed, and the next claim gets the job with
/// stamps of its own.
pub(super) async fn a_claim_lapses_after_its_deadline<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let (queue, clock) = (with_opts(&store, visible_after(60)), Clock::new(h, &store));
    for () in attempts() {
        let id = put(&queue, EnqueueOpts::default()).await;
        let claim = take(&queue, "holder").await;
        let lapsed = claim.claim_expires_at.unwrap() + 1;
        clock.go_to(lapsed).await;
        let beat = claim.heartbeat(60).await.unwrap();
        let taken = plain(&other).claim_one("other").await.unwrap();
        if !clock.shows(lapsed).await {
            queue.cancel(id).await.unwrap();
            continue;
        }
        assert!(!beat, "the claim has lapsed");
        let taken = taken.expect("the job is ready again");
        let expected = job_of! {
            attempts: 2,
            worker_id: Some("other".to_owned()),
            claimed_at: Some(lapsed),
            claim_expires_at: Some(lapsed + 60),
            ..claim.job().clone()
        };
        assert_eq!(*taken.job(), expected);
        assert_eq!(job(&queue, id).await, expected);
        assert!(taken.ack().await.unwrap());
        return;
    }
}

/// A lapsed claim's job stays as it is until somebody claims from its queue.
pub(super) async fn nothing_happens_to_a_lapsed_claim_by_itself<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let id = put(&queue, EnqueueOpts::default()).await;
    let last = put(&queue, EnqueueOpts::default().max_attempts(1)).await;
    take_many(&queue, "gone", 2).await;
    let before = jobs(&queue, &[id, last]).await;
    h.advance(100_000);
    let elsewhere = store.queue("elsewhere", QueueOpts::default()).unwrap();
    none_ready(&elsewhere).await;
    assert_eq!(queue.sweep_expired().await.unwrap(), Swept::default());
    assert_eq!(jobs(&queue, &[id, last]).await, before);
    assert_eq!(ids(&queue.claim_batch("w", 10).await.unwrap()), [id]);
    assert_died(
        &job(&queue, last).await,
        &before[1].clone().unwrap(),
        EXCEEDED,
    );
}

const EXCEEDED: &str = "max attempts exceeded";

/// A reclaim adds an attempt; when the last one lapses, the job is dead, not handed out.
pub(super) async fn each_reclaim_uses_up_an_attempt<H: Harness>(h: &H) {
    let store = h.open().await;
    let (queue, clock) = (plain(&store), Clock::new(h, &store));
    let id = put(&queue, EnqueueOpts::default()).await;
    let mut last = None;
    for attempt in 1..=3 {
        let claim = take(&queue, &format!("worker-{attempt}")).await;
        assert_eq!((claim.id, claim.attempts), (id, attempt));
        assert_eq!(
            claim.last_error, None,
            "a lapse is not an error of the job's"
        );
        last = Some(claim);
        h.advance(302);
    }
    let last = last.unwrap();
    let before = clock.now().await;
    none_ready(&queue).await;
    let dead = job(&queue, id).await;
    assert_died(&dead, last.job(), EXCEEDED);
    assert_eq!(dead.worker_id.as_deref(), Some("worker-3"));
    assert!((before..=clock.now().await).contains(&dead.died_at.unwrap()));
    none_ready(&queue).await;
}

/// A visibility timeout of `i64::MAX` saturates the deadline: the claim holds for ever.
pub(super) async fn an_endless_claim_never_lapses<H: Harness>(h: &H) {
    let store = h.open().await;
    let opts = changed(|opts: &mut QueueOpts| opts.visibility_timeout_s = i64::MAX);
    let queue = with_opts(&store, opts);
    put(&queue, EnqueueOpts::default()).await;
    let claim = take(&queue, "w").await;
    assert_eq!(claim.claim_expires_at, Some(i64::MAX));
    h.advance(100 * 365 * 86_400);
    none_ready(&queue).await;
    assert!(claim.ack().await.unwrap());
}

/// However many claims have lapsed, a claim looks at 1000, those most overdue first, and
/// the next claims at the rest.
pub(super) async fn a_claim_looks_at_1000_lapsed_most_overdue_first<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = with_opts(&store, visible_after(1_000_000));
    // The first claims hold longer, so that no other order is the right one.
    let late = put_many(&queue, 600, EnqueueOpts::default()).await;
    take_many(&queue, "gone", 600).await;
    let queue = with_opts(&store, visible_after(1000));
    let early = put_many(&queue, 600, EnqueueOpts::default()).await;
    take_many(&queue, "gone", 600).await;
    h.advance(1_000_002);

    let mut first = ids(&queue.claim_batch("w", 5000).await.unwrap());
    assert_eq!(first.len(), 1000);
    first.sort_unstable();
    assert_eq!(first[400..], early);
    let second = ids(&queue.claim_batch("w", 5000).await.unwrap());
    assert_eq!(second.len(), 200);
    assert!(
        second
            .iter()
            .all(|id| late.contains(id) && !first.contains(id))
    );
    none_ready(&queue).await;
}

/// Jobs whose last attempt lapsed die 1000 at a claim and do not hold up the others.
pub(super) async fn a_claim_looks_at_1000_lapsed_on_their_last_attempt<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let lapsed = put_many(&queue, 1100, EnqueueOpts::default().max_attempts(1)).await;
    take_many(&queue, "gone", 1100).await;
    h.advance(302);
    let ready = put(&queue, EnqueueOpts::default().priority(-1)).await;
    assert_eq!(take(&queue, "w").await.id, ready);
    assert_eq!(dead(&queue, &lapsed).await, 1000);
    none_ready(&queue).await;
    assert_eq!(dead(&queue, &lapsed).await, 1100);
}

/// How many of these jobs are dead of their attempts.
async fn dead<E: Engine>(queue: &Queue<E>, ids: &[i64]) -> usize {
    let jobs = jobs(queue, ids).await.into_iter().flatten();
    let dead = jobs.filter(|job| job.state == JobState::Dead);
    dead.filter(|job| job.last_error.as_deref() == Some(EXCEEDED))
        .count()
}
