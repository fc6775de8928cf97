//! The matrix of the contract on Postgres.
#![forbid(unsafe_code)]
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

#[path = "contract/harness.rs"]
mod harness;
#[path = "contract/model.rs"]
mod model;
#[path = "contract/stress.rs"]
mod stress;

use alkstore_contract_tests::contract;
use harness::PostgresHarness;

contract!(postgres: PostgresHarness);
