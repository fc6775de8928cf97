//! The hot paths of streams: publish and read.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench that cannot start says why and ends; criterion's macros make public items"
)]

mod shared;

use alkstore::Engine;
use alkstore_benches::{PAYLOAD, TASKS};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures::future::try_join_all;

use shared::{Bench, Subject, on_each_engine};

struct Streams;

impl Bench for Streams {
    fn run<E: Engine>(criterion: &mut Criterion, subject: &Subject<'_, E>) {
        let (runtime, store) = (subject.runtime, &subject.store);
        let stream = store.stream("users").expect("the name is valid");
        let batch: Vec<_> = (0..1000).map(|_| (None, PAYLOAD)).collect();
        runtime
            .block_on(stream.publish_batch(&batch))
            .expect("the events are published");
        let mut group = criterion.benchmark_group(format!("stream/{}", subject.engine));
        group.throughput(Throughput::Elements(1));
        group.bench_function("publish", |bencher| {
            bencher.iter(|| runtime.block_on(stream.publish(PAYLOAD)));
        });
        group.throughput(Throughput::Elements(TASKS));
        group.bench_function("publish, 16 tasks", |bencher| {
            bencher.iter(|| {
                let tasks = (0..TASKS).map(|_| {
                    let stream = stream.clone();
                    runtime.spawn(async move { stream.publish(PAYLOAD).await })
                });
                runtime
                    .block_on(try_join_all(tasks))
                    .expect("no task panics")
            });
        });
        group.throughput(Throughput::Elements(1000));
        group.bench_function("read_since(1000)", |bencher| {
            bencher.iter(|| runtime.block_on(stream.read_since(0, 1000)));
        });
        group.finish();
    }
}

criterion_group!(benches, on_each_engine::<Streams>);
criterion_main!(benches);
