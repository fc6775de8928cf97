//! The store: what is shared by clones and by processes, and what closing means.

mod close;
mod restart;

use std::time::Duration;

use alkstore::{
    EnqueueOpts, EventReceiver, JobHandle, JobState, Lock, QueueOpts, ScheduleOpts, Tx,
    WakeReceiver,
};

use crate::Harness;
use crate::support::{error_of, find_job, numbers, read_all, within};

use close::*;
use restart::*;

alkstore_macros::cases! {
    store:
    a_store_and_its_handles_are_shared_between_threads,
    clones_are_one_store,
    stores_on_one_database_see_the_same,
    many_processes_open_a_database_at_once,
    opening_again_changes_nothing,
    everything_survives_close_and_reopen,
    everything_survives_a_drop,
    ids_and_tokens_are_not_used_again_after_a_restart,
    close_is_idempotent,
    a_closed_store_refuses_every_operation,
    what_is_wrong_with_a_call_is_told_before_what_is_closed,
    a_transaction_of_a_closed_store_tells_first_what_is_wrong_with_a_call,
    a_closed_store_refuses_what_its_handles_do,
    names_are_judged_alike_after_close,
    closing_a_store_leaves_others_alone,
    a_transaction_that_is_open_at_close_is_whole,
    what_waits_at_close_finishes_or_fails,
    handles_keep_a_dropped_store_alive,
    one_clock_serves_all_processes,
    messages_show_no_control_characters,
}

fn shared<T: Send + Sync + 'static>(_: &T) {}

fn sent<T: Send + 'static>(_: &T) {}

/// Stores and handles are `Send + Sync`, receivers and transactions `Send`, and the futures
/// of their methods run in tasks of their own.
async fn a_store_and_its_handles_are_shared_between_threads<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    let outbox = store.outbox("outbox").unwrap();
    shared(&store);
    shared(&stream);
    shared(&queue);
    shared(&outbox);
    sent::<Tx<H::Engine>>(&store.begin_tx().await.unwrap());
    sent::<WakeReceiver>(&store.listen("channel").await.unwrap());
    sent::<EventReceiver<H::Engine>>(&stream.subscribe("consumer").await.unwrap());
    queue.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    shared::<JobHandle<H::Engine>>(&queue.claim_one("worker").await.unwrap().unwrap());
    shared::<Lock<H::Engine>>(&store.try_lock("lock", "owner", 60).await.unwrap().unwrap());

    let mut tasks = Vec::new();
    for task in 0..8 {
        let (stream, queue) = (stream.clone(), queue.clone());
        tasks.push(tokio::spawn(async move {
            stream.publish(&task).await?;
            queue.enqueue(&task, EnqueueOpts::default()).await
        }));
    }
    for task in tasks {
        within(h, task).await.unwrap().unwrap();
    }
    let mut published = numbers(&read_all(&store, "stream").await);
    published.sort_unstable();
    assert_eq!(published, (0..8).collect::<Vec<_>>());
    assert_eq!(queue.claim_batch("worker", 100).await.unwrap().len(), 8);
}

/// What one clone does, another sees, and dropping a clone ends nothing.
async fn clones_are_one_store<H: Harness>(h: &H) {
    let store = h.open().await;
    let clone = store.clone();
    let mut wakes = clone.listen("channel").await.unwrap();
    store
        .clone()
        .stream("stream")
        .unwrap()
        .publish(&1)
        .await
        .unwrap();
    drop(store);
    assert_eq!(numbers(&read_all(&clone, "stream").await), [1]);
    clone.notify("channel", &1).await.unwrap();
    assert!(within(h, wakes.recv()).await.is_some());
}

