//! Those who work while deliveries come in.

use std::time::Duration;

use alkstore::{BoxedEngine, BoxedStore, JobHandle, Queue, QueueOpts, StopToken};

use crate::ingest::Work;
use crate::run::{ACKS, MAINTENANCE, Tally};
use crate::{Failure, business};

/// How long an idle worker waits before it looks for lapsed claims and delayed jobs.
const LOOK: Duration = Duration::from_millis(200);

/// Does jobs until it is told to stop.
pub(crate) async fn work(
    store: BoxedStore,
    queue: Queue<BoxedEngine>,
    worker: String,
    tally: Tally,
    stop: StopToken,
) -> Result<(), Failure> {
    let mut wakes = queue.listen().await?;
    while !stop.is_cancelled() {
        let jobs = queue.claim_batch(&worker, 4).await?;
        if jobs.is_empty() {
            wakes.recv_timeout(LOOK).await?;
        }
        for job in jobs {
            do_job(&store, job, &tally).await?;
        }
    }
    Ok(())
}

/// What becomes of an attempt: most succeed, some do not.
async fn do_job(
    store: &BoxedStore,
    job: JobHandle<BoxedEngine>,
    tally: &Tally,
) -> Result<(), Failure> {
    let work: Work = job.payload_as()?;
    if job.attempts > 1 && job.last_error.is_none() {
        // No failure was noted, so a claim lapsed: somebody vanished.
        tally.reclaimed(1);
    }
    if tally.vanishes_now() {
        drop(job);
        return Ok(());
    }
    let fate = fate(&work.delivery);
    if fate.is_multiple_of(50) {
        // Never succeeds: after its last attempt it is dead.
        tally.retried(u64::from(job.attempts < job.max_attempts));
        job.retry("this delivery is poisonous", Some(0)).await?;
        return Ok(());
    }
    if fate.is_multiple_of(7) && job.attempts == 1 {
        tally.retried(1);
        job.retry("the first attempt fails", Some(0)).await?;
        return Ok(());
    }
    // The effect and the end of the job are one commit: it happens once.
    let mut tx = store.begin_tx().await?;
    if tx.ack_tx(&job).await? {
        business::insert_handled(tx.connection(), &work.delivery, job.attempts).await?;
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    Ok(())
}

/// A number that stays the same for a delivery, over runs and attempts.
fn fate(delivery: &str) -> u32 {
    delivery.bytes().fold(1, |fate: u32, byte| {
        fate.wrapping_mul(31).wrapping_add(byte.into())
    })
}

/// Follows one stream; the effect of an event and the saved offset are one commit. Of several
/// processes each gets every event, and the one that moves the offset has the effect.
pub(crate) async fn follow(
    store: BoxedStore,
    repository: String,
    stop: StopToken,
) -> Result<(), Failure> {
    let stream = store.stream(&repository)?;
    let mut events = stream.subscribe("audit").await?;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            event = events.recv() => event,
        };
        let Some(event) = event else { return Ok(()) };
        let event = event?;
        let work: Work = event.payload_as()?;
        let mut tx = store.begin_tx().await?;
        if tx
            .save_offset_tx(stream.name(), "audit", event.offset)
            .await?
        {
            let (name, delivery) = (stream.name(), &work.delivery);
            business::insert_seen(tx.connection(), name, event.offset, delivery).await?;
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
    }
}

/// Delivers the outbox's messages.
pub(crate) async fn send(store: BoxedStore, stop: StopToken) -> Result<(), Failure> {
    let outbox = store.outbox(ACKS)?;
    let mut wakes = outbox.listen().await?;
    while !stop.is_cancelled() {
        let deliver = |message: alkstore::Delivery<BoxedEngine>| {
            let store = store.clone();
            async move {
                let work: Work = message.payload_as()?;
                let mut tx = store.begin_tx().await?;
                business::insert_sent(tx.connection(), &work.delivery).await?;
                tx.commit().await?;
                Ok::<(), Failure>(())
            }
        };
        if !outbox.run_once("sender", deliver).await? {
            wakes.recv_timeout(LOOK).await?;
        }
    }
    Ok(())
}

/// Does the jobs that the schedule fires: sweeps the queue.
pub(crate) async fn maintain(
    store: BoxedStore,
    queue: Queue<BoxedEngine>,
    stop: StopToken,
) -> Result<(), Failure> {
    let maintenance = store.queue(MAINTENANCE, QueueOpts::default())?;
    let mut wakes = maintenance.listen().await?;
    while !stop.is_cancelled() {
        while let Some(job) = maintenance.claim_one("maintainer").await? {
            queue.sweep_expired().await?;
            let mut tx = store.begin_tx().await?;
            if tx.ack_tx(&job).await? {
                business::insert_swept(tx.connection(), job.id).await?;
            }
            tx.commit().await?;
        }
        wakes.recv_timeout(LOOK).await?;
    }
    Ok(())
}

/// Enters the guarded section now and then; whoever has the lock is alone in it.
pub(crate) async fn guard(
    store: BoxedStore,
    owner: String,
    tally: Tally,
    stop: StopToken,
) -> Result<(), Failure> {
    while !stop.is_cancelled() {
        match store.try_lock("guarded section", &owner, 5).await? {
            Some(lock) => {
                tally.entered(&owner);
                let mut tx = store.begin_tx().await?;
                business::insert_guarded(tx.connection(), lock.token()).await?;
                tx.commit().await?;
                tally.left(&owner)?;
                lock.release().await?;
            }
            None => tally.refused(1),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
