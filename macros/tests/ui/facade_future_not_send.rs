#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::{Backend, Result};

#[facade]
pub trait Queues: Backend {
    fn count_jobs(&self) -> impl Future<Output = Result<u64>>;
}

fn main() {}