/// Stores that were opened separately share all there is.
async fn stores_on_one_database_see_the_same<H: Harness>(h: &H) {
    let (one, other) = (h.open().await, h.open().await);
    assert_eq!(one.stream("stream").unwrap().publish(&1).await.unwrap(), 1);
    assert_eq!(
        other.stream("stream").unwrap().publish(&2).await.unwrap(),
        2
    );
    assert_eq!(numbers(&read_all(&one, "stream").await), [1, 2]);
    let queue = one.queue("queue", QueueOpts::default()).unwrap();
    let id = queue.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let job = other
        .queue("queue", QueueOpts::default())
        .unwrap()
        .claim_one("w")
        .await
        .unwrap();
    assert_eq!(job.unwrap().id, id);
    assert_eq!(
        find_job(&one, "queue", id).await.unwrap().state,
        JobState::Processing
    );
    let lock = one.try_lock("lock", "one", 60).await.unwrap().unwrap();
    assert!(other.try_lock("lock", "other", 60).await.unwrap().is_none());
    assert!(lock.release().await.unwrap());
    one.schedule(
        "schedule",
        "@every 1h",
        "queue",
        &1,
        ScheduleOpts::default(),
    )
    .await
    .unwrap();
    assert!(other.unschedule("schedule").await.unwrap());
    assert!(!one.unschedule("schedule").await.unwrap());
}

/// A fresh database may be opened by many processes at once, and each can work at once.
async fn many_processes_open_a_database_at_once<H: Harness>(h: &H) {
    let opening = futures::future::join_all((0..6_i64).map(|process| async move {
        let store = h.open().await;
        store
            .stream("stream")
            .unwrap()
            .publish(&process)
            .await
            .unwrap();
        store
    }));
    let stores = within(h, opening).await;
    for store in &stores {
        let mut processes = numbers(&read_all(store, "stream").await);
        processes.sort_unstable();
        assert_eq!(processes, [0, 1, 2, 3, 4, 5]);
    }
}

/// Opening a database that is up to date and in use changes nothing in it.
async fn opening_again_changes_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.publish(&1).await.unwrap();
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &2).await.unwrap();
    // With a transaction open, as a process that starts beside a busy one finds it.
    let other = within(h, h.open()).await;
    assert_eq!(numbers(&read_all(&other, "stream").await), [1]);
    tx.commit().await.unwrap();
    assert_eq!(numbers(&read_all(&other, "stream").await), [1, 2]);
}

/// All stores on a database tell the same time, and one write stamps one instant.
async fn one_clock_serves_all_processes<H: Harness>(h: &H) {
    let (one, other) = (h.open().await, h.open().await);
    let mut seen = Vec::new();
    for (round, store) in [&one, &other, &one].into_iter().enumerate() {
        let offset = store.stream("stream").unwrap().publish(&1).await.unwrap();
        assert_eq!(offset - 1, i64::try_from(round).unwrap());
        let mut opts = EnqueueOpts::default().delay(Duration::from_secs(10));
        opts.expires = Some(100);
        let queue = store.queue("queue", QueueOpts::default()).unwrap();
        let id = queue.enqueue(&1, opts).await.unwrap();
        let job = find_job(store, "queue", id).await.unwrap();
        assert_eq!(job.run_at, job.created_at + 10);
        assert_eq!(job.expires_at, Some(job.created_at + 100));
        let event = &read_all(store, "stream").await[round];
        assert!((0..60).contains(&(job.created_at - event.created_at)));
        seen.push(job.created_at);
        h.advance(1000);
    }
    for pair in seen.windows(2) {
        assert!((1000..1060).contains(&(pair[1] - pair[0])), "{seen:?}");
    }
}

/// A message shows the caller's text with its control characters escaped, on one line.
async fn messages_show_no_control_characters<H: Harness>(h: &H) {
    let store = h.open().await;
    let text = "__alkstore_\u{1b}[31m\r\n\u{7}";
    let every = |spec| store.schedule("name", spec, "queue", &1, ScheduleOpts::default());
    let errors = [
        error_of(store.stream(text)),
        error_of(store.stream("a\0\n\u{1b}")),
        error_of(every("@every \u{1b}\n").await),
    ];
    for error in errors {
        let message = error.to_string();
        assert!(!message.contains(char::is_control), "{message:?}");
    }
}
