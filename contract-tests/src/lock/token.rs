use super::*;
use crate::Harness;

/// Renew and release act on their own acquisition only, whoever holds the lock now.
pub(super) async fn a_holder_whose_lock_was_taken_over_cannot_touch_it<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    // The same owner after a restart is another acquisition, too.
    for next in ["b", "a"] {
        let stale = held(&store, "a", 60).await;
        let doubled = held(&store, "a", 60).await;
        h.advance(62);
        let lock = held(&other, next, 60).await;
        assert!(!stale.renew(100_000).await.unwrap());
        assert!(!doubled.release().await.unwrap());
        assert!(refused(&store, "c").await);
        assert!(lock.renew(60).await.unwrap());
        h.advance(62);
        assert!(!stale.release().await.unwrap());
        let last = held(&store, "c", 60).await;
        assert!(last.release().await.unwrap());
    }
}

/// Once released, the acquisition is over for every handle on it.
pub(super) async fn a_released_lock_cannot_be_renewed_or_released_again<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let lock = held(&store, "a", 60).await;
    let (second, third) = (held(&store, "a", 60).await, held(&other, "a", 60).await);
    assert!(lock.release().await.unwrap());
    assert!(!second.renew(60).await.unwrap());
    assert!(!second.release().await.unwrap());
    held(&other, "b", 60).await;
    assert!(!third.renew(60).await.unwrap());
    assert!(!third.release().await.unwrap());
    assert!(refused(&store, "a").await);
}

/// Each fresh acquisition has a greater token: after a release, after a lapse, of any owner.
pub(super) async fn tokens_grow_with_each_acquisition<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let mut last = i64::MIN;
    for (store, owner, released) in [
        (&store, "a", true),
        (&store, "a", true),
        (&other, "b", true),
        (&store, "a", false),
        (&store, "a", false),
        (&other, "b", false),
        (&other, "a", true),
    ] {
        let lock = held(store, owner, 60).await;
        assert!(lock.token() > last, "{} after {last}", lock.token());
        last = lock.token();
        match released {
            true => assert!(lock.release().await.unwrap()),
            false => h.advance(62),
        }
    }
}

/// A restart does not forget the tokens, of held locks nor of free ones.
pub(super) async fn tokens_grow_across_a_restart<H: Harness>(h: &H) {
    let mut last = i64::MIN;
    for released in [true, false, true, true] {
        let store = h.open().await;
        let lock = held(&store, "a", 60).await;
        assert!(lock.token() > last, "{} after {last}", lock.token());
        last = lock.token();
        match released {
            true => assert!(lock.release().await.unwrap()),
            false => h.advance(62),
        }
        store.close().await;
    }
}

/// What a paused holder still writes can be told by its token, lower than the next holder's.
pub(super) async fn a_paused_holder_has_a_lower_token_than_the_next<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let paused = held(&store, "a", 60).await;
    h.advance(62);
    let next = held(&other, "b", 60).await;
    let fence = next.token();
    assert!(paused.token() < fence);
    assert!(!paused.renew(60).await.unwrap());
    // The pause is over, and the owner does not get in beside the next holder.
    assert!(refused(&store, "a").await);
    assert!(next.release().await.unwrap());
    assert!(held(&store, "a", 60).await.token() > fence);
}
