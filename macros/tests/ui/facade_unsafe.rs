#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::{Backend, Result};

#[facade]
pub unsafe trait Queues: Backend {
    unsafe fn count_jobs(&self) -> impl Future<Output = Result<u64>> + Send;
}

fn main() {}
