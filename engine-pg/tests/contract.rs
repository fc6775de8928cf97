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
        batch::a_runtime_that_stops_strands_no_call =
            "an idle connection belongs to the runtime that it was made on",
        batch::calls_on_many_short_lived_runtimes_end =
            "an idle connection belongs to the runtime that it was made on",
        batch::a_runtime_shut_down_in_the_background_harms_no_other =
            "an idle connection belongs to the runtime that it was made on",
        batch::a_transaction_dropped_on_a_runtime_that_stops_frees_its_rows =
            "a rollback runs on the runtime that the transaction was begun on",
        batch::a_transaction_commits_on_another_runtime =
            "a commit runs on the runtime that the transaction was begun on",
    }
}
