//! A small engine in memory: the contract as a program that one can read in a sitting.
//!
//! It is the proof that a foreign engine can use the suite, and the model that others are
//! compared with. It strives for obvious, not for fast: a transaction works on a copy of the
//! whole state and puts it in place when it commits, and there is one writer at a time.
//!
//! Several [`Reference`]s on one [`Database`] act as several processes. A database made
//! [with a fault](Database::with_fault) breaks one rule of the contract on purpose; wherever
//! a `match` on the fault stands, its last arm is the contract.
//!
//! ```
//! use alkstore::Store;
//! use alkstore_contract_tests::reference::{Database, Reference};
//!
//! # async fn example() -> alkstore::Result<()> {
//! let database = Database::new();
//! let store = Store::new(Reference::new(database.clone()));
//! let as_another_process = Store::new(Reference::new(database));
//! # Ok(()) }
//! ```

mod backend;
mod batch;
mod database;
mod fault;
mod harness;
mod lock;
mod notify;
mod queue;
mod rules;
mod scheduler;
mod stream;
mod tx;
mod writer;

pub use backend::Reference;
pub use database::{Database, Reach};
pub use fault::Fault;
pub use harness::ReferenceHarness;
pub use tx::{ReferenceConn, ReferenceTx};
