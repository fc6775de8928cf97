//! The contract of alkstore as a test matrix for any engine.
//!
//! Each guarantee is one case: a generic function over a [`Harness`] whose doc line is the
//! guarantee. The matrix is engine × {static, boxed} × case, each a test of its own with a
//! name that reads: `sqlite::boxed::queue::a_claim_goes_to_one_worker`.
//!
//! # An engine of your own
//!
//! Implement [`Harness`] in your engine's tests, once, and write one line. A whole
//! `tests/contract.rs` for the small engine that comes with the suite:
//!
//! ```
//! use std::any::Any;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use alkstore::{Result, Store};
//! use alkstore_contract_tests::reference::{Database, Reference, ReferenceConn, ReferenceTx};
//! use alkstore_contract_tests::{Body, Harness};
//!
//! struct MyHarness(Arc<Database>);
//!
//! impl Harness for MyHarness {
//!     type Engine = Reference;
//!
//!     async fn new() -> Self {
//!         Self(Database::new())
//!     }
//!
//!     async fn open(&self) -> Store<Reference> {
//!         Store::new(Reference::new(self.0.clone()))
//!     }
//!
//!     async fn open_impatient(&self) -> Store<Reference> {
//!         Store::new(Reference::new(self.0.clone()).busy_timeout(Duration::from_millis(200)))
//!     }
//!
//!     fn advance(&self, seconds: i64) {
//!         self.0.advance(seconds);
//!     }
//!
//!     async fn insert_row(connection: &mut ReferenceConn, key: &str) -> Result<()> {
//!         connection.insert_row(key)
//!     }
//!
//!     async fn count_rows(connection: &mut ReferenceConn) -> Result<i64> {
//!         Ok(connection.count_rows() as i64)
//!     }
//!
//!     async fn with_own_tx(&self, commit: bool, body: Body<'_, ReferenceConn>) -> Result<()> {
//!         let mut tx = ReferenceTx::begin(&self.0, Duration::from_secs(5)).await?;
//!         body(&mut *tx).await?;
//!         if commit { tx.commit() } else { tx.rollback() }
//!         Ok(())
//!     }
//!
//!     async fn with_driver_tx(&self, body: Body<'_, dyn Any + Send>) -> Result<()> {
//!         let mut tx = ReferenceTx::begin(&self.0, Duration::from_secs(5)).await?;
//!         body(&mut tx).await?;
//!         tx.commit();
//!         Ok(())
//!     }
//!
//!     async fn remove_source(&self) -> bool {
//!         self.0.remove_source();
//!         true
//!     }
//! }
//!
//! alkstore_contract_tests::contract!(my_engine: MyHarness);
//! # fn main() {}
//! ```
//!
//! A case that an engine cannot keep is named with its reason, and shows as ignored in every
//! run:
//!
//! ```text
//! contract! { my_engine: MyHarness, skip: { notify::a_case = "why it cannot" } }
//! ```
//!
//! [`mod@reference`] is that small engine: the contract as a program, in memory. Its mutants, each
//! with one rule broken, are what the suite itself is tested with. [`model`] runs it and an
//! engine in lock step, over random sequences of operations.

#![deny(missing_docs)]
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a panic is how a case says that the engine broke its contract"
)]

pub mod harness;
pub mod model;
#[cfg(feature = "postgres-server")]
pub mod postgres_server;
pub mod reference;
mod run;
pub mod stress;
mod support;

pub mod batch;
pub mod lock;
pub mod name;
pub mod notify;
pub mod outbox;
pub mod payload;
pub mod queue;
pub mod scheduler;
pub mod store;
pub mod stream;
pub mod tx;

#[doc(hidden)]
pub use alkstore_macros::__contract_tests;
pub use alkstore_macros::contract;

pub use harness::{Body, Boxed, Conn, Harness};
pub use run::{CaseFn, run, run_on};

/// The names of all cases, mechanism by mechanism.
#[must_use]
pub fn cases() -> Vec<&'static str> {
    [
        name::CASES,
        payload::CASES,
        store::CASES,
        tx::CASES,
        notify::CASES,
        stream::CASES,
        queue::CASES,
        batch::CASES,
        outbox::CASES,
        lock::CASES,
        scheduler::CASES,
    ]
    .concat()
}

/// The guide's code compiles and runs, or this fails.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/writing-an-engine.md")]
pub struct WritingAnEngine;
