#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::{Backend, Result};

#[facade]
pub trait Queues<J>: Backend
where
    J: Sync,
{
    fn insert_jobs(&self, jobs: &[J]) -> impl Future<Output = Result<u64>> + Send;
}

fn main() {}
