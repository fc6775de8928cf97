//! Calls under runtimes that come and go, on the reference engine.
#![forbid(unsafe_code)]

use alkstore_contract_tests::reference::ReferenceHarness;
use alkstore_contract_tests::stress;

#[test]
fn nothing_hangs_and_nothing_is_lost() {
    stress::run::<ReferenceHarness>();
}
