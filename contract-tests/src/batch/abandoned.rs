use std::collections::BTreeMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use alkstore::{Engine, JobHandle, JobState, QueueOpts, Store};
use futures::future::{join_all, poll_immediate};
use tokio::time::timeout;

use super::{SOON, fill, work};
use crate::Harness;
use crate::support::{Dropped, eventually, within};

/// Of claims that wait, those that are dropped take no job.
pub(super) async fn a_claim_dropped_while_it_waits_takes_no_job<H: Harness>(h: &H) {
    const CLAIMS: usize = 20;
    let store = h.open().await;
    let ids = fill(&store, CLAIMS).await;
    let queue = work(&store, QueueOpts::default());
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &0).await.unwrap();
    let mut claims: Vec<_> = (0..CLAIMS)
        .map(|_| Box::pin(queue.claim_one("w")))
        .collect();
    let mut held = Vec::new();
    for claim in &mut claims {
        // Where writers do not wait for each other some may be done already.
        held.extend(poll_immediate(claim).await.and_then(Result::unwrap));
    }
    let kept = claims.swap_remove(CLAIMS / 2);
    drop(claims);
    tx.commit().await.unwrap();
    if held.len() < CLAIMS {
        held.extend(within(h, kept).await.unwrap());
    }
    assert_held(h, &store, &ids, &held).await;
}

/// Claims that are dropped at any point of their way give their jobs back, with the attempt,
/// and those beside them are served.
pub(super) async fn a_claim_dropped_on_its_way_gives_its_job_back<H: Harness>(h: &H) {
    let store = h.open().await;
    let points: Vec<_> = Dropped::points().collect();
    let ids = fill(&store, 3 * points.len()).await;
    let queue = work(&store, QueueOpts::default());
    let mut held = Vec::new();
    for when in points {
        let (one, kept, other) = within(h, async {
            tokio::join!(
                when.run(queue.claim_one("w")),
                queue.claim_one("w"),
                when.run(queue.claim_batch("w", 1)),
            )
        })
        .await;
        held.extend(one.and_then(Result::unwrap));
        held.extend(kept.unwrap());
        held.extend(other.map(Result::unwrap).unwrap_or_default());
    }
    assert_held(h, &store, &ids, &held).await;
}

/// Claims that run into a timeout of their callers, from many tasks at once, hold no job.
pub(super) async fn claims_that_time_out_give_their_jobs_back<H: Harness>(h: &H) {
    const WORKERS: usize = 6;
    const CLAIMS: usize = 25;
    let store = h.open().await;
    let ids = fill(&store, WORKERS * CLAIMS).await;
    let workers = (0..WORKERS).map(|_| {
        let queue = work(&store, QueueOpts::default());
        tokio::spawn(async move {
            let mut held = Vec::new();
            for _ in 0..CLAIMS {
                let limit = Duration::from_micros(fastrand::u64(0..2500));
                if let Ok(claimed) = timeout(limit, queue.claim_one("w")).await {
                    held.extend(claimed.unwrap());
                }
            }
            held
        })
    });
    let workers: Vec<_> = workers.collect();
    let mut held = Vec::new();
    for worker in join_all(workers).await {
        held.extend(worker.unwrap());
    }
    assert_held(h, &store, &ids, &held).await;
}

/// Asserts that the claimed jobs are those that somebody holds, each claimed once, and that the
/// others are as if they had never been claimed.
async fn assert_held<H: Harness, E: Engine>(
    h: &H,
    store: &Store<E>,
    ids: &[i64],
    held: &[JobHandle<E>],
) {
    let queue = work(store, QueueOpts::default());
    let mut expected = ids.iter().map(|id| (*id, (JobState::Pending, 0))).collect();
    for job in held {
        let before = BTreeMap::insert(&mut expected, job.id, (JobState::Processing, 1));
        assert_eq!(before, Some((JobState::Pending, 0)), "claimed twice");
    }
    // Jobs that were claimed for a dropped call go back a moment later.
    eventually(h, async || {
        for (id, (state, attempts)) in &expected {
            let job = queue.get_job(*id).await.unwrap().expect("the job exists");
            if (job.state, job.attempts) != (*state, *attempts) {
                return None;
            }
        }
        Some(())
    })
    .await;
}

/// A call that has waited and is not polled when its turn comes holds up no other call, of the
/// same task or of another.
pub(super) async fn a_call_that_is_not_polled_holds_up_nobody<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    for polls in 0..6 {
        let mut tx = store.begin_tx().await.unwrap();
        tx.publish_tx("stream", &0).await.unwrap();
        let mut waiting = pin!(stream.publish(&1));
        assert!(poll_immediate(&mut waiting).await.is_none(), "it waits");
        tx.commit().await.unwrap();
        let mut done = None;
        for _ in 0..polls {
            tokio::task::yield_now().await;
            if done.is_none() {
                done = poll_immediate(&mut waiting).await;
            }
        }
        let theirs = stream.clone();
        let another = tokio::spawn(async move { theirs.publish(&2).await });
        let started = Instant::now();
        within(h, stream.publish(&3)).await.unwrap();
        within(h, another).await.unwrap().unwrap();
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
        match done {
            Some(done) => done.unwrap(),
            None => within(h, waiting).await.unwrap(),
        };
    }
}
