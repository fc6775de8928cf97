#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::{Backend, Result};

#[facade]
pub trait Queues: Backend {
    async fn count_jobs(&self) -> Result<u64>;
}

fn main() {}
