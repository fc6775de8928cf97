#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::{Backend, Result};

#[facade]
pub trait Queues: Backend {
    fn count_jobs<'a>(&'a self, queue: &'a str) -> impl Future<Output = Result<u64>> + Send;
}

fn main() {}
