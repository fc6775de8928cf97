//! As much of a contract suite as the matrix needs. Its cases prove nothing; its runner
//! proves that every test stands where its name says.
#![allow(missing_docs, reason = "its names are those of the real suite")]

use std::marker::PhantomData;

use futures::future::BoxFuture;

#[doc(hidden)]
pub use alkstore_macros::__contract_tests;
pub use alkstore_macros::contract;

/// Where the tests of a face stand.
pub trait Harness: Send + Sync {
    const FACE: &'static str = "static_dispatch";
}

pub struct Boxed<H>(PhantomData<H>);

impl<H: Harness> Harness for Boxed<H> {
    const FACE: &'static str = "boxed";
}

pub type CaseFn<H> = for<'h> fn(&'h H) -> BoxFuture<'h, ()>;

/// Runs nothing.
///
/// # Panics
///
/// If the test is not named after its face and its case.
pub fn run<H: Harness>(
    name: &'static str,
    case: impl for<'h> FnOnce(&'h H) -> BoxFuture<'h, ()> + Send + 'static,
) {
    // A closure's type is named after the function that it stands in.
    let test = std::any::type_name_of_val(&case);
    assert!(test.contains(&format!("::{}::{name}::", H::FACE)), "{test}");
}

pub mod queue {
    use crate::Harness;

    alkstore_macros::cases! { queue: a_claim_goes_to_one_worker, a_job_is_done_once }

    /// A job that one worker claims is not handed to another.
    async fn a_claim_goes_to_one_worker<H: Harness>(_: &H) {}

    /// A job that is done is not claimed again.
    async fn a_job_is_done_once<H: Harness>(_: &H) {}
}

pub mod lock {
    use crate::Harness;

    alkstore_macros::cases! {
        lock:
        a_lock_has_one_owner,
    }

    /// A lock that is held is not acquired by another.
    async fn a_lock_has_one_owner<H: Harness>(_: &H) {}
}

macro_rules! mechanisms_without_cases {
    ($($mechanism:ident)*) => {$(
        pub mod $mechanism {
            alkstore_macros::cases! { $mechanism: }
        }
    )*};
}
mechanisms_without_cases! { name payload store tx notify stream batch outbox scheduler }
