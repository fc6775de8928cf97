use alkstore_contract_tests::{Harness, contract};

struct Mock;

impl Harness for Mock {}

contract! {
    mock
}

fn main() {}
