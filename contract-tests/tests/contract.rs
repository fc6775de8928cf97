//! The matrix on the reference engine.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use alkstore_contract_tests::reference::ReferenceHarness;
use alkstore_contract_tests::{cases, contract};

contract!(reference: ReferenceHarness);

#[test]
fn every_case_has_a_name_of_its_own() {
    let names = cases();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
}
