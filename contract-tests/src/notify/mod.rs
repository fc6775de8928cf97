//! Wakes: who hears what, and when.

mod receiver;
mod send;

use alkstore::{Engine, EnqueueOpts, QueueOpts, Result, Store};

use crate::Harness;
use crate::support::{never, numbers, read_all, within};

use receiver::*;
use send::*;

alkstore_macros::cases! {
    notify:
    a_listener_hears_what_is_notified_after_it_listens,
    a_listener_hears_every_process,
    a_listener_hears_nothing_earlier,
    a_listener_hears_its_own_channel_only,
    channels_streams_queues_and_outboxes_of_one_name_are_apart,
    an_enqueue_wakes_who_waits_on_the_queue,
    a_publish_wakes_who_waits_on_the_stream,
    what_writes_nothing_to_wait_for_wakes_nobody,
    wakes_merge_but_the_last_is_heard,
    a_wake_waits_for_its_receiver,
    a_dropped_wait_takes_no_wake_with_it,
    try_recv_says_idle_woken_and_closed,
    recv_timeout_says_idle_woken_and_closed,
    recv_says_woken_and_closed,
    a_receiver_is_a_stream_of_wakes,
    every_receiver_of_a_channel_is_woken,
    a_dropped_receiver_is_forgotten,
    a_notify_in_a_transaction_is_heard_at_its_commit,
    a_notify_that_rolls_back_is_never_heard,
    an_applications_transaction_notifies_at_its_commit,
    a_notify_that_is_refused_wakes_nobody,
    a_closed_store_closes_its_receivers_only,
    a_receiver_moves_between_tasks,
    a_lost_database_closes_its_receivers,
    a_dropped_listen_harms_no_other,
    a_payload_is_measured_as_it_is_encoded,
    a_payload_that_is_too_large_leaves_the_transaction_usable,
}

/// A listener hears a notify of its channel, and the wake names the channel.
async fn a_listener_hears_what_is_notified_after_it_listens<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut wakes = store.listen("channel").await.unwrap();
    store.notify("channel", &1).await.unwrap();
    let wake = within(h, wakes.recv()).await.unwrap();
    assert_eq!(wake.channel(), "channel");
    assert!(!wake.is_reconnect());
}

/// A notify is heard in its own process and in every other.
async fn a_listener_hears_every_process<H: Harness>(h: &H) {
    let stores = [h.open().await, h.open().await, h.open().await];
    for (round, notifier) in stores.iter().enumerate() {
        let channel = format!("channel {round}");
        let mut receivers = Vec::new();
        for listener in &stores {
            receivers.push(listener.listen(&channel).await.unwrap());
        }
        notifier.notify(&channel, &1).await.unwrap();
        for wakes in &mut receivers {
            assert_eq!(within(h, wakes.recv()).await.unwrap().channel(), channel);
        }
    }
}

/// What was notified before `listen` is not heard, not even right before it.
async fn a_listener_hears_nothing_earlier<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    store.notify("channel", &1).await.unwrap();
    let mut own = store.listen("channel").await.unwrap();
    let mut others = other.listen("channel").await.unwrap();
    never(h, own.recv()).await;
    assert_eq!(others.try_recv().unwrap(), None);
}

/// Whatever else happens in the database, a channel without a notify stays silent.
async fn a_listener_hears_its_own_channel_only<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut own = store.listen("silent").await.unwrap();
    let mut others = other.listen("silent").await.unwrap();
    for name in ["silen", "silent ", "Silent", "silentt"] {
        touch_everything(&store, name).await;
    }
    never(h, own.recv()).await;
    assert_eq!(others.try_recv().unwrap(), None);
}

/// Notifies, publishes and enqueues under one name.
async fn touch_everything<E: Engine>(store: &Store<E>, name: &str) {
    store.notify(name, &1).await.unwrap();
    store.stream(name).unwrap().publish(&1).await.unwrap();
    let queue = store.queue(name, QueueOpts::default()).unwrap();
    queue.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    store
        .outbox(name)
        .unwrap()
        .enqueue(&1, EnqueueOpts::default())
        .await
        .unwrap();
}

/// A channel, a stream, a queue and an outbox of one name do not wake each other.
async fn channels_streams_queues_and_outboxes_of_one_name_are_apart<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    for touched in 0..4 {
        let name = format!("name {touched}");
        let queue = store.queue(&name, QueueOpts::default()).unwrap();
        let outbox = store.outbox(&name).unwrap();
        let mut receivers = Vec::new();
        for listener in [&store, &other] {
            let waited_for = listener.queue(&name, QueueOpts::default()).unwrap();
            receivers.push([
                listener.listen(&name).await.unwrap(),
                listener.stream(&name).unwrap().listen().await.unwrap(),
                waited_for.listen().await.unwrap(),
                listener.outbox(&name).unwrap().listen().await.unwrap(),
            ]);
        }
        match touched {
            0 => store.notify(&name, &1).await.unwrap(),
            1 => drop(store.stream(&name).unwrap().publish(&1).await.unwrap()),
            2 => drop(queue.enqueue(&1, EnqueueOpts::default()).await.unwrap()),
            _ => drop(outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap()),
        }
        for of_one_store in &mut receivers {
            assert!(within(h, of_one_store[touched].recv()).await.is_some());
        }
        tokio::time::sleep(h.quiet()).await;
        for of_one_store in &mut receivers {
            for (kind, wakes) in of_one_store.iter_mut().enumerate() {
                let woken = wakes.try_recv().unwrap().is_some();
                assert!(!woken || kind == touched, "{touched} woke {kind}");
            }
        }
    }
}

