use alkstore_contract_tests::{Harness, contract};

struct Mock;

impl Harness for Mock {}

contract! {
    mock: Mock,
    skip: {
        queues::a_job_is_done_once = "the mechanism is `queue`",
    },
}

fn main() {}
