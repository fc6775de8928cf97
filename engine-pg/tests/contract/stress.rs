//! Calls under runtimes that come and go.

use alkstore_contract_tests::stress;

use crate::harness::PostgresHarness;

#[test]
#[ignore = "an idle connection belongs to the runtime that it was made on"]
fn nothing_hangs_and_nothing_is_lost() {
    stress::run::<PostgresHarness>();
}
