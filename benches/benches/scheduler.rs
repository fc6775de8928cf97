//! A schedule that is stored again, as at every start of a service.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench that cannot start says why and ends; criterion's macros make public items"
)]

mod shared;

use alkstore::{Engine, ScheduleOpts};
use alkstore_benches::PAYLOAD;
use criterion::{Criterion, criterion_group, criterion_main};

use shared::{Bench, Subject, on_each_engine};

struct Schedules;

impl Bench for Schedules {
    fn run<E: Engine>(criterion: &mut Criterion, subject: &Subject<'_, E>) {
        let (runtime, store) = (subject.runtime, &subject.store);
        let mut group = criterion.benchmark_group(format!("scheduler/{}", subject.engine));
        group.bench_function("schedule", |bencher| {
            bencher.iter(|| {
                let opts = ScheduleOpts::default();
                runtime.block_on(store.schedule("sweep", "@every 1h", "jobs", PAYLOAD, opts))
            });
        });
        group.finish();
    }
}

criterion_group!(benches, on_each_engine::<Schedules>);
criterion_main!(benches);
