//! A lock that is taken and released, and one that another holds.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench that cannot start says why and ends; criterion's macros make public items"
)]

mod shared;

use alkstore::{Engine, Result, Store};
use criterion::{Criterion, criterion_group, criterion_main};

use shared::{Bench, Subject, on_each_engine};

struct Locks;

impl Bench for Locks {
    fn run<E: Engine>(criterion: &mut Criterion, subject: &Subject<'_, E>) {
        let (runtime, store) = (subject.runtime, &subject.store);
        let held = runtime.block_on(store.try_lock("held", "other", 100_000));
        held.expect("the lock is asked for")
            .expect("the lock is free");
        let mut group = criterion.benchmark_group(format!("lock/{}", subject.engine));
        group.bench_function("try_lock + release", |bencher| {
            bencher.iter(|| {
                runtime
                    .block_on(take_and_release(store))
                    .expect("it is free")
            });
        });
        group.bench_function("try_lock of a held one", |bencher| {
            bencher.iter(|| runtime.block_on(store.try_lock("held", "owner", 30)));
        });
        group.finish();
    }
}

async fn take_and_release<E: Engine>(store: &Store<E>) -> Result<bool> {
    let lock = store.try_lock("free", "owner", 30).await?;
    lock.expect("nobody else wants it").release().await
}

criterion_group!(benches, on_each_engine::<Locks>);
criterion_main!(benches);
