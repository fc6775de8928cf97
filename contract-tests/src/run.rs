//! How a case runs.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::Harness;

/// A case for the harness `H`: it returns, or panics if the guarantee is broken.
pub type CaseFn<H> = for<'h> fn(&'h H) -> BoxFuture<'h, ()>;

/// How long one case may take. It is no measure of speed: it ends what hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs one case on a harness of its own: this is the body of every test of the matrix.
///
/// # Panics
///
/// If the case does, or if it takes a minute.
pub fn run<H: Harness>(
    name: &'static str,
    case: impl for<'h> FnOnce(&'h H) -> BoxFuture<'h, ()> + Send + 'static,
) {
    run_on(name, DEADLINE, H::new(), case);
}

/// Runs one case on the harness that `setup` makes, for `deadline` at most.
///
/// # Panics
///
/// If the case does, or if it takes longer.
pub fn run_on<H: Harness>(
    name: &str,
    deadline: Duration,
    setup: impl Future<Output = H>,
    case: impl for<'h> FnOnce(&'h H) -> BoxFuture<'h, ()>,
) {
    let runtime = runtime();
    // Both come to their ends inside of the runtime: a harness may need it to clean up.
    let whole = async {
        let harness = timeout(DEADLINE, setup).await.unwrap_or_else(|_| {
            panic!("{name}: the harness was not ready within {DEADLINE:?}");
        });
        timeout(deadline, case(&harness)).await.unwrap_or_else(|_| {
            panic!("{name}: the case did not end within {deadline:?}");
        });
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(whole)));
    // A drop would wait for all that the case left running.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
}

fn runtime() -> Runtime {
    // The workers bear the name of the test, so that its output tells who panicked.
    let name = std::thread::current().name().unwrap_or("case").to_owned();
    let mut builder = Builder::new_multi_thread();
    let runtime = builder
        .worker_threads(2)
        .thread_name(name)
        .enable_all()
        .build();
    runtime.expect("the system has threads to spare")
}
