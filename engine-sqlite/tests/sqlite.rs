//! The contract on SQLite, and what only SQLite can get wrong.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails, in its helpers too"
)]

#[path = "sqlite/cancel.rs"]
mod cancel;
#[path = "sqlite/ended.rs"]
mod ended;
#[path = "sqlite/exhausted.rs"]
mod exhausted;
#[path = "sqlite/harness.rs"]
mod harness;
#[path = "sqlite/memory.rs"]
mod memory;
#[path = "sqlite/model.rs"]
mod model;
#[path = "sqlite/moved.rs"]
mod moved;
#[path = "sqlite/open.rs"]
mod open;
#[path = "sqlite/options.rs"]
mod options;
#[path = "sqlite/process.rs"]
mod process;
#[path = "sqlite/reader.rs"]
mod reader;
#[path = "sqlite/stress.rs"]
mod stress;
#[path = "sqlite/support.rs"]
mod support;
#[path = "sqlite/transaction.rs"]
mod transaction;
#[path = "sqlite/wake.rs"]
mod wake;

alkstore_contract_tests::contract!(sqlite: crate::harness::SqliteHarness);
