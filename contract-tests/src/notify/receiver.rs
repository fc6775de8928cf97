//! What a receiver says, and when it ends.

use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use alkstore::{Error, QueueOpts, WakeReceiver};
use futures::StreamExt;

use crate::Harness;
use crate::support::{Dropped, error_of, eventually, never, says_closed, within};

/// A wake that nobody waits for at that moment is there for the next `recv`.
pub(super) async fn a_wake_waits_for_its_receiver<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut wakes = store.listen("channel").await.unwrap();
    let mut proof = store.listen("channel").await.unwrap();
    store.notify("channel", &1).await.unwrap();
    within(h, proof.recv()).await.unwrap();
    tokio::time::sleep(h.quiet()).await;
    assert!(within(h, wakes.recv()).await.is_some());
}

/// A `recv` that is dropped while it waits takes no wake with it.
pub(super) async fn a_dropped_wait_takes_no_wake_with_it<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut wakes = store.listen("channel").await.unwrap();
    for _ in 0..10 {
        assert_eq!(wakes.recv_timeout(Duration::ZERO).await.unwrap(), None);
        let mut wait = pin!(wakes.recv());
        assert!(futures::poll!(wait.as_mut()).is_pending());
    }
    store.notify("channel", &1).await.unwrap();
    assert!(within(h, wakes.recv()).await.is_some());
}

/// `try_recv`: nothing while idle, the wake once, `Closed` for good.
pub(super) async fn try_recv_says_idle_woken_and_closed<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut wakes = store.listen("channel").await.unwrap();
    assert_eq!(wakes.try_recv().unwrap(), None);
    store.notify("channel", &1).await.unwrap();
    let wake = eventually(h, || ready(wakes.try_recv().unwrap())).await;
    assert_eq!(wake.channel(), "channel");
    store.close().await;
    for _ in 0..2 {
        assert!(matches!(wakes.try_recv(), Err(Error::Closed)));
    }
}

/// `recv_timeout`: nothing after the time, the wake at once, `Closed` for good.
pub(super) async fn recv_timeout_says_idle_woken_and_closed<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut wakes = store.listen("channel").await.unwrap();
    let waited = tokio::time::Instant::now();
    assert_eq!(
        wakes.recv_timeout(Duration::from_millis(20)).await.unwrap(),
        None
    );
    assert!(waited.elapsed() >= Duration::from_millis(20));
    store.notify("channel", &1).await.unwrap();
    let wake = within(h, wakes.recv_timeout(Duration::MAX)).await.unwrap();
    assert_eq!(wake.unwrap().channel(), "channel");
    let closing = store.clone();
    let wait = tokio::spawn(async move { wakes.recv_timeout(Duration::from_secs(3600)).await });
    tokio::task::yield_now().await;
    closing.close().await;
    assert!(matches!(within(h, wait).await.unwrap(), Err(Error::Closed)));
}

/// `recv`: the wake, and `None` for good once the store is closed, also for who waits then.
pub(super) async fn recv_says_woken_and_closed<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut wakes = store.listen("channel").await.unwrap();
    let mut waiting = store.listen("channel").await.unwrap();
    store.notify("channel", &1).await.unwrap();
    assert!(within(h, wakes.recv()).await.is_some());
    let wait = tokio::spawn(async move { while waiting.recv().await.is_some() {} });
    tokio::task::yield_now().await;
    store.close().await;
    within(h, wait).await.unwrap();
    for _ in 0..2 {
        assert_eq!(within(h, wakes.recv()).await, None);
    }
}

/// As a `futures::Stream` a receiver yields its wakes and ends when it is closed.
pub(super) async fn a_receiver_is_a_stream_of_wakes<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut wakes = store.listen("channel").await.unwrap();
    store.notify("channel", &1).await.unwrap();
    assert_eq!(within(h, wakes.next()).await.unwrap().channel(), "channel");
    store.close().await;
    assert_eq!(within(h, wakes.next()).await, None);
}

