use alkstore::Error;

use super::*;
use crate::Harness;
use crate::support::{Clock, attempts, error_of};

/// Whoever asks while another owner holds the lock gets `None`; after a release, the lock.
pub(super) async fn a_lock_has_one_owner_until_it_is_released<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let lock = held(&store, "a", 60).await;
    assert_eq!(lock.name(), "door");
    assert!(refused(&store, "b").await);
    assert!(refused(&other, "b").await);
    assert!(lock.release().await.unwrap());
    let lock = held(&other, "b", 60).await;
    assert!(refused(&store, "a").await);
    assert!(lock.release().await.unwrap());
}

/// A lock is held while now is at most its deadline, and free one second later.
pub(super) async fn a_lock_holds_through_its_deadline_and_lapses_after_it<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let clock = Clock::new(h, &store);
    for () in attempts() {
        let now = clock.now().await;
        let lock = held(&store, "a", 60).await;
        if !clock.shows(now).await {
            assert!(lock.release().await.unwrap());
            continue;
        }
        clock.go_to(now + 60).await;
        let taken = other.try_lock("door", "b", 60).await.unwrap();
        let renewed = lock.renew(60).await.unwrap();
        if !clock.shows(now + 60).await {
            h.advance(1000);
            continue;
        }
        assert!(taken.is_none(), "the lock is held");
        assert!(renewed, "the lock is held");
        clock.go_to(now + 121).await;
        let renewed = lock.renew(60).await.unwrap();
        let taken = other.try_lock("door", "b", 60).await.unwrap();
        if !clock.shows(now + 121).await {
            h.advance(1000);
            continue;
        }
        assert!(!renewed, "the lock has lapsed");
        assert!(taken.is_some(), "the lock is free");
        return;
    }
}

/// A renewal sets the deadline to now plus the ttl, be that later or sooner.
pub(super) async fn renew_counts_from_now<H: Harness>(h: &H) {
    let store = h.open().await;
    let lock = held(&store, "a", 1000).await;
    h.advance(900);
    assert!(lock.renew(1000).await.unwrap());
    h.advance(900);
    assert!(refused(&store, "b").await);
    assert!(lock.renew(10).await.unwrap());
    assert!(refused(&store, "b").await);
    // Anything that was added to what was left would still hold.
    h.advance(12);
    assert!(!lock.renew(10).await.unwrap());
    held(&store, "b", 10).await;
}

/// After its deadline a lock cannot be renewed or released, though nobody else took it.
pub(super) async fn a_lapsed_lock_is_not_renewed_or_released<H: Harness>(h: &H) {
    let store = h.open().await;
    let lock = held(&store, "a", 60).await;
    h.advance(62);
    assert!(!lock.renew(60).await.unwrap());
    assert!(!lock.release().await.unwrap());
    let next = held(&store, "b", 60).await;
    assert!(next.release().await.unwrap());
}

/// The owner that asks again while it holds gets the same token and no more time.
pub(super) async fn an_owner_that_asks_again_gets_what_it_holds<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let lock = held(&store, "a", 1000).await;
    h.advance(500);
    let longer = held(&store, "a", 100_000).await;
    let shorter = held(&other, "a", 1).await;
    assert_eq!(
        (longer.token(), shorter.token()),
        (lock.token(), lock.token())
    );
    h.advance(400);
    assert!(
        refused(&other, "b").await,
        "asking for less does not shorten"
    );
    h.advance(102);
    assert!(!longer.renew(60).await.unwrap());
    let next = held(&other, "b", 60).await;
    assert!(next.token() > lock.token());
}

/// A ttl below one second is an invalid argument: nothing is acquired, nothing changes.
pub(super) async fn a_ttl_below_one_second_is_refused<H: Harness>(h: &H) {
    let store = h.open().await;
    for ttl in [0, -1, i64::MIN] {
        assert_names_ttl(&error_of(store.try_lock("door", "a", ttl).await), ttl);
        let lock = held(&store, "b", 60).await;
        assert_names_ttl(&error_of(lock.renew(ttl).await), ttl);
        assert!(refused(&store, "a").await, "the lock is still held");
        assert!(lock.release().await.unwrap());
    }
}

#[track_caller]
fn assert_names_ttl(error: &Error, ttl: i64) {
    let Error::InvalidArgument {
        argument, value, ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!((*argument, &**value), ("ttl", &*ttl.to_string()));
}

/// A ttl of `i64::MAX` saturates: the lock is held for ever.
pub(super) async fn an_endless_ttl_saturates<H: Harness>(h: &H) {
    const CENTURY: i64 = 100 * 365 * 86_400;
    let store = h.open().await;
    let lock = held(&store, "a", i64::MAX).await;
    h.advance(CENTURY);
    assert!(refused(&store, "b").await);
    assert!(lock.renew(60).await.unwrap());
    assert!(lock.renew(i64::MAX).await.unwrap());
    h.advance(CENTURY);
    assert!(refused(&store, "b").await);
    assert!(lock.release().await.unwrap());
}
