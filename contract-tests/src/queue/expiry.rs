use alkstore::{EnqueueOpts, JobState};
use futures::future::poll_immediate;

use super::*;
use crate::Harness;
use crate::support::{Clock, attempts};

const EXPIRED: &str = "expired";

/// A job can be claimed until the second before its expiry and is past it at that second.
pub(super) async fn a_job_expires_at_its_second<H: Harness>(h: &H) {
    let store = h.open().await;
    let (queue, clock) = (plain(&store), Clock::new(h, &store));
    for () in attempts() {
        let claimed = put(&queue, expiring(60)).await;
        let swept = put(&queue, expiring(60)).await;
        let created_at = job(&queue, claimed).await.created_at;
        let expires_at = created_at + 60;
        assert_eq!(job(&queue, claimed).await.expires_at, Some(expires_at));
        clock.go_to(expires_at - 1).await;
        let early = queue.sweep_expired().await.unwrap();
        let ready = queue.claim_one("w").await.unwrap();
        let in_time = clock.shows(expires_at - 1).await;
        clock.go_to(expires_at).await;
        let late = queue.claim_one("w").await.unwrap();
        let states = [job(&queue, claimed).await, job(&queue, swept).await];
        let in_time = in_time && clock.shows(expires_at).await;
        // Both must have been enqueued in one second to expire in one.
        if in_time && states[1].expires_at == Some(expires_at) {
            assert_eq!(early, Swept::default());
            assert_eq!(
                ready.map(|job| job.id),
                Some(claimed),
                "it has not expired yet"
            );
            assert_eq!(late.map(|job| job.id), None, "it has expired");
            for dead in &states {
                assert_eq!(dead.state, JobState::Dead);
                assert_eq!(dead.last_error.as_deref(), Some(EXPIRED));
                assert_eq!(dead.died_at, Some(expires_at));
            }
            return;
        }
        h.advance(100);
        queue.sweep_expired().await.unwrap();
    }
}

/// A claim moves expired jobs to dead, pending or claimed, before it hands anything out.
pub(super) async fn a_claim_ends_expired_jobs<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let held = put(&queue, expiring(60).priority(9)).await;
    let claim = take(&queue, "w").await;
    let waiting = put(&queue, expiring(60).priority(9)).await;
    let delayed = put(&queue, expiring(60).delay(Duration::from_secs(3600))).await;
    let ready = put(&queue, EnqueueOpts::default()).await;
    let before = jobs(&queue, &[held, waiting, delayed]).await;
    h.advance(60);
    assert_eq!(take(&queue, "other").await.id, ready);
    for job_before in before.into_iter().flatten() {
        assert_died(&job(&queue, job_before.id).await, &job_before, EXPIRED);
    }
    assert!(!claim.ack().await.unwrap(), "the job is dead");
    assert_eq!(job(&queue, held).await.worker_id.as_deref(), Some("w"));
}

/// A sweep moves every live job past its expiry to dead, claimed and delayed ones too.
pub(super) async fn a_sweep_ends_expired_jobs_and_counts_them<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let held = put(&queue, expiring(60)).await;
    let claim = take(&queue, "w").await;
    let waiting = put(&queue, expiring(60)).await;
    let delayed = put(&queue, expiring(60).delay(Duration::from_secs(3600))).await;
    let longer = put(&queue, expiring(5000)).await;
    let endless = put(&queue, EnqueueOpts::default()).await;
    let before = jobs(&queue, &[held, waiting, delayed]).await;
    let others = jobs(&queue, &[longer, endless]).await;
    assert_eq!(queue.sweep_expired().await.unwrap(), Swept::default());
    h.advance(60);
    let swept = queue.sweep_expired().await.unwrap();
    assert_eq!((swept.expired, swept.purged), (3, 0));
    for job_before in before.into_iter().flatten() {
        assert_died(&job(&queue, job_before.id).await, &job_before, EXPIRED);
    }
    assert_eq!(jobs(&queue, &[longer, endless]).await, others);
    assert!(!claim.ack().await.unwrap(), "the job is dead");
    assert_eq!(queue.sweep_expired().await.unwrap(), Swept::default());
}

