use alkstore_contract_tests::{Harness, contract};

struct Mock;

impl Harness for Mock {}

contract! {
    mock: Mock,
    skip: {
        queue::a_job_is_done_once = "once",
        queue::a_job_is_done_once = "and again",
    },
}

fn main() {}
