#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::Backend;

#[facade]
pub trait Queues: Backend {
    fn queue_names(&self) -> impl Iterator<Item = String>;

    fn read_names(&self) -> impl Future<Output = Vec<impl AsRef<str>>> + Send;
}

fn main() {}