/// Every way to enqueue wakes who waits on the queue or outbox, with no notify call.
async fn an_enqueue_wakes_who_waits_on_the_queue<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let opts = EnqueueOpts::default;
    for way in 0..5 {
        let name = format!("name {way}");
        let queue = store.queue(&name, QueueOpts::default()).unwrap();
        let outbox = other.outbox(&name).unwrap();
        let mut wakes = match way {
            0..3 => [
                queue.listen().await.unwrap(),
                other
                    .queue(&name, QueueOpts::default())
                    .unwrap()
                    .listen()
                    .await
                    .unwrap(),
            ],
            _ => [
                store.outbox(&name).unwrap().listen().await.unwrap(),
                outbox.listen().await.unwrap(),
            ],
        };
        match way {
            0 => drop(queue.enqueue(&1, opts()).await.unwrap()),
            1 => drop(queue.enqueue_batch(&[1, 2], opts()).await.unwrap()),
            2 => drop(
                store
                    .with_tx(async |tx| tx.enqueue_tx(&name, opts(), &1).await)
                    .await,
            ),
            3 => drop(outbox.enqueue(&1, opts()).await.unwrap()),
            _ => {
                let enqueue =
                    async |tx: &mut alkstore::Tx<_>| tx.outbox_enqueue_tx(&name, opts(), &1).await;
                store.with_tx(enqueue).await.unwrap();
            }
        }
        assert_eq!(
            within(h, wakes[0].recv()).await,
            within(h, wakes[1].recv()).await
        );
    }
}

/// Every way to publish wakes who waits on the stream, with no notify call.
async fn a_publish_wakes_who_waits_on_the_stream<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    for way in 0..5 {
        let name = format!("name {way}");
        let stream = store.stream(&name).unwrap();
        let mut own = stream.listen().await.unwrap();
        let mut others = other.stream(&name).unwrap().listen().await.unwrap();
        match way {
            0 => drop(stream.publish(&1).await.unwrap()),
            1 => drop(stream.publish_with_key(Some("key"), &1).await.unwrap()),
            2 => drop(stream.publish_batch(&[(None, 1), (None, 2)]).await.unwrap()),
            3 => drop(
                store
                    .with_tx(async |tx| tx.publish_tx(&name, &1).await)
                    .await
                    .unwrap(),
            ),
            _ => {
                let publish = async |tx: &mut alkstore::Tx<_>| {
                    tx.publish_with_key_tx(&name, Some("key"), &1).await
                };
                store.with_tx(publish).await.unwrap();
            }
        }
        assert_eq!(within(h, own.recv()).await.unwrap().channel(), name);
        assert_eq!(within(h, others.recv()).await.unwrap().channel(), name);
    }
}

/// Reads, saves, trims, empty batches and lookups wake nobody.
async fn what_writes_nothing_to_wait_for_wakes_nobody<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let stream = store.stream("name").unwrap();
    let queue = store.queue("name", QueueOpts::default()).unwrap();
    stream.publish_batch(&[(None, 1), (None, 2)]).await.unwrap();
    let mut receivers = [
        stream.listen().await.unwrap(),
        queue.listen().await.unwrap(),
        store.listen("name").await.unwrap(),
        other.stream("name").unwrap().listen().await.unwrap(),
        other
            .queue("name", QueueOpts::default())
            .unwrap()
            .listen()
            .await
            .unwrap(),
        other.listen("name").await.unwrap(),
    ];
    stream.read_since(0, 10).await.unwrap();
    stream.save_offset("consumer", 1).await.unwrap();
    assert_eq!(stream.trim_to(1).await.unwrap(), 1);
    assert!(stream.publish_batch::<i32>(&[]).await.unwrap().is_empty());
    let none = queue
        .enqueue_batch::<i32>(&[], EnqueueOpts::default())
        .await;
    assert!(none.unwrap().is_empty());
    assert!(queue.claim_one("worker").await.unwrap().is_none());
    queue.sweep_expired().await.unwrap();
    store.begin_tx().await.unwrap().commit().await.unwrap();
    tokio::time::sleep(h.quiet()).await;
    for (number, wakes) in receivers.iter_mut().enumerate() {
        assert_eq!(
            wakes.try_recv().unwrap(),
            None,
            "receiver {number} was woken"
        );
    }
}

/// Many notifies make one wake at least, and one after the last: who reads again at each
/// wake has read everything in the end.
async fn wakes_merge_but_the_last_is_heard<H: Harness>(h: &H) {
    const EVENTS: i64 = 60;
    let (store, other) = (h.open().await, h.open().await);
    let mut wakes = store.listen("channel").await.unwrap();
    let publisher = tokio::spawn(async move {
        for payload in 1..=EVENTS {
            let both = async |tx: &mut alkstore::Tx<H::Engine>| -> Result<()> {
                tx.publish_tx("stream", &payload).await?;
                tx.notify_tx("channel", &payload).await
            };
            other.with_tx(both).await.unwrap();
        }
    });
    loop {
        within(h, wakes.recv()).await.unwrap();
        if read_all(&store, "stream").await.len() == usize::try_from(EVENTS).unwrap() {
            break;
        }
    }
    publisher.await.unwrap();
    assert_eq!(
        numbers(&read_all(&store, "stream").await),
        (1..=EVENTS).collect::<Vec<_>>()
    );
}