/// All receivers of a channel are woken, those of one store and those of others.
pub(super) async fn every_receiver_of_a_channel_is_woken<H: Harness>(h: &H) {
    let stores = [h.open().await, h.open().await];
    let mut receivers = Vec::new();
    for number in 0..40 {
        receivers.push(stores[number % 2].listen("channel").await.unwrap());
    }
    stores[0].notify("channel", &1).await.unwrap();
    for wakes in &mut receivers {
        assert!(within(h, wakes.recv()).await.is_some());
    }
}

/// Dropping a receiver harms no other, and one that listens later hears again.
pub(super) async fn a_dropped_receiver_is_forgotten<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut kept = store.listen("channel").await.unwrap();
    drop(store.listen("channel").await.unwrap());
    store.notify("channel", &1).await.unwrap();
    assert!(within(h, kept.recv()).await.is_some());
    drop(kept);
    store.notify("channel", &1).await.unwrap();
    let mut again = store.listen("channel").await.unwrap();
    never(h, again.recv()).await;
    store.notify("channel", &1).await.unwrap();
    assert!(within(h, again.recv()).await.is_some());
}

/// Closing a store closes the receivers of all its clones, and no other store's.
pub(super) async fn a_closed_store_closes_its_receivers_only<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let clone = store.clone();
    let mut others = other.listen("channel").await.unwrap();
    let queue = clone.queue("queue", QueueOpts::default()).unwrap();
    let mut closing: Vec<WakeReceiver> = vec![
        store.listen("channel").await.unwrap(),
        clone.listen("channel").await.unwrap(),
        clone.stream("stream").unwrap().listen().await.unwrap(),
        queue.listen().await.unwrap(),
    ];
    clone.close().await;
    for wakes in &mut closing {
        assert_eq!(within(h, wakes.recv()).await, None);
    }
    assert!(says_closed(&error_of(store.listen("channel").await)));
    assert!(says_closed(&error_of(store.notify("channel", &1).await)));
    other.notify("channel", &1).await.unwrap();
    assert!(within(h, others.recv()).await.is_some());
}

/// A receiver hears in whichever task it is.
pub(super) async fn a_receiver_moves_between_tasks<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut wakes = store.listen("channel").await.unwrap();
    never(h, wakes.recv()).await;
    let listener = tokio::spawn(async move {
        wakes.recv().await.unwrap();
        wakes
    });
    store.notify("channel", &1).await.unwrap();
    let mut wakes = within(h, listener).await.unwrap();
    store.notify("channel", &1).await.unwrap();
    assert!(within(h, wakes.recv()).await.is_some());
}

/// A `listen` that is dropped half-way leaves nothing that a later one would miss.
pub(super) async fn a_dropped_listen_harms_no_other<H: Harness>(h: &H) {
    let store = h.open().await;
    for when in Dropped::points() {
        let channel = format!("{when:?}");
        drop(when.run(store.listen(&channel)).await);
        let mut wakes = within(h, store.listen(&channel)).await.unwrap();
        store.notify(&channel, &1).await.unwrap();
        assert!(within(h, wakes.recv()).await.is_some(), "{when:?}");
    }
}

/// Where the source of wakes can be lost for good, its loss closes every receiver; elsewhere
/// they live on and hear.
pub(super) async fn a_lost_database_closes_its_receivers<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut wakes = store.listen("channel").await.unwrap();
    let mut waiting = store.stream("stream").unwrap().listen().await.unwrap();
    let wait = tokio::spawn(async move { while waiting.recv().await.is_some() {} });
    if h.remove_source().await {
        within(h, wait).await.unwrap();
        assert_eq!(within(h, wakes.recv()).await, None);
        assert!(matches!(wakes.try_recv(), Err(Error::Closed)));
    } else {
        store.notify("channel", &1).await.unwrap();
        assert!(within(h, wakes.recv()).await.is_some());
        wait.abort();
    }
}
