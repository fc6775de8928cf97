#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::Result;

#[facade]
pub trait Queues: Send + Sync {
    fn count_jobs(&self) -> impl Future<Output = Result<u64>> + Send;
}

fn main() {}
