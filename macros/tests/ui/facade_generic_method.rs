#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::{Backend, Result};

#[facade]
pub trait Queues: Backend {
    fn insert_jobs<J: AsRef<str> + Sync>(
        &self,
        jobs: &[J],
    ) -> impl Future<Output = Result<u64>> + Send;

    fn claim_jobs<const N: usize>(
        &self,
        queues: [&str; N],
    ) -> impl Future<Output = Result<u64>> + Send;
}

fn main() {}
