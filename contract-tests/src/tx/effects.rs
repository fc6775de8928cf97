//! Effects exactly once: with a saved offset, with an ack.

use alkstore::{EnqueueOpts, Error, EventReceiver, QueueOpts, Result, Store, Stream};

use crate::support::{count_rows, find_job, never, number, within};
use crate::{Conn, Harness};

/// A consumer that saves its offset with its effects has each effect once, however often it
/// crashes between the two.
pub(super) async fn effects_are_exactly_once_with_the_saved_offset<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    for payload in 1..=9 {
        stream.publish(&payload).await.unwrap();
    }
    let mut crashes = 0;
    loop {
        let mut tx = store.begin_tx().await.unwrap();
        let events = tx
            .read_from_consumer_tx("stream", "consumer", 2)
            .await
            .unwrap();
        let Some(last) = events.last() else { break };
        for event in &events {
            // A second effect of one event would be a duplicate key.
            H::insert_row(tx.connection(), &number(event).to_string())
                .await
                .unwrap();
        }
        tx.save_offset_tx("stream", "consumer", last.offset)
            .await
            .unwrap();
        if crashes < last.offset {
            crashes += 1;
            drop(tx);
        } else {
            tx.commit().await.unwrap();
        }
    }
    assert_eq!(crashes, 9);
    assert_eq!(count_rows::<H>(&store).await, 9);
    assert_eq!(stream.get_offset("consumer").await.unwrap(), 9);
}

/// Two processes that work as one consumer at once have each effect once: the loser's
/// business write fails and takes its offset with it.
pub(super) async fn rival_consumers_have_their_effects_once<H: Harness>(h: &H) {
    const EVENTS: i64 = 12;
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    for payload in 1..=EVENTS {
        stream.publish(&payload).await.unwrap();
    }
    let mut rivals = Vec::new();
    for _ in 0..2 {
        let store = h.open().await;
        rivals.push(tokio::spawn(async move {
            let mut done = 0;
            loop {
                let one = store.with_tx(async |tx| -> Result<bool> {
                    let events = tx.read_from_consumer_tx("stream", "consumer", 1).await?;
                    let Some(event) = events.first() else {
                        return Ok(false);
                    };
                    H::insert_row(tx.connection(), &event.offset.to_string()).await?;
                    tx.save_offset_tx("stream", "consumer", event.offset)
                        .await?;
                    Ok(true)
                });
                match one.await {
                    Ok(true) => done += 1,
                    Ok(false) => return done,
                    // The rival was first: read again.
                    Err(_) => {}
                }
            }
        }));
    }
    let mut done = 0;
    for rival in rivals {
        done += within(h, rival).await.unwrap();
    }
    assert_eq!(done, EVENTS);
    assert_eq!(count_rows::<H>(&store).await, EVENTS);
    assert_eq!(stream.get_offset("consumer").await.unwrap(), EVENTS);
}

/// Instances of one consumer that read from its offset in a transaction have each effect once:
/// one has the events, and the others wait.
pub(super) async fn instances_that_read_in_a_transaction_have_each_effect_once<H: Harness>(h: &H) {
    const EVENTS: i64 = 20;
    let (store, stream) = filled(h, EVENTS).await;
    let mut instances = Vec::new();
    for instance in 0..3 {
        let store = h.open().await;
        instances.push(tokio::spawn(async move {
            loop {
                let page = store.with_tx(async |tx| -> Result<usize> {
                    let events = tx.read_from_consumer_tx("stream", "consumer", 3).await?;
                    for event in &events {
                        effect::<H>(tx.connection(), instance, event.offset).await?;
                        tokio::task::yield_now().await;
                        tx.save_offset_tx("stream", "consumer", event.offset)
                            .await?;
                    }
                    Ok(events.len())
                });
                match page.await {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(error) => assert!(error.is_transient(), "{error:?}"),
                }
            }
        }));
    }
    for instance in instances {
        within(h, instance).await.unwrap();
    }
    assert_eq!(count_rows::<H>(&store).await, EVENTS);
    assert_eq!(stream.get_offset("consumer").await.unwrap(), EVENTS);
}

