use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;

use crate::Harness;
use crate::support::within;

/// Of many that ask at once one gets the lock; the others get `None`, not an error.
pub(super) async fn one_of_many_gets_the_lock<H: Harness>(h: &H) {
    let stores = [h.open().await, h.open().await];
    for round in 0..5 {
        let asking = (0..16).map(|number: usize| {
            let (store, name) = (stores[number % 2].clone(), format!("door-{round}"));
            tokio::spawn(async move {
                let owner = format!("owner-{number}");
                let lock = store.try_lock(&name, &owner, 60).await;
                lock.expect("a loser gets a value").is_some()
            })
        });
        let won = within(h, join_all(asking)).await;
        let winners = won.into_iter().filter(|won| *won.as_ref().unwrap()).count();
        assert_eq!(winners, 1, "round {round}");
    }
}

/// Owners that take turns in several processes never hold at once, and tokens never repeat.
pub(super) async fn many_rounds_of_acquiring_never_overlap<H: Harness>(h: &H) {
    let stores = [h.open().await, h.open().await];
    let holders = Arc::new(AtomicUsize::new(0));
    let owners = (0..6_usize).map(|number| {
        let (store, holders) = (stores[number % 2].clone(), Arc::clone(&holders));
        tokio::spawn(async move {
            let (owner, mut tokens) = (format!("owner-{number}"), Vec::new());
            while tokens.len() < 5 {
                let Some(lock) = store.try_lock("door", &owner, 100_000).await.unwrap() else {
                    tokio::task::yield_now().await;
                    continue;
                };
                assert_eq!(
                    holders.fetch_add(1, Ordering::SeqCst),
                    0,
                    "two hold the lock"
                );
                tokens.push(lock.token());
                tokio::task::yield_now().await;
                holders.fetch_sub(1, Ordering::SeqCst);
                assert!(lock.release().await.unwrap());
            }
            tokens
        })
    });
    let tokens = within(h, join_all(owners))
        .await
        .into_iter()
        .map(Result::unwrap);
    let mut all = Vec::new();
    for tokens in tokens {
        assert!(
            tokens.is_sorted_by(|earlier, later| earlier < later),
            "{tokens:?}"
        );
        all.extend(tokens);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 30, "each acquisition has a token of its own");
}
