//! The hot paths of queues: enqueue, and claim with ack.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench that cannot start says why and ends; criterion's macros make public items"
)]

mod shared;

use alkstore::{Engine, EnqueueOpts, Queue, QueueOpts, Result};
use alkstore_benches::{PAYLOAD, TASKS};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use futures::future::try_join_all;

use shared::{Bench, Subject, on_each_engine};

struct Queues;

impl Bench for Queues {
    fn run<E: Engine>(criterion: &mut Criterion, subject: &Subject<'_, E>) {
        let (runtime, store) = (subject.runtime, &subject.store);
        let queue = store
            .queue("mail", QueueOpts::default())
            .expect("the name is valid");
        let mut group = criterion.benchmark_group(format!("queue/{}", subject.engine));
        group.throughput(Throughput::Elements(1));
        group.bench_function("enqueue", |bencher| {
            bencher.iter(|| runtime.block_on(queue.enqueue(PAYLOAD, EnqueueOpts::default())));
        });
        group.bench_function("claim_one + ack", |bencher| {
            let enqueue = || runtime.block_on(queue.enqueue(PAYLOAD, EnqueueOpts::default()));
            let work = |_| {
                runtime
                    .block_on(claim_and_ack(&queue))
                    .expect("a job is done")
            };
            bencher.iter_batched(enqueue, work, BatchSize::PerIteration);
        });
        group.throughput(Throughput::Elements(TASKS));
        group.bench_function("enqueue, 16 tasks", |bencher| {
            bencher.iter(|| {
                let tasks = (0..TASKS).map(|_| {
                    let queue = queue.clone();
                    runtime
                        .spawn(async move { queue.enqueue(PAYLOAD, EnqueueOpts::default()).await })
                });
                runtime
                    .block_on(try_join_all(tasks))
                    .expect("no task panics")
            });
        });
        group.throughput(Throughput::Elements(100));
        group.bench_function("claim_batch(100) + ack_batch", |bencher| {
            let payloads = [PAYLOAD; 100];
            let enqueue =
                || runtime.block_on(queue.enqueue_batch(&payloads, EnqueueOpts::default()));
            let work = |_| {
                runtime.block_on(async {
                    let jobs = queue.claim_batch("worker", 100).await?;
                    queue.ack_batch(&jobs).await
                })
            };
            bencher.iter_batched(enqueue, work, BatchSize::PerIteration);
        });
        group.finish();
    }
}

async fn claim_and_ack<E: Engine>(queue: &Queue<E>) -> Result<bool> {
    let job = queue.claim_one("worker").await?;
    job.expect("one is ready").ack().await
}

criterion_group!(benches, on_each_engine::<Queues>);
criterion_main!(benches);
