//! Calls under runtimes that come and go.

use alkstore_contract_tests::stress;

use crate::harness::SqliteHarness;

#[test]
fn nothing_hangs_and_nothing_is_lost() {
    stress::run::<SqliteHarness>();
}
