#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::{At, Backend};

#[facade]
pub trait Queues: Backend {
    fn count_jobs(&self, at: At<'_, Self::Conn>) -> impl Future<Output = u64> + Send;

    fn job_limit(&self, at: At<'_, Self::Conn>) -> u64;
}

fn main() {}
