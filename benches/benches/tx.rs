//! A transaction: alone, and with a job and an event in it.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench that cannot start says why and ends; criterion's macros make public items"
)]

mod shared;

use alkstore::{Engine, EnqueueOpts, Result, Store};
use alkstore_benches::PAYLOAD;
use criterion::{Criterion, criterion_group, criterion_main};

use shared::{Bench, Subject, on_each_engine};

struct Transactions;

impl Bench for Transactions {
    fn run<E: Engine>(criterion: &mut Criterion, subject: &Subject<'_, E>) {
        let (runtime, store) = (subject.runtime, &subject.store);
        let mut group = criterion.benchmark_group(format!("tx/{}", subject.engine));
        group.bench_function("begin + commit", |bencher| {
            bencher.iter(|| runtime.block_on(empty(store)).expect("it commits"));
        });
        group.bench_function("enqueue + publish", |bencher| {
            bencher.iter(|| runtime.block_on(both(store)).expect("it commits"));
        });
        group.finish();
    }
}

async fn empty<E: Engine>(store: &Store<E>) -> Result<()> {
    store.begin_tx().await?.commit().await
}

async fn both<E: Engine>(store: &Store<E>) -> Result<()> {
    let mut tx = store.begin_tx().await?;
    tx.enqueue_tx("mail", EnqueueOpts::default(), PAYLOAD)
        .await?;
    tx.publish_tx("users", PAYLOAD).await?;
    tx.commit().await
}

criterion_group!(benches, on_each_engine::<Transactions>);
criterion_main!(benches);
