//! The procedural macros of alkstore.
//!
//! [`macro@facade`] writes what makes an engine trait work behind a pointer. [`cases!`] and
//! [`contract!`] make the matrix in which every engine is tested, unboxed and boxed, with
//! every case of the contract.
#![forbid(unsafe_code)]

mod contract;
mod errors;
mod facade;
#[cfg(test)]
mod snapshots;

use proc_macro::TokenStream;

/// Makes an engine trait work behind a pointer.
///
/// On `trait Queues: Backend`, say, it leaves the trait as it is and adds a module
/// `queues_twin` with
///
/// - `DynQueues`, an object-safe twin whose methods return boxed futures,
/// - its implementation by every engine, with one allocation for each call: the box around
///   the engine's own future,
/// - the implementation of `Queues` by `crate::boxed::BoxedEngine`, which holds an `Arc` of a
///   trait object that extends the twin.
///
/// `At<'_, Self::Conn>` is `At<'_, dyn Any + Send>` in the twin. The engine recovers its
/// connection with `Backend::downcast`; where it cannot, the call ends with
/// `crate::boxed::foreign_connection()`.
///
/// # Errors
///
/// What cannot be erased is a compile error that says why and what to write: generic or
/// default methods, methods without `&self`, `async fn`, futures that need not be `Send`,
/// associated items, `impl` arguments, engine types other than the connection of an `At`, and
/// returned borrows.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
///
/// use alkstore_macros::facade;
///
/// pub trait Backend: Clone + Send + Sync + 'static {}
///
/// #[facade]
/// pub trait Locks: Backend {
///     fn release_lock(&self, name: &str, token: i64) -> impl Future<Output = bool> + Send;
/// }
///
/// mod boxed {
///     use super::*;
///
///     #[derive(Clone)]
///     pub struct BoxedEngine(pub(crate) Arc<dyn locks_twin::DynLocks>);
///
///     impl Backend for BoxedEngine {}
/// }
///
/// fn boxed<E: Locks>(engine: E) -> boxed::BoxedEngine {
///     boxed::BoxedEngine(Arc::new(engine))
/// }
/// # fn main() {}
/// ```
#[proc_macro_attribute]
pub fn facade(arguments: TokenStream, item: TokenStream) -> TokenStream {
    facade::facade(&arguments.into(), &item.into()).into()
}

/// Lists the cases of one mechanism, at the top of the file that holds them.
///
/// A case is a private `async fn a_case<H: Harness>(harness: &H)` beside the list. One that is
/// not listed is reported as unused, a listed one that does not exist is an error at its name.
/// The list is kept in `CASES`, engines get to it by [`contract!`], and `table()` pairs each
/// name with its case for one harness.
///
/// # Example
///
/// The crate has a trait `Harness` and a type `CaseFn` at its root, and exports
/// `__contract_tests` there.
///
/// ```
/// # #![deny(dead_code)]
/// use std::pin::Pin;
///
/// #[doc(hidden)]
/// pub use alkstore_macros::__contract_tests;
///
/// pub trait Harness: Sync {}
///
/// pub type CaseFn<H> = for<'h> fn(&'h H) -> Pin<Box<dyn Future<Output = ()> + Send + 'h>>;
///
/// pub mod lock {
///     use crate::Harness;
///
///     alkstore_macros::cases! {
///         lock:
///         a_lock_has_one_owner,
///     }
///
///     /// A lock that is held is not acquired by another.
///     async fn a_lock_has_one_owner<H: Harness>(harness: &H) {
///         // …
///     }
/// }
///
/// fn main() {
///     assert_eq!(lock::CASES, ["lock::a_lock_has_one_owner"]);
/// #   struct Mock;
/// #   impl Harness for Mock {}
/// #   assert_eq!(lock::table::<Mock>().len(), 1);
/// }
/// ```
#[proc_macro]
pub fn cases(input: TokenStream) -> TokenStream {
    contract::cases(input.into()).into()
}

/// Tests an engine with every case of the contract, unboxed and boxed.
///
/// Each is a test of its own, such as `sqlite::boxed::lock::a_lock_has_one_owner`. A case that
/// the engine cannot keep is skipped by its name and shows its reason in every run.
///
/// The crate with the cases is found as `alkstore_contract_tests`; a crate that renames its
/// dependency on it says so, before what it skips: `sqlite: SqliteHarness, crate: renamed`. It
/// provides a module with
/// [`cases!`] for every mechanism, the trait `Harness`, the type `Boxed<H>` that is a harness
/// of the boxed engine, and the function `run` that runs one case on a fresh harness.
///
/// # Example
///
/// ```
/// use alkstore_contract_tests::{Harness, contract};
///
/// struct SqliteHarness;
///
/// impl Harness for SqliteHarness {
///     // …
/// }
///
/// contract! {
///     sqlite: SqliteHarness,
///     skip: {
///         lock::a_lock_has_one_owner = "why this engine cannot keep it",
///     },
/// }
/// # fn main() {}
/// ```
#[proc_macro]
pub fn contract(input: TokenStream) -> TokenStream {
    contract::contract(input.into()).into()
}

/// The tests of one mechanism for one face of an engine; [`contract!`] gets here by way of the
/// macro that [`cases!`] leaves behind.
#[doc(hidden)]
#[proc_macro]
pub fn __contract_tests(input: TokenStream) -> TokenStream {
    contract::tests(input.into()).into()
}
