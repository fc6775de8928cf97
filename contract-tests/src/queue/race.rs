use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alkstore::{Engine, EnqueueOpts, Queue};
use futures::future::join_all;

use super::*;
use crate::Harness;
use crate::support::within;

/// Of many workers in several processes exactly one gets each job, while more come in.
pub(super) async fn a_job_goes_to_one_worker<H: Harness>(h: &H) {
    let stores = [h.open().await, h.open().await];
    let mut all = put_many(&plain(&stores[0]), 40, EnqueueOpts::default()).await;
    let producers = stores.iter().map(|store| {
        let queue = plain(store);
        tokio::spawn(async move {
            let mut ids = Vec::new();
            for _ in 0..10 {
                ids.push(put(&queue, EnqueueOpts::default()).await);
            }
            ids
        })
    });
    let producers: Vec<_> = producers.collect();
    let workers = claim_from_all(&stores, 60);
    for producer in join_all(producers).await {
        all.extend(producer.unwrap());
    }
    let mut claimed = within(h, workers).await;
    claimed.sort_unstable();
    all.sort_unstable();
    assert_eq!(claimed, all, "each job was claimed once");
    for id in all {
        assert_eq!(job(&plain(&stores[0]), id).await.attempts, 1);
    }
}

/// Of many workers exactly one takes over each lapsed claim.
pub(super) async fn a_lapsed_claim_goes_to_one_worker<H: Harness>(h: &H) {
    let stores = [h.open().await, h.open().await];
    let queue = with_opts(&stores[0], visible_after(100_000));
    let all = put_many(&queue, 40, EnqueueOpts::default()).await;
    take_many(&queue, "gone", 40).await;
    h.advance(100_002);
    let mut claimed = within(h, claim_from_all(&stores, 40)).await;
    claimed.sort_unstable();
    assert_eq!(claimed, all, "each job was claimed once more");
    for id in all {
        assert_eq!(job(&queue, id).await.attempts, 2);
    }
}

/// Claims from several tasks on each store until `count` jobs were claimed by all together
/// and nobody finds another.
fn claim_from_all<E: Engine>(
    stores: &[Store<E>],
    count: usize,
) -> impl Future<Output = Vec<i64>> + use<E> {
    let claimed = Arc::new(AtomicUsize::new(0));
    let mut workers = Vec::new();
    for (number, store) in (0..).zip(stores.iter().flat_map(|store| [store; 4])) {
        let (queue, claimed) = (plain(store), Arc::clone(&claimed));
        workers.push(tokio::spawn(claim_until(queue, number, claimed, count)));
    }
    async move {
        let claims = join_all(workers).await.into_iter().map(Result::unwrap);
        claims.flatten().collect()
    }
}

async fn claim_until<E: Engine>(
    queue: Queue<E>,
    number: i64,
    claimed: Arc<AtomicUsize>,
    count: usize,
) -> Vec<i64> {
    let worker = format!("worker-{number}");
    let mut mine = Vec::new();
    loop {
        // Once all were handed out, one more look must find nothing.
        let last = claimed.load(Ordering::SeqCst) >= count;
        let claims = queue.claim_batch(&worker, 1 + number % 3).await.unwrap();
        claimed.fetch_add(claims.len(), Ordering::SeqCst);
        mine.extend(ids(&claims));
        if last {
            return mine;
        }
        tokio::task::yield_now().await;
    }
}

/// While claims lapse, a worker acks and another reclaims: each job goes to one of them.
pub(super) async fn an_ack_or_a_reclaim_wins_never_both<H: Harness>(h: &H) {
    const JOBS: usize = 60;
    let (store, other) = (h.open().await, h.open().await);
    let queue = with_opts(&store, visible_after(1000));
    let all = put_many(&queue, JOBS, EnqueueOpts::default()).await;
    let mut claims = take_many(&queue, "slow", JOBS).await;
    let last = claims.pop().unwrap();
    let acks = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&acks);
    let slow = tokio::spawn(async move {
        let mut acked = BTreeSet::new();
        for claim in claims {
            let id = claim.id;
            if claim.ack().await.unwrap() {
                acked.insert(id);
            }
            counter.fetch_add(1, Ordering::SeqCst);
        }
        acked
    });
    let rival = plain(&other);
    let reclaim = tokio::spawn(async move {
        let mut reclaimed = BTreeSet::new();
        // The last job is left for this worker in any case.
        while !reclaimed.contains(&last.id) {
            reclaimed.extend(ids(&rival.claim_batch("fast", 7).await.unwrap()));
        }
        (reclaimed, last)
    });
    within(h, async {
        while acks.load(Ordering::SeqCst) < JOBS / 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    h.advance(1002);
    let acked = within(h, slow).await.unwrap();
    let (reclaimed, last) = within(h, reclaim).await.unwrap();
    assert!(!last.ack().await.unwrap(), "the reclaim came first");
    assert!(acked.len() >= JOBS / 3 - 1, "acks before the deadline land");
    let both: Vec<_> = acked.intersection(&reclaimed).collect();
    assert_eq!(both, [&0; 0], "a job was acked and handed out again");
    let either: Vec<_> = acked.union(&reclaimed).copied().collect();
    assert_eq!(either, all);
}
