use std::time::{Duration, Instant};

use alkstore::{Engine, EnqueueOpts, QueueOpts, Store};
use futures::future::{join_all, poll_immediate};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{SOON, current_thread, fill, on_thread, work};
use crate::Harness;
use crate::support::{error_of, never, says_closed, within};

/// A call that ends a claim, and waits for a transaction that ended the same claim, keeps no
/// other call of the queue waiting. Where a second writer waits for the first one's end they
/// go on with the transaction's end.
pub(super) async fn an_end_that_waits_for_its_row_holds_up_no_other<H: Harness>(h: &H) {
    let store = h.open().await;
    for commit in [true, false] {
        fill(&store, 8).await;
        let queue = work(&store, QueueOpts::default());
        let mut jobs = queue.claim_batch("w", 4).await.unwrap();
        let contended = jobs.remove(0);
        let mut tx = store.begin_tx().await.unwrap();
        assert!(tx.ack_tx(&contended).await.unwrap());
        let mut waits = Box::pin(async move { contended.retry("again", Some(3600)).await });
        assert!(poll_immediate(&mut waits).await.is_none(), "it waits");
        let mut waits = tokio::spawn(waits);
        never(h, &mut waits).await;
        let started = Instant::now();
        let others = async {
            for job in jobs {
                assert!(job.ack().await.unwrap());
                assert!(queue.claim_one("w").await.unwrap().is_some());
            }
        };
        if h.concurrent_writers() {
            within(h, others).await;
            assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
            end(tx, commit).await;
        } else {
            let ends = async {
                tokio::task::yield_now().await;
                end(tx, commit).await;
            };
            within(h, async { tokio::join!(others, ends) }).await;
        }
        assert_eq!(within(h, waits).await.unwrap().unwrap(), !commit);
    }
}

async fn end<E: Engine>(tx: alkstore::Tx<E>, commit: bool) {
    if commit {
        tx.commit().await.unwrap();
    } else {
        tx.rollback().await.unwrap();
    }
}

/// Payloads that are large together, or each for itself, are all stored by calls at once.
pub(super) async fn many_large_payloads_at_once_are_all_stored<H: Harness>(h: &H) {
    /// The number of calls at once, and the bytes of each payload.
    const SIZES: [(usize, usize); 2] = [(12, 1 << 20), (30, 200 << 10)];
    let store = h.open().await;
    let queue = work(&store, QueueOpts::default());
    for (count, size) in SIZES {
        let payload = "x".repeat(size);
        let calls = (0..count).map(|_| queue.enqueue(&payload, EnqueueOpts::default()));
        for id in join_all(calls).await {
            let job = queue.get_job(id.unwrap()).await.unwrap();
            assert_eq!(job.expect("the job exists").payload.len(), size + 2);
        }
    }
}

/// Calls that wait for the same transaction, begun one after another, each end within the limit
/// that holds for each: none waits for the limits of those before it.
pub(super) async fn each_call_ends_within_its_own_limit<H: Harness>(h: &H) {
    let store = h.open_impatient().await;
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &0).await.unwrap();
    // A busy host makes a call late once, not thrice.
    let mut late = Vec::new();
    for _ in 0..3 {
        let first = publish(&store);
        let mut others = Vec::new();
        for _ in 0..4 {
            sleep(Duration::from_millis(20)).await;
            others.push(publish(&store));
        }
        let limit = within(h, first).await.unwrap();
        let took = within(h, join_all(others)).await;
        let took: Vec<Duration> = took.into_iter().map(Result::unwrap).collect();
        let margin = limit / 2;
        late = took
            .into_iter()
            .filter(|took| *took > limit + margin)
            .collect();
        if late.is_empty() {
            break;
        }
    }
    assert!(late.is_empty(), "these calls waited for others: {late:?}");
    tx.rollback().await.unwrap();
}

/// Publishes in vain, and tells how long that took.
fn publish<E: Engine>(store: &Store<E>) -> JoinHandle<Duration> {
    let stream = store.stream("stream").unwrap();
    tokio::spawn(async move {
        let started = Instant::now();
        let error = error_of(stream.publish(&1).await);
        assert!(error.is_transient(), "trying again can help: {error:?}");
        started.elapsed()
    })
}

/// Closing ends what waits, on whatever runtime, within a moment.
pub(super) async fn close_ends_calls_that_wait<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &0).await.unwrap();
    let stream = store.stream("stream").unwrap();
    let mut waiting = Vec::new();
    for number in 0..4 {
        let stream = stream.clone();
        let mut call = Box::pin(async move { stream.publish(&number).await });
        assert!(poll_immediate(&mut call).await.is_none(), "it waits");
        let on_another_runtime = number % 2 == 0;
        waiting.push(if on_another_runtime {
            tokio::spawn(on_thread(move || current_thread().block_on(call)))
        } else {
            tokio::spawn(call)
        });
    }
    let started = Instant::now();
    let closing = tokio::spawn(async move { store.close().await });
    for call in within(h, join_all(waiting)).await {
        let error = error_of(call.unwrap());
        assert!(says_closed(&error), "{error:?}");
    }
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    drop(tx);
    within(h, closing).await.unwrap();
}
