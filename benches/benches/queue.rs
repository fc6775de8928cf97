//! The hot paths of queues: enqueue, and claim with ack, on a database file.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench that cannot start says why and ends; criterion's macros make public items"
)]

mod shared;

use alkstore::{EnqueueOpts, QueueOpts};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use shared::{File, PAYLOAD};

fn queue(criterion: &mut Criterion) {
    let File { runtime, store, .. } = &File::new();
    let queue = store
        .queue("mail", QueueOpts::default())
        .expect("the name is valid");

    let mut group = criterion.benchmark_group("sqlite");
    group.throughput(Throughput::Elements(1));
    group.bench_function("enqueue", |bencher| {
        bencher.iter(|| runtime.block_on(queue.enqueue(PAYLOAD, EnqueueOpts::default())));
    });
    group.bench_function("claim_one + ack", |bencher| {
        bencher.iter_batched(
            || runtime.block_on(queue.enqueue(PAYLOAD, EnqueueOpts::default())),
            |_| {
                runtime.block_on(async {
                    let job = queue.claim_one("worker").await?;
                    job.expect("one is ready").ack().await
                })
            },
            criterion::BatchSize::PerIteration,
        );
    });
    group.throughput(Throughput::Elements(100));
    group.bench_function("claim_batch(100) + ack_batch", |bencher| {
        bencher.iter_batched(
            || runtime.block_on(queue.enqueue_batch(&[PAYLOAD; 100], EnqueueOpts::default())),
            |_| {
                runtime.block_on(async {
                    let jobs = queue.claim_batch("worker", 100).await?;
                    queue.ack_batch(&jobs).await
                })
            },
            criterion::BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, queue);
criterion_main!(benches);
