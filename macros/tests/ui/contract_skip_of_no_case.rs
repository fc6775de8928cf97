use alkstore_contract_tests::{Harness, contract};

struct Mock;

impl Harness for Mock {}

contract! {
    mock: Mock,
    skip: {
        queue::a_job_is_done_twice = "the name is nearly right",
        queue::rows_are_locked = "the name is wrong",
    },
}

fn main() {}
