//! A message through an outbox: delivered and ended.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench that cannot start says why and ends; criterion's macros make public items"
)]

mod shared;

use std::convert::Infallible;

use alkstore::{Engine, EnqueueOpts};
use alkstore_benches::PAYLOAD;
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

use shared::{Bench, Subject, on_each_engine};

struct Messages;

impl Bench for Messages {
    fn run<E: Engine>(criterion: &mut Criterion, subject: &Subject<'_, E>) {
        let (runtime, store) = (subject.runtime, &subject.store);
        let outbox = store.outbox("invoices").expect("the name is valid");
        let mut group = criterion.benchmark_group(format!("outbox/{}", subject.engine));
        group.bench_function("run_once", |bencher| {
            let enqueue = || runtime.block_on(outbox.enqueue(PAYLOAD, EnqueueOpts::default()));
            let deliver = |_| {
                let delivery = async |_| Ok::<(), Infallible>(());
                runtime.block_on(outbox.run_once("sender", delivery))
            };
            bencher.iter_batched(enqueue, deliver, BatchSize::PerIteration);
        });
        group.finish();
    }
}

criterion_group!(benches, on_each_engine::<Messages>);
criterion_main!(benches);
