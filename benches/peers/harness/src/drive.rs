//! Doing a workload: what stands before the clock, and what runs on it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use futures::executor::block_on;

use crate::arguments::Measure;
use crate::{Answer, CLAIMS, Caller, Peer, ROWS, Workload};

/// For how many rows each task does the operation before the clock starts, though at least
/// twice: statements are prepared and pages are in the cache, as they are in a service that has
/// run for a second.
const WARM: usize = 20;

/// How many events the stream has from which `read_since` reads.
const EVENTS: usize = 10 * ROWS;

/// How long a claim may find nothing while jobs are left, before the run has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Does the workload and returns the time on the clock.
pub(crate) async fn measure<P: Peer>(measure: &Measure) -> Answer<Duration> {
    let Measure {
        workload,
        ref store,
        operations,
        tasks,
        behind,
    } = *measure;
    let peer = P::open(store, tasks).await?;
    let mut callers = Vec::with_capacity(tasks);
    for number in 0..tasks {
        callers.push(peer.caller(number).await?);
    }
    let first = callers.first_mut().ok_or("there is no task")?;
    let claims = match workload {
        Workload::ClaimAck => operations,
        Workload::ClaimBatchAck => operations.next_multiple_of(CLAIMS),
        Workload::ClaimWithReadyBehind => operations + behind,
        Workload::ReadSince => {
            first.publish_batch(EVENTS).await?;
            0
        }
        Workload::Enqueue | Workload::EnqueueBatch | Workload::Publish => 0,
    };
    if claims > 0 {
        let warming = warming(workload) * size(workload) * tasks;
        fill::<P>(first, claims + if P::HANDS_OUT { 0 } else { warming }).await?;
    }
    if P::HANDS_OUT && claims > 0 {
        return peer.drain(operations, tasks).await;
    }
    for caller in &mut callers {
        for _ in 0..warming(workload) {
            once(workload, caller, size(workload)).await?;
        }
    }
    run::<P>(workload, callers, operations).await
}

/// How many rows an operation is for.
fn size(workload: Workload) -> usize {
    match workload {
        Workload::EnqueueBatch => ROWS,
        Workload::ClaimBatchAck => CLAIMS,
        _ => 1,
    }
}

/// How often each task does the operation before the clock starts.
fn warming(workload: Workload) -> usize {
    (WARM / size(workload)).max(2)
}

/// Enqueues the jobs that are to be claimed.
async fn fill<P: Peer>(caller: &mut P::Caller, jobs: usize) -> Answer<()> {
    if P::CAN.contains(&Workload::EnqueueBatch) {
        let mut left = jobs;
        while left > 0 {
            let batch = left.min(ROWS);
            caller.enqueue_batch(batch).await?;
            left -= batch;
        }
    } else {
        for _ in 0..jobs {
            caller.enqueue().await?;
        }
    }
    Ok(())
}

/// Starts all tasks at once and waits until all operations are done.
async fn run<P: Peer>(
    workload: Workload,
    callers: Vec<P::Caller>,
    operations: usize,
) -> Answer<Duration> {
    let left = Arc::new(AtomicUsize::new(operations));
    if P::BLOCKS {
        let ready = Arc::new(Barrier::new(callers.len()));
        let handle = tokio::runtime::Handle::current();
        let threads: Vec<_> = callers
            .into_iter()
            .map(|caller| {
                let (left, ready, handle) = (left.clone(), ready.clone(), handle.clone());
                std::thread::spawn(move || {
                    let _inside = handle.enter();
                    ready.wait();
                    // Each has a clock of its own: on few cores a short run is over before
                    // whoever started it gets to look at one.
                    let start = Instant::now();
                    let done = block_on(work(workload, caller, &left));
                    done.map(|()| (start, Instant::now()))
                })
            })
            .collect();
        let mut times = Vec::with_capacity(threads.len());
        for thread in threads {
            times.push(thread.join().map_err(|_| "a task panicked")??);
        }
        let start = times.iter().map(|(start, _)| *start).min();
        let end = times.iter().map(|(_, end)| *end).max();
        let (start, end) = start.zip(end).ok_or("there is no task")?;
        return Ok(end - start);
    }
    let start = Instant::now();
    let running: Vec<_> = callers
        .into_iter()
        .map(|caller| {
            let left = left.clone();
            tokio::spawn(async move { work(workload, caller, &left).await })
        })
        .collect();
    for task in running {
        task.await??;
    }
    Ok(start.elapsed())
}

/// One task: takes from what is left until nothing is.
async fn work(workload: Workload, mut caller: impl Caller, left: &AtomicUsize) -> Answer<()> {
    let size = size(workload);
    loop {
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            (left > 0).then(|| left.saturating_sub(size))
        });
        let Ok(before) = taken else {
            return Ok(());
        };
        let mut wanted = before.min(size);
        let mut last = Instant::now();
        // A claim beside others may find less than is there.
        while wanted > 0 {
            let done = once(workload, &mut caller, wanted).await?;
            wanted -= done.min(wanted);
            if done > 0 {
                last = Instant::now();
            } else if last.elapsed() > PATIENCE {
                return Err("there are jobs left but none to claim".into());
            }
        }
    }
}

/// Does the operation once and returns how many rows it was for, of those that are wanted.
async fn once(workload: Workload, caller: &mut impl Caller, wanted: usize) -> Answer<usize> {
    match workload {
        Workload::Enqueue => caller.enqueue().await.map(|()| 1),
        Workload::EnqueueBatch => caller.enqueue_batch(ROWS).await.map(|()| ROWS),
        Workload::ClaimAck | Workload::ClaimWithReadyBehind => {
            caller.claim_ack().await.map(usize::from)
        }
        Workload::ClaimBatchAck => caller.claim_batch_ack(wanted).await,
        Workload::Publish => caller.publish().await.map(|()| 1),
        Workload::ReadSince => {
            // Somewhere in the middle: neither the first nor the last page.
            let read = caller.read_since(EVENTS / 2, ROWS).await?;
            if read == ROWS {
                Ok(1)
            } else {
                Err(format!("{read} events instead of {ROWS}").into())
            }
        }
    }
}
