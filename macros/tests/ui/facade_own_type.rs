#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::{At, Backend, Result};

#[facade]
pub trait Queues: Backend {
    fn count_jobs(&self, connection: &mut Self::Conn) -> impl Future<Output = Result<u64>> + Send;

    fn move_jobs(
        &self,
        at: Option<At<'_, Self::Conn>>,
        to: &Self,
    ) -> impl Future<Output = Result<u64>> + Send;

    fn queue_connection(&self) -> impl Future<Output = Result<Box<Self::Conn>>> + Send;
}

fn main() {}
