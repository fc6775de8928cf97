//! The hot paths of streams: publish and read, on a database file.

#![allow(
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench that cannot start says why and ends; criterion's macros make public items"
)]

use alkstore::Store;
use alkstore_sqlite::Sqlite;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// About what a small event weighs.
const PAYLOAD: &str = "a payload of about one hundred bytes, as events have that carry an id and a few words beside it";

fn stream(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("stream.db");
    let path = path.to_str().expect("the path is text");
    let store = runtime
        .block_on(Store::<Sqlite>::open(path))
        .expect("the database opens");
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
