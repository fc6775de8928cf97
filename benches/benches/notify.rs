//! From a notify, or a commit, to the wake of who listens in the same process.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a bench that cannot start says why and ends; criterion's macros make public items"
)]

mod shared;

use alkstore::{Engine, Result, Store, WakeReceiver};
use alkstore_benches::PAYLOAD;
use criterion::{Criterion, criterion_group, criterion_main};

use shared::{Bench, Subject, on_each_engine};

struct Wakes;

impl Bench for Wakes {
    fn run<E: Engine>(criterion: &mut Criterion, subject: &Subject<'_, E>) {
        let (runtime, store) = (subject.runtime, &subject.store);
        let mut wakes = runtime
            .block_on(store.listen("prices"))
            .expect("it listens");
        let mut group = criterion.benchmark_group(format!("notify/{}", subject.engine));
        group.bench_function("notify to wake", |bencher| {
            bencher.iter(|| {
                runtime.block_on(async {
                    store.notify("prices", PAYLOAD).await.expect("it notifies");
                    wakes.recv().await
                })
            });
        });
        group.bench_function("commit to wake", |bencher| {
            bencher.iter(|| {
                runtime
                    .block_on(commit(store, &mut wakes))
                    .expect("it commits")
            });
        });
        group.finish();
    }
}

async fn commit<E: Engine>(store: &Store<E>, wakes: &mut WakeReceiver) -> Result<()> {
    let mut tx = store.begin_tx().await?;
    tx.notify_tx("prices", PAYLOAD).await?;
    tx.commit().await?;
    wakes.recv().await;
    Ok(())
}

criterion_group!(benches, on_each_engine::<Wakes>);
criterion_main!(benches);
