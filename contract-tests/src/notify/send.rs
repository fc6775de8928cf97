//! Sending: in transactions, and what is refused.

use alkstore::{EnqueueOpts, Error};

use crate::Harness;
use crate::support::{error_of, never, read_all, refused, within};

/// A notify in a transaction is heard at the commit and not before, by every process.
pub(super) async fn a_notify_in_a_transaction_is_heard_at_its_commit<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut own = store.listen("channel").await.unwrap();
    let mut others = other.listen("channel").await.unwrap();
    let mut tx = store.begin_tx().await.unwrap();
    for _ in 0..3 {
        tx.notify_tx("channel", &1).await.unwrap();
    }
    never(h, own.recv()).await;
    assert_eq!(others.try_recv().unwrap(), None);
    tx.commit().await.unwrap();
    assert_eq!(within(h, own.recv()).await.unwrap().channel(), "channel");
    assert_eq!(within(h, others.recv()).await.unwrap().channel(), "channel");
}

/// A notify whose transaction rolls back or is dropped is never heard, nor later with the
/// commit of another transaction.
pub(super) async fn a_notify_that_rolls_back_is_never_heard<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut own = store.listen("channel").await.unwrap();
    let mut others = other.listen("channel").await.unwrap();
    for drops in [true, false] {
        let mut tx = store.begin_tx().await.unwrap();
        tx.notify_tx("channel", &1).await.unwrap();
        if drops {
            drop(tx)
        } else {
            tx.rollback().await.unwrap()
        }
    }
    let mut tx = store.begin_tx().await.unwrap();
    tx.notify_tx("another", &1).await.unwrap();
    tx.commit().await.unwrap();
    never(h, own.recv()).await;
    assert_eq!(others.try_recv().unwrap(), None);
}

/// A notify that joins an application's transaction is heard if and when that commits.
pub(super) async fn an_applications_transaction_notifies_at_its_commit<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    for commit in [false, true] {
        let channel = format!("commit {commit}");
        let mut receivers = [
            store.listen(&channel).await.unwrap(),
            other.listen(&channel).await.unwrap(),
        ];
        let (joining, name) = (store.clone(), channel.clone());
        let body = h.with_own_tx(
            commit,
            Box::new(|connection| {
                Box::pin(async move { joining.join_tx(connection).notify_tx(&name, &1).await })
            }),
        );
        body.await.unwrap();
        for wakes in &mut receivers {
            if commit {
                assert_eq!(within(h, wakes.recv()).await.unwrap().channel(), channel);
            } else {
                never(h, wakes.recv()).await;
            }
        }
    }
}

/// A notify that ends in an error wakes nobody.
pub(super) async fn a_notify_that_is_refused_wakes_nobody<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut wakes = store.listen("channel").await.unwrap();
    let unmapped = std::collections::BTreeMap::from([((1, 2), 3)]);
    error_of(store.notify("channel", &unmapped).await);
    error_of(store.notify("", &1).await);
    if let Some(limit) = h.notify_limit() {
        error_of(store.notify("channel", &"x".repeat(limit)).await);
    }
    never(h, wakes.recv()).await;
}

/// Where a notify has a limit, the first encoded size that it refuses is exactly that, in
/// a transaction too; elsewhere a large payload passes.
pub(super) async fn a_payload_is_measured_as_it_is_encoded<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut wakes = store.listen("channel").await.unwrap();
    let Some(limit) = h.notify_limit() else {
        let large = "x".repeat(100_000);
        store.notify("channel", &large).await.unwrap();
        assert!(within(h, wakes.recv()).await.is_some());
        let mut tx = store.begin_tx().await.unwrap();
        tx.notify_tx("channel", &large).await.unwrap();
        tx.commit().await.unwrap();
        assert!(within(h, wakes.recv()).await.is_some());
        return;
    };
    // Two quotes are encoded with each text, and a line break takes two bytes.
    let fits = ["x".repeat(limit - 3), "\n".repeat((limit - 3) / 2)];
    let too_large = [
        "x".repeat(limit - 2),
        "\n".repeat(limit / 2),
        "x".repeat(10 * limit),
    ];
    for payload in &fits {
        assert!(serde_json::to_vec(payload).unwrap().len() < limit);
        store.notify("channel", payload).await.unwrap();
        assert!(within(h, wakes.recv()).await.is_some());
        store
            .with_tx(async |tx| tx.notify_tx("channel", payload).await)
            .await
            .unwrap();
        assert!(within(h, wakes.recv()).await.is_some());
    }
    for payload in &too_large {
        let mut tx = store.begin_tx().await.unwrap();
        let errors = [
            refused(store.notify("channel", payload)),
            refused(tx.notify_tx("channel", payload)),
        ];
        for error in errors {
            assert!(
                matches!(error, Error::PayloadTooLarge { limit: named } if named == limit),
                "{error:?}",
            );
        }
    }
}

/// A payload that a notify refuses never reaches the database: the transaction goes on.
pub(super) async fn a_payload_that_is_too_large_leaves_the_transaction_usable<H: Harness>(h: &H) {
    let store = h.open().await;
    let large = "x".repeat(h.notify_limit().unwrap_or(100_000));
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("stream", &1).await.unwrap();
    let refused = tx.notify_tx("channel", &large).await.is_err();
    assert_eq!(refused, h.notify_limit().is_some());
    // The limit is of notify alone.
    assert_eq!(tx.publish_tx("stream", &large).await.unwrap(), 2);
    tx.enqueue_tx("queue", EnqueueOpts::default(), &large)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let events = read_all(&store, "stream").await;
    assert_eq!(events[1].payload_as::<String>().unwrap(), large);
}
