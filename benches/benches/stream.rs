//! The hot paths of streams: publish and read, on a database file.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench that cannot start says why and ends; criterion's macros make public items"
)]

mod shared;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use shared::{File, PAYLOAD};

fn stream(criterion: &mut Criterion) {
    let File { runtime, store, .. } = &File::new();
    let stream = store.stream("users").expect("the name is valid");
    let batch: Vec<_> = (0..1000).map(|_| (None, PAYLOAD)).collect();
    runtime
        .block_on(stream.publish_batch(&batch))
        .expect("the events are published");

    let mut group = criterion.benchmark_group("sqlite");
    group.throughput(Throughput::Elements(1));
    group.bench_function("publish", |bencher| {
        bencher.iter(|| runtime.block_on(stream.publish(PAYLOAD)));
    });
    group.throughput(Throughput::Elements(1000));
    group.bench_function("read_since(1000)", |bencher| {
        bencher.iter(|| runtime.block_on(stream.read_since(0, 1000)));
    });
    group.finish();
}

criterion_group!(benches, stream);
criterion_main!(benches);
