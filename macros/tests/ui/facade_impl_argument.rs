#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::{Backend, Result};

#[facade]
pub trait Queues: Backend {
    fn insert_jobs(&self, jobs: impl AsRef<str> + Send)
    -> impl Future<Output = Result<u64>> + Send;

    fn claim_jobs(
        &self,
        queues: &[impl AsRef<str> + Sync],
    ) -> impl Future<Output = Result<u64>> + Send;
}

fn main() {}
