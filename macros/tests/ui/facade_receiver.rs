#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::{Backend, Result};

#[facade]
pub trait Queues: Backend {
    fn job_limit() -> u64;

    fn count_jobs(&mut self) -> impl Future<Output = Result<u64>> + Send;

    fn stop_claims(self) -> impl Future<Output = Result<u64>> + Send;

    fn claim_jobs(self: &Self) -> impl Future<Output = Result<u64>> + Send;
}

fn main() {}