/// A sweep leaves other queues' jobs, live and dead, as they are.
pub(super) async fn a_sweep_is_of_one_queue<H: Harness>(h: &H) {
    let store = h.open().await;
    let forget = QueueOpts::default().dead_letter_retention(Duration::from_secs(10));
    let other = store.queue("other", forget.clone()).unwrap();
    let expired = put(&other, expiring(5)).await;
    let dead = put(&other, EnqueueOpts::default().priority(1)).await;
    assert!(take(&other, "w").await.fail(None).await.unwrap());
    let queue = with_opts(&store, forget);
    put(&queue, expiring(5)).await;
    put(&queue, EnqueueOpts::default().priority(1)).await;
    assert!(take(&queue, "w").await.fail(None).await.unwrap());
    h.advance(20);
    let before = jobs(&other, &[expired, dead]).await;
    let swept = queue.sweep_expired().await.unwrap();
    assert_eq!((swept.expired, swept.purged), (1, 1));
    assert_eq!(jobs(&other, &[expired, dead]).await, before);
    let swept = other.sweep_expired().await.unwrap();
    assert_eq!((swept.expired, swept.purged), (1, 1));
}

/// A job that expires while it is claimed is its worker's until somebody claims or sweeps.
pub(super) async fn an_expired_job_can_be_acked_until_it_is_swept<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let acked = put(&queue, expiring(60)).await;
    let claim = take(&queue, "w").await;
    h.advance(100);
    assert!(claim.heartbeat(300).await.unwrap());
    assert!(claim.ack().await.unwrap());
    assert_eq!(queue.get_job(acked).await.unwrap(), None);

    let retried = put(&queue, expiring(60)).await;
    let claim = take(&queue, "w").await;
    h.advance(100);
    assert!(claim.retry("late", Some(0)).await.unwrap());
    none_ready(&queue).await;
    let dead = job(&queue, retried).await;
    assert_eq!(
        (dead.state, dead.last_error.as_deref()),
        (JobState::Dead, Some(EXPIRED))
    );
}

/// A job whose claim lapsed and that is past its expiry is dead of its expiry.
pub(super) async fn a_lapsed_and_expired_job_is_expired<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let again = put(&queue, expiring(60)).await;
    let last = put(&queue, expiring(60).max_attempts(1)).await;
    let claims = take_many(&queue, "w", 2).await;
    h.advance(302);
    none_ready(&queue).await;
    assert_died(&job(&queue, again).await, claims[0].job(), EXPIRED);
    assert_died(&job(&queue, last).await, claims[1].job(), EXPIRED);
}

/// A claim that hands out fewer jobs than it was asked for ends 200 expired ones, those most
/// overdue first, and hands out none of the others either.
pub(super) async fn a_claim_with_too_few_ends_200_expired_most_overdue_first<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let late = put_many(&queue, 120, expiring(500).priority(9)).await;
    let early = put_many(&queue, 120, expiring(5).priority(-9)).await;
    let ready = put(&queue, EnqueueOpts::default()).await;
    h.advance(502);
    let claims = queue.claim_batch("w", 5000).await.unwrap();
    assert_eq!(ids(&claims), [ready]);
    assert_eq!(dead(&queue, &early).await, 120);
    assert_eq!(dead(&queue, &late).await, 80);
    none_ready(&queue).await;
    assert_eq!(dead(&queue, &late).await, 120);
}

/// A claim that hands out all that it was asked for ends 16 expired jobs, but none of 17.
pub(super) async fn a_claim_with_enough_ends_few_expired_only<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let ready = put_many(&queue, 2, EnqueueOpts::default()).await;
    let mut expired = put_many(&queue, 17, expiring(5).priority(9)).await;
    h.advance(7);
    assert_eq!(take(&queue, "w").await.id, ready[0]);
    assert_eq!(dead(&queue, &expired).await, 0);
    assert!(queue.cancel(expired.remove(3)).await.unwrap());
    assert_eq!(take(&queue, "w").await.id, ready[1]);
    assert_eq!(dead(&queue, &expired).await, 16);
}

