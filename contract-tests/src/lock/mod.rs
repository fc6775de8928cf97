//! Locks.

mod apart;
mod lease;
mod race;
mod token;

use alkstore::{Engine, Lock, Store};

use apart::*;
use lease::*;
use race::*;
use token::*;

alkstore_macros::cases! {
    lock:
    a_lock_has_one_owner_until_it_is_released,
    a_lock_holds_through_its_deadline_and_lapses_after_it,
    renew_counts_from_now,
    a_lapsed_lock_is_not_renewed_or_released,
    a_holder_whose_lock_was_taken_over_cannot_touch_it,
    a_released_lock_cannot_be_renewed_or_released_again,
    an_owner_that_asks_again_gets_what_it_holds,
    tokens_grow_with_each_acquisition,
    tokens_grow_across_a_restart,
    a_paused_holder_has_a_lower_token_than_the_next,
    one_of_many_gets_the_lock,
    many_rounds_of_acquiring_never_overlap,
    a_ttl_below_one_second_is_refused,
    an_endless_ttl_saturates,
    a_lock_is_not_part_of_a_transaction,
    a_lock_outlives_its_store,
    locks_of_different_names_are_apart,
}

/// The lock, which must be free or the owner's.
async fn held<E: Engine>(store: &Store<E>, owner: &str, ttl: i64) -> Lock<E> {
    let lock = store.try_lock("door", owner, ttl).await.unwrap();
    lock.unwrap_or_else(|| panic!("{owner} can have the lock"))
}

/// Whether another holds the lock.
async fn refused<E: Engine>(store: &Store<E>, owner: &str) -> bool {
    store.try_lock("door", owner, 60).await.unwrap().is_none()
}
