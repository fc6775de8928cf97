#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::{Backend, Result};

#[facade]
pub trait Queues: Backend {
    fn count_jobs(&self) -> impl Future<Output = Result<u64>> + Send + 'static;

    fn count_dead(&self) -> impl Future<Output = Result<u64>> + Send + Unpin;
}

fn main() {}
