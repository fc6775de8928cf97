#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::Backend;

macro_rules! counters {
    () => {
        fn job_limit(&self) -> u64;
    };
}

#[facade]
pub trait Queues: Backend {
    counters! {}
}

fn main() {}
