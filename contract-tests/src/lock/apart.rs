use alkstore::{EnqueueOpts, QueueOpts};

use super::*;
use crate::Harness;

/// A lock is neither taken nor released by what becomes of a transaction around it.
pub(super) async fn a_lock_is_not_part_of_a_transaction<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    for commit in [false, true] {
        let lock = held(&store, "a", 60).await;
        let mut tx = store.begin_tx().await.unwrap();
        tx.enqueue_tx("work", EnqueueOpts::default(), &1)
            .await
            .unwrap();
        match commit {
            true => tx.commit().await.unwrap(),
            false => tx.rollback().await.unwrap(),
        }
        assert!(refused(&other, "b").await);
        assert!(lock.renew(60).await.unwrap());
        let mut tx = store.begin_tx().await.unwrap();
        tx.enqueue_tx("work", EnqueueOpts::default(), &1)
            .await
            .unwrap();
        drop(tx);
        assert!(refused(&other, "b").await);
        assert!(lock.release().await.unwrap());
    }
    let queue = store.queue("work", QueueOpts::default()).unwrap();
    assert_eq!(
        queue.claim_batch("w", 10).await.unwrap().len(),
        1,
        "one was committed"
    );
}

/// Closing a store releases nothing; its owner finds its lock again from another one.
pub(super) async fn a_lock_outlives_its_store<H: Harness>(h: &H) {
    let store = h.open().await;
    let token = held(&store, "a", 60).await.token();
    store.close().await;
    let store = h.open().await;
    assert!(refused(&store, "b").await);
    let lock = held(&store, "a", 60).await;
    assert_eq!(lock.token(), token);
    assert!(lock.release().await.unwrap());
}

/// Only the very name is locked, whatever names have in common.
pub(super) async fn locks_of_different_names_are_apart<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut locks = Vec::new();
    for name in ["door", "Door", "door ", " door", "doo_", "door%", "dóor"] {
        let lock = store.try_lock(name, "a", 60).await.unwrap();
        locks.push(lock.unwrap_or_else(|| panic!("{name:?} is free")));
    }
    for lock in locks {
        assert!(
            store
                .try_lock(lock.name(), "b", 60)
                .await
                .unwrap()
                .is_none()
        );
        assert!(lock.release().await.unwrap());
    }
}
