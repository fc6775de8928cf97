#[path = "../support/boxed.rs"]
mod boxed;

use alkstore_macros::facade;
use boxed::{Backend, Result};

#[facade]
pub trait Queues: Backend {
    fn insert_jobs<J>(&self, jobs: impl AsRef<J>) -> impl Future<Output = Result<()>>;

    async fn claim_jobs(&self, _: &str);
}

/// The rest of a crate relies on this; it is not to be reported as well.
fn main() {
    fn needs<E: Queues>() {}
    needs::<boxed::BoxedEngine>();
}