/// The order of claims is the same among jobs that expire, that were delayed, and others, however
/// many levels of priority and lifetimes they have.
pub(super) async fn a_claim_finds_its_jobs_among_many_that_are_not_ready<H: Harness>(h: &H) {
    const LEVELS: i64 = 140;
    let store = h.open().await;
    let queue = plain(&store);
    let mut found = Vec::new();
    for level in 0..LEVELS {
        let lifetime = 5 + level;
        put(&queue, expiring(lifetime).priority(level)).await;
        let delay = |seconds| {
            let opts = EnqueueOpts::default().priority(level);
            opts.delay(Duration::from_secs(seconds))
        };
        put(&queue, delay(9000)).await;
        if level % 2 == 0 {
            found.push((-level, 1, put(&queue, delay(100)).await));
        }
        if level % 3 == 0 {
            let live = put(&queue, expiring(9000 + lifetime).priority(level)).await;
            found.push((-level, 0, live));
        }
        if level % 70 == 0 {
            let ready = put(&queue, EnqueueOpts::default().priority(level)).await;
            found.push((-level, 0, ready));
        }
    }
    h.advance(600);
    found.sort_unstable();
    let expected: Vec<_> = found.iter().map(|(_, _, id)| *id).collect();
    let mut claimed = Vec::new();
    for limit in [1, 2, 60, 5000] {
        claimed.extend(ids(&queue.claim_batch("w", limit).await.unwrap()));
    }
    assert_eq!(claimed, expected);
}

/// A sweep ends all that expired and deletes all that are over, in one call.
pub(super) async fn a_sweep_takes_everything_at_once<H: Harness>(h: &H) {
    let store = h.open().await;
    let forget = QueueOpts::default().dead_letter_retention(Duration::from_secs(1000));
    let queue = with_opts(&store, forget);
    put_many(&queue, 1200, expiring(5)).await;
    h.advance(7);
    let swept = queue.sweep_expired().await.unwrap();
    assert_eq!((swept.expired, swept.purged), (1200, 0));
    h.advance(1002);
    let swept = queue.sweep_expired().await.unwrap();
    assert_eq!((swept.expired, swept.purged), (0, 1200));
}

/// A sweep goes in steps: what they did is there while it goes on, others write in between, and
/// the call that is dropped leaves them done.
pub(super) async fn a_sweep_lets_others_pass_and_keeps_its_steps<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let expired = put_many(&queue, 2200, expiring(5)).await;
    h.advance(7);
    let mut sweep = Box::pin(queue.sweep_expired());
    let first = loop {
        assert!(poll_immediate(&mut sweep).await.is_none(), "one step");
        let first = job(&queue, expired[0]).await;
        if first.state == JobState::Dead {
            break first;
        }
    };
    assert_eq!(first.last_error.as_deref(), Some(EXPIRED));
    let last = job(&queue, expired[2199]).await;
    assert_eq!(last.state, JobState::Pending, "a step leaves the rest");
    let ready = put(&queue, EnqueueOpts::default()).await;
    assert_eq!(take(&queue, "w").await.id, ready);
    drop(sweep);
    let rest = queue.sweep_expired().await.unwrap();
    let left = 1..2200;
    assert!(
        left.contains(&rest.expired),
        "{} after a step",
        rest.expired
    );
    let all_dead = async || dead(&queue, &expired).await == expired.len();
    while !all_dead().await {
        // A step that was under way when the call was dropped may have come after.
        queue.sweep_expired().await.unwrap();
    }
}

/// How many of these jobs are dead of their expiry.
async fn dead<E: Engine>(queue: &Queue<E>, ids: &[i64]) -> usize {
    let jobs = jobs(queue, ids).await.into_iter().flatten();
    let dead = jobs.filter(|job| job.state == JobState::Dead);
    dead.filter(|job| job.last_error.as_deref() == Some(EXPIRED))
        .count()
}
