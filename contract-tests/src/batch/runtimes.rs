use alkstore::{Engine, EnqueueOpts, Queue, QueueOpts, Store};
use futures::future::{join_all, poll_immediate};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::{current_thread, on_thread, work};
use crate::Harness;
use crate::support::{offsets, read_all, within};

/// A call that was first to wait, on a runtime that is dropped or not driven any more, keeps
/// neither those who wait behind it nor later calls waiting.
pub(super) async fn a_runtime_that_stops_strands_no_call<H: Harness>(h: &H) {
    let store = h.open().await;
    for (round, end) in [End::Kept, End::Dropped, End::CutOff]
        .into_iter()
        .enumerate()
    {
        let mut tx = store.begin_tx().await.unwrap();
        let stream = store.stream(&format!("stream {round}")).unwrap();
        tx.publish_tx(&format!("stream {round}"), &0).await.unwrap();
        let (waits, first_waits) = oneshot::channel();
        let theirs = stream.clone();
        let first = tokio::spawn(on_thread(move || {
            let runtime = current_thread();
            let mut call = Box::pin(async move { theirs.publish(&1).await });
            runtime.block_on(async {
                assert!(poll_immediate(&mut call).await.is_none(), "it waits");
                waits.send(()).expect("the case goes on");
                if end != End::CutOff {
                    call.await.unwrap();
                }
            });
            (end == End::Kept).then_some(runtime)
        }));
        first_waits.await.unwrap();
        let mut behind = Vec::new();
        for number in 2..5 {
            let theirs = stream.clone();
            let mut call = Box::pin(async move { theirs.publish(&number).await });
            assert!(poll_immediate(&mut call).await.is_none(), "it waits");
            behind.push(tokio::spawn(call));
        }
        tx.commit().await.unwrap();
        let runtime = within(h, first).await.unwrap();
        for call in within(h, join_all(behind)).await {
            call.unwrap().unwrap();
        }
        for number in 5..8 {
            within(h, stream.publish(&number)).await.unwrap();
        }
        on_thread(move || drop(runtime)).await;
        let found = offsets(&read_all(&store, &format!("stream {round}")).await);
        // A call that was cut off may have landed.
        assert!(found.len() == 8 || end == End::CutOff && found.len() == 7);
        assert!(std::iter::zip(&found, 1..).all(|(offset, nth)| *offset == nth));
    }
}

/// The fate of the runtime whose call was first to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Its call ends; then nobody drives it.
    Kept,
    /// Its call ends; then it is dropped.
    Dropped,
    /// It is dropped, and its call with it.
    CutOff,
}

/// Many runtimes that live for a few calls each, with a call on its way at their end, share a
/// store: no call on a runtime that lives fails or hangs.
pub(super) async fn calls_on_many_short_lived_runtimes_end<H: Harness>(h: &H) {
    const RUNTIMES: usize = 40;
    let store = h.open().await;
    let threads = (0..2).map(|_| {
        let queue = work(&store, QueueOpts::default());
        on_thread(move || {
            for _ in 0..RUNTIMES {
                let runtime = current_thread();
                runtime.spawn(enqueue_for_ever(queue.clone()));
                runtime.block_on(enqueue_some(&queue));
            }
        })
    });
    join_all(threads).await;
    within(h, enqueue_some(&work(&store, QueueOpts::default()))).await;
}

/// A runtime that is shut down in the background while it makes calls harms no call of
/// another runtime.
pub(super) async fn a_runtime_shut_down_in_the_background_harms_no_other<H: Harness>(h: &H) {
    const RUNTIMES: usize = 25;
    let store = h.open().await;
    let queue = work(&store, QueueOpts::default());
    for _ in 0..RUNTIMES {
        let mut builder = Builder::new_multi_thread();
        let doomed = builder.worker_threads(2).enable_all().build().unwrap();
        for _ in 0..4 {
            doomed.spawn(enqueue_for_ever(queue.clone()));
        }
        let healthy: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { enqueue_some(&queue).await })
            })
            .collect();
        enqueue_some(&queue).await;
        doomed.shutdown_background();
        for call in join_all(healthy).await {
            call.unwrap();
        }
        enqueue_some(&queue).await;
    }
}

async fn enqueue_some<E: Engine>(queue: &Queue<E>) {
    for _ in 0..5 {
        let id = queue.enqueue(&(), EnqueueOpts::default()).await;
        id.expect("a call on a runtime that lives is done");
    }
}

/// Its runtime ends while a call is on its way.
async fn enqueue_for_ever<E: Engine>(queue: Queue<E>) {
    while queue.enqueue(&(), EnqueueOpts::default()).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

/// A transaction that is dropped on a runtime that nobody drives afterwards, or that is
/// dropped with it, holds up nobody.
pub(super) async fn a_transaction_dropped_on_a_runtime_that_stops_frees_its_rows<H: Harness>(
    h: &H,
) {
    let store = h.open().await;
    for keep in [true, false] {
        let theirs = store.clone();
        let runtime = on_thread(move || {
            let runtime = current_thread();
            runtime.block_on(async {
                let mut tx = theirs.begin_tx().await.unwrap();
                tx.publish_tx("stream", &1).await.unwrap();
            });
            keep.then_some(runtime)
        })
        .await;
        let publish = publish(&store);
        let started = std::time::Instant::now();
        assert_eq!(within(h, publish).await, if keep { 1 } else { 2 });
        assert!(started.elapsed() < super::SOON, "{:?}", started.elapsed());
        on_thread(move || drop(runtime)).await;
    }
}

async fn publish<E: Engine>(store: &Store<E>) -> i64 {
    store.stream("stream").unwrap().publish(&0).await.unwrap()
}

/// A transaction that was begun on one runtime commits on another, while nobody drives the
/// first; or it fails and nothing of it is there.
pub(super) async fn a_transaction_commits_on_another_runtime<H: Harness>(h: &H) {
    let store = h.open().await;
    let theirs = store.clone();
    let (runtime, tx) = on_thread(move || {
        let runtime = current_thread();
        let tx = runtime.block_on(async {
            let mut tx = theirs.begin_tx().await.unwrap();
            tx.publish_tx("stream", &1).await.unwrap();
            tx
        });
        (runtime, tx)
    })
    .await;
    let committed = within(h, tx.commit()).await.is_ok();
    on_thread(move || drop(runtime)).await;
    let next = within(h, publish(&store)).await;
    assert_eq!(next, if committed { 2 } else { 1 });
}
