//! What a call costs around the engine: through the engine's own trait, through a store that
//! is compiled for the engine, and through the boxed store. Prints the allocations of one call
//! of each first; those are exact, the times are not.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench that cannot start says why and ends; criterion's macros make public items"
)]

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use alkstore::engine::{At, Queues};
use alkstore::{Engine, EnqueueOpts, QueueOpts, Store};
use alkstore_benches::Null;
use criterion::{Criterion, criterion_group, criterion_main};

/// A payload that encodes to one short string.
const PAYLOAD: &str = "welcome";

/// An operation's name and one call of it.
type Call<'s> = (&'static str, Box<dyn FnMut() + 's>);

/// Runs a future of the engine that does no work, which is ready at its first poll. Where it
/// stands, as `.await` does: to move it would cost more than all that is measured.
macro_rules! now {
    ($future:expr) => {
        match pin!($future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => unreachable!("the engine does no work"),
        }
    };
}

/// Allocations of one call, after one to warm up.
fn allocations(mut call: impl FnMut()) -> u64 {
    call();
    allocation_counter::measure(call).count_total
}

/// The operations of the hot paths on any store: name and call.
fn calls<E: Engine>(store: &Store<E>) -> Vec<Call<'_>> {
    let queue = store
        .queue("mail", QueueOpts::default())
        .expect("the name is valid");
    let claims = queue.clone();
    let stream = store.stream("users").expect("the name is valid");
    vec![
        (
            "enqueue",
            Box::new(move || {
                black_box(&now!(queue.enqueue(PAYLOAD, EnqueueOpts::default())));
            }),
        ),
        (
            "claim_one",
            Box::new(move || {
                black_box(&now!(claims.claim_one("worker")));
            }),
        ),
        (
            "read_since",
            Box::new(move || {
                black_box(&now!(stream.read_since(0, 10)));
            }),
        ),
        (
            "notify",
            Box::new(move || {
                black_box(&now!(store.notify("prices", PAYLOAD)));
            }),
        ),
    ]
}

/// The same operations straight on the engine, with what the store does before them.
fn bare(engine: &Null) -> Vec<Call<'_>> {
    use alkstore::engine::{After, ClaimRequest, NewJob, Notify, Ready, Stamps, Streams};
    let stamps = Stamps {
        visibility_timeout_s: 300,
        max_attempts: 3,
        backoff_base_s: 5,
        dead_letter_retention_s: None,
    };
    vec![
        (
            "enqueue",
            Box::new(move || {
                let payload = serde_json::to_vec(PAYLOAD).expect("it encodes");
                let job = NewJob {
                    queue: "mail",
                    payload: &payload,
                    ready: Ready::Now,
                    priority: 0,
                    expires: None,
                    stamps,
                };
                black_box(&now!(engine.insert_jobs(At::Auto, &[job])));
            }),
        ),
        (
            "claim_one",
            Box::new(move || {
                let request = ClaimRequest {
                    queue: "mail",
                    worker: "worker",
                    limit: 1,
                };
                black_box(&now!(engine.claim_jobs(&[request])));
            }),
        ),
        (
            "read_since",
            Box::new(move || {
                black_box(&now!(engine.read_events(
                    At::Auto,
                    "users",
                    After::Offset(0),
                    10
                )));
            }),
        ),
        (
            "notify",
            Box::new(move || {
                let payload = serde_json::to_vec(PAYLOAD).expect("it encodes");
                black_box(&now!(engine.send_notify(At::Auto, "prices", &payload)));
            }),
        ),
    ]
}

fn dispatch(criterion: &mut Criterion) {
    let store = Store::new(Null::default());
    let boxed = store.clone().boxed();
    let faces = [
        ("engine", bare(store.engine())),
        ("static", calls(&store)),
        ("boxed", calls(&boxed)),
    ];
    for (face, calls) in faces {
        for (operation, mut call) in calls {
            println!(
                "{operation}/{face}: {} allocations per call",
                allocations(&mut call)
            );
            let mut group = criterion.benchmark_group(operation);
            group.bench_function(face, |bencher| bencher.iter(&mut call));
            group.finish();
        }
    }
}

criterion_group!(benches, dispatch);
criterion_main!(benches);
