#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::{Backend, Result};

use std::borrow::Cow;

#[facade]
pub trait Queues: Backend {
    fn queue_name(&self, id: i64) -> &str;

    fn find_job(&self, id: i64) -> impl Future<Output = Result<Cow<'_, str>>> + Send;
}

fn main() {}
