//! Doing a workload: what stands before the clock, and what runs on it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use futures::executor::block_on;

use crate::fill::Fill;
use crate::{Answer, CLAIMS, Caller, Measure, Outcome, Peer, ROWS, Workload, drained};

/// For how many rows each task does the operation before the clock starts, though at least
/// twice: statements are prepared and pages are in the cache, as they are in a service that has
/// run for a second.
const WARM: usize = 20;

/// How much of the time on the clock the warming takes at most, in front of it.
const WARM_PART: f64 = 0.3;

/// How many events the stream has from which `read_since` reads.
const EVENTS: usize = 10 * ROWS;

/// How long a claim may find nothing while jobs are left, before the run has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Does the workload and returns how much was done in which time.
pub(crate) async fn measure<P: Peer>(peer: &P, measure: &Measure) -> Answer<Outcome> {
    let workload = measure.workload;
    let mut callers = Vec::with_capacity(measure.tasks);
    for number in 0..measure.tasks {
        callers.push(peer.caller(number).await?);
    }
    let mut first = callers.first_mut().ok_or("there is no task")?;
    match workload {
        Workload::ReadSince => first.publish_batch(EVENTS).await?,
        Workload::ClaimWithInFront(front) => first.put_in_front(front, measure.behind).await?,
        _ => {}
    }
    let mut fill = Fill::new(measure, P::HANDS_OUT);
    if P::HANDS_OUT && fill.is_needed() {
        let jobs = fill.make::<P>(first, measure.operations).await?;
        drained::limit(measure.time);
        let time = peer.drain(jobs, measure.tasks).await?;
        return fill.note(Outcome::new(drained::done(), time));
    }
    let mut outcome = Outcome::new(0, Duration::ZERO);
    while outcome.operations < measure.operations && outcome.time < measure.time {
        let mut operations = measure.operations - outcome.operations;
        if fill.is_needed() {
            operations = fill.make::<P>(first, operations).await?;
            if operations == 0 {
                break;
            }
        }
        if outcome.operations == 0 {
            warm::<P>(workload, &mut callers, measure.time.mul_f64(WARM_PART)).await?;
        }
        let left = Left {
            operations: AtomicUsize::new(operations),
            time: measure.time.saturating_sub(outcome.time),
        };
        let (done, time);
        (callers, done, time) = run::<P>(workload, callers, left).await?;
        outcome.operations += done;
        outcome.time += time;
        first = callers.first_mut().ok_or("there is no task")?;
    }
    fill.note(outcome)
}

/// How many rows an operation is for.
pub(crate) fn size(workload: Workload) -> usize {
    match workload {
        Workload::EnqueueBatch => ROWS,
        Workload::ClaimBatchAck => CLAIMS,
        _ => 1,
    }
}

/// How often each task does the operation before the clock starts.
pub(crate) fn warming(workload: Workload) -> usize {
    (WARM / size(workload)).max(2)
}

/// Does the operation some times with each task, though not for long.
async fn warm<P: Peer>(
    workload: Workload,
    callers: &mut [P::Caller],
    time: Duration,
) -> Answer<()> {
    let start = Instant::now();
    for number in 0..warming(workload) {
        for caller in &mut *callers {
            if number > 0 && start.elapsed() > time {
                return Ok(());
            }
            once(workload, caller, size(workload)).await?;
        }
    }
    Ok(())
}

/// What is left to do, for all tasks.
struct Left {
    operations: AtomicUsize,
    time: Duration,
}

/// Starts all tasks at once and waits until all operations are done or the time is over. Returns
/// the tasks, how much they did and how long that took.
async fn run<P: Peer>(
    workload: Workload,
    callers: Vec<P::Caller>,
    left: Left,
) -> Answer<(Vec<P::Caller>, usize, Duration)> {
    let left = Arc::new(left);
    let mut back = Vec::with_capacity(callers.len());
    let mut total = 0;
    if !P::BLOCKS {
        let start = Instant::now();
        let running: Vec<_> = callers
            .into_iter()
            .map(|caller| {
                let left = left.clone();
                tokio::spawn(async move { work(workload, caller, &left).await })
            })
            .collect();
        for task in running {
            let (caller, done) = task.await??;
            back.push(caller);
            total += done;
        }
        return Ok((back, total, start.elapsed()));
    }
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
                done.map(|(caller, done)| (caller, done, start, Instant::now()))
            })
        })
        .collect();
    let mut times = Vec::with_capacity(threads.len());
    for thread in threads {
        let (caller, done, start, end) = thread.join().map_err(|_| "a task panicked")??;
        back.push(caller);
        total += done;
        times.push((start, end));
    }
    let start = times.iter().map(|(start, _)| *start).min();
    let end = times.iter().map(|(_, end)| *end).max();
    let (start, end) = start.zip(end).ok_or("there is no task")?;
    Ok((back, total, end - start))
}

/// One task: takes from what is left until nothing is, and returns how many rows it did.
async fn work<C: Caller>(workload: Workload, mut caller: C, left: &Left) -> Answer<(C, usize)> {
    let size = size(workload);
    let start = Instant::now();
    let mut done = 0;
    while start.elapsed() < left.time {
        let order = Ordering::Relaxed;
        let taken = left.operations.fetch_update(order, order, |left| {
            (left > 0).then(|| left.saturating_sub(size))
        });
        let Ok(before) = taken else {
            break;
        };
        let mut wanted = before.min(size);
        let mut last = Instant::now();
        // A claim beside others may find less than is there.
        while wanted > 0 {
            let now = once(workload, &mut caller, wanted).await?;
            done += now;
            wanted -= now.min(wanted);
            if now > 0 {
                last = Instant::now();
            } else if start.elapsed() > left.time {
                // Others may have taken what is missing: that counts as not done.
                break;
            } else if last.elapsed() > PATIENCE {
                return Err("there are jobs left but none to claim".into());
            }
        }
    }
    Ok((caller, done))
}

/// Does the operation once and returns how many rows it was for, of those that are wanted.
async fn once(workload: Workload, caller: &mut impl Caller, wanted: usize) -> Answer<usize> {
    match workload {
        Workload::Enqueue => caller.enqueue().await.map(|()| 1),
        Workload::EnqueueBatch => caller.enqueue_batch(ROWS).await.map(|()| ROWS),
        Workload::ClaimAck | Workload::ClaimWithReadyBehind | Workload::ClaimWithInFront(_) => {
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
        Workload::WakeSameProcess | Workload::WakeOtherProcess | Workload::Idle => {
            Err("it is no operation".into())
        }
    }
}
