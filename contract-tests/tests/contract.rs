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

#[test]
fn the_guarantees_and_the_cases_are_in_step() {
    let page = include_str!("../../docs/GUARANTEES.md");
    let mut shown = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let Some(id) = cells.first().map(|cell| cell.trim_start_matches("| ")) else {
            continue;
        };
        if !id.starts_with(char::is_uppercase) {
            continue;
        }
        let of_row: Vec<&str> = cells[2]
            .split('`')
            .filter(|word| word.contains("::"))
            .collect();
        assert!(!of_row.is_empty(), "no case shows {id}");
        assert!(ids.insert(id), "{id} stands twice");
        shown.extend(of_row);
    }
    let cases: BTreeSet<&str> = cases().into_iter().collect();
    assert_eq!(
        shown.difference(&cases).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "no such case"
    );
    assert_eq!(
        cases.difference(&shown).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "no guarantee"
    );
}