/// Instances of one consumer that follow the stream have each effect once: each of them gets
/// every event, and keeps the effect where the save in its transaction has moved the offset.
pub(super) async fn instances_that_subscribe_have_each_effect_once<H: Harness>(h: &H) {
    const EVENTS: i64 = 8;
    let (store, stream) = filled(h, EVENTS).await;
    let mut instances = Vec::new();
    for instance in 0..3 {
        let (store, stream) = (h.open().await, stream.clone());
        // All of them before any saves: one that came after the last save would wait.
        let events = stream.subscribe("consumer").await.unwrap();
        instances.push((instance, store, events));
    }
    let run = |(instance, store, mut events): (i64, Store<H::Engine>, EventReceiver<_>)| {
        tokio::spawn(async move {
            let mut kept = 0;
            while events.offset() < EVENTS {
                let offset = events.recv().await.unwrap().unwrap().offset;
                let mut tx = store.begin_tx().await.unwrap();
                // Saved first or last, on one of the instances.
                let early = instance % 2 == 0
                    && !tx
                        .save_offset_tx("stream", "consumer", offset)
                        .await
                        .unwrap();
                effect::<H>(tx.connection(), instance, offset)
                    .await
                    .unwrap();
                let late = instance % 2 == 1
                    && !tx
                        .save_offset_tx("stream", "consumer", offset)
                        .await
                        .unwrap();
                if early || late {
                    tx.rollback().await.unwrap();
                } else {
                    tx.commit().await.unwrap();
                    kept += 1;
                }
            }
            kept
        })
    };
    let running: Vec<_> = instances.into_iter().map(run).collect();
    let mut kept = 0;
    for instance in running {
        kept += within(h, instance).await.unwrap();
    }
    assert_eq!((kept, count_rows::<H>(&store).await), (EVENTS, EVENTS));
    assert_eq!(stream.get_offset("consumer").await.unwrap(), EVENTS);
}

/// A transaction that has read a consumer's offset holds the consumer until it ends: another
/// that reads or saves the offset waits, and sees what the first one saved.
pub(super) async fn a_consumer_read_in_a_transaction_is_held_until_its_end<H: Harness>(h: &H) {
    let (store, stream) = filled(h, 5).await;
    stream.save_offset("known", 1).await.unwrap();
    for (consumer, reads_events) in [("known", true), ("new", false), ("another", true)] {
        let other = h.open().await;
        for expected in [3, 4] {
            let mut tx = store.begin_tx().await.unwrap();
            if reads_events {
                tx.read_from_consumer_tx("stream", consumer, 1)
                    .await
                    .unwrap();
            } else {
                tx.get_offset_tx("stream", consumer).await.unwrap();
            }
            let other = other.clone();
            let mut waiting = tokio::spawn(async move {
                let mut tx = other.begin_tx().await?;
                let seen = match expected {
                    3 => tx.get_offset_tx("stream", consumer).await?,
                    _ => {
                        let events = tx.read_from_consumer_tx("stream", consumer, 1).await?;
                        events[0].offset - 1
                    }
                };
                let moved = tx.save_offset_tx("stream", consumer, seen).await?;
                tx.rollback().await?;
                Ok::<_, Error>((seen, moved))
            });
            never(h, &mut waiting).await;
            let moved = tx.save_offset_tx("stream", consumer, expected).await;
            assert!(moved.unwrap(), "{consumer}");
            tx.commit().await.unwrap();
            let seen = within(h, waiting).await.unwrap().unwrap();
            assert_eq!(seen, (expected, false), "{consumer}");
        }
    }
}

/// One effect of an event: a row of its own, whoever had it before.
async fn effect<H: Harness>(connection: &mut Conn<H>, instance: i64, offset: i64) -> Result<()> {
    H::insert_row(connection, &format!("{offset} by {instance}")).await
}

/// A store and its stream with so many events.
async fn filled<H: Harness>(h: &H, events: i64) -> (Store<H::Engine>, Stream<H::Engine>) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let batch: Vec<_> = (1..=events).map(|n| (None, n)).collect();
    stream.publish_batch(&batch).await.unwrap();
    (store, stream)
}

