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

contract! {
    postgres: PostgresHarness,
    skip: {
        batch::a_transaction_dropped_on_a_runtime_that_stops_frees_its_rows =
            "a connection is driven by the runtime that it was made on, and so is a rollback",
        batch::a_transaction_commits_on_another_runtime =
            "a connection is driven by the runtime that it was made on, and so is a commit",
    }
}
