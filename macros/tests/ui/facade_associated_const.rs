#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::Backend;

#[facade]
pub trait Queues: Backend {
    const NAME: &'static str;
}

fn main() {}
