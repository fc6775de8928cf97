#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::Backend;

#[facade]
pub trait Queues: Backend {
    fn job_limit(&self) -> u64 {
        1000
    }
}

fn main() {}
