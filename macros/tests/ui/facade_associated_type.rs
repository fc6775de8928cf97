#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::Backend;

#[facade]
pub trait Queues: Backend {
    type Listener: Send;
}

fn main() {}