/// A job's business writes and its end commit together.
pub(super) async fn an_ack_commits_with_the_effects<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    let id = queue.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let job = queue.claim_one("worker").await.unwrap().unwrap();
    let mut tx = store.begin_tx().await.unwrap();
    H::insert_row(tx.connection(), "effect").await.unwrap();
    assert!(tx.ack_tx(&job).await.unwrap());
    assert_eq!(tx.get_job_tx("queue", id).await.unwrap(), None);
    assert!(
        find_job(&other, "queue", id).await.is_some(),
        "the ack shows before its commit"
    );
    tx.commit().await.unwrap();
    assert_eq!(find_job(&other, "queue", id).await, None);
    assert_eq!(count_rows::<H>(&other).await, 1);
    assert!(!job.ack().await.unwrap());
}

/// An ack that rolls back leaves the job with the claim that held it.
pub(super) async fn an_ack_that_rolls_back_keeps_the_claim<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    let id = queue.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let job = queue.claim_one("worker").await.unwrap().unwrap();
    let before = find_job(&store, "queue", id).await;
    for drops in [true, false] {
        let mut tx = store.begin_tx().await.unwrap();
        assert!(tx.ack_tx(&job).await.unwrap());
        if drops {
            drop(tx)
        } else {
            tx.rollback().await.unwrap()
        }
        assert_eq!(find_job(&store, "queue", id).await, before);
    }
    assert!(queue.claim_one("another").await.unwrap().is_none());
    assert!(job.ack().await.unwrap());
}

/// A claim holds until its deadline and cannot be acked after it; the job is as it was.
pub(super) async fn an_ack_of_a_lapsed_claim_is_refused<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut opts = QueueOpts::default();
    opts.visibility_timeout_s = 1000;
    let queue = store.queue("queue", opts).unwrap();
    let id = queue.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let job = queue.claim_one("worker").await.unwrap().unwrap();
    let before = find_job(&store, "queue", id).await;
    h.advance(900);
    let mut tx = store.begin_tx().await.unwrap();
    assert!(tx.ack_tx(&job).await.unwrap(), "the claim still holds");
    tx.rollback().await.unwrap();
    h.advance(101);
    let mut tx = store.begin_tx().await.unwrap();
    assert!(!tx.ack_tx(&job).await.unwrap(), "the claim has lapsed");
    tx.commit().await.unwrap();
    assert_eq!(find_job(&store, "queue", id).await, before);
}

/// A claim that another worker's claim followed cannot be acked, whoever the worker is.
pub(super) async fn an_ack_of_a_job_that_another_holds_is_refused<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    let id = queue.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let first = queue.claim_one("worker").await.unwrap().unwrap();
    h.advance(301);
    let second = queue.claim_one("worker").await.unwrap().unwrap();
    assert_eq!((second.id, second.attempts), (id, 2));
    let mut tx = store.begin_tx().await.unwrap();
    assert!(!tx.ack_tx(&first).await.unwrap());
    assert!(tx.ack_tx(&second).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(find_job(&store, "queue", id).await, None);
}

/// A claim ends once: a second ack in the transaction, or of a cancelled job, is refused.
pub(super) async fn an_ack_lands_once<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    queue
        .enqueue_batch(&[1, 2], EnqueueOpts::default())
        .await
        .unwrap();
    let jobs = queue.claim_batch("worker", 2).await.unwrap();
    assert!(queue.cancel(jobs[1].id).await.unwrap());
    let mut tx = store.begin_tx().await.unwrap();
    assert!(tx.ack_tx(&jobs[0]).await.unwrap());
    assert!(!tx.ack_tx(&jobs[0]).await.unwrap());
    assert!(!tx.ack_tx(&jobs[1]).await.unwrap());
    tx.commit().await.unwrap();
    assert!(
        !store
            .with_tx(async |tx| tx.ack_tx(&jobs[0]).await)
            .await
            .unwrap()
    );
}
