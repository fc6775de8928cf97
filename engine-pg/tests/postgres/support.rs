//! What the tests share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use alkstore::{EnqueueOpts, Queue, QueueOpts, Store};
use alkstore_contract_tests::postgres_server::{Database, PostgresServer};
use alkstore_postgres::{Postgres, PostgresOptions};

/// A fresh database on the server that all tests share.
pub(crate) fn database() -> Database<'static> {
    PostgresServer::shared().create_database()
}

pub(crate) async fn open(database: &Database<'_>) -> Store<Postgres> {
    open_with(database, PostgresOptions::new()).await
}

pub(crate) async fn open_with(
    database: &Database<'_>,
    options: PostgresOptions,
) -> Store<Postgres> {
    Store::new(options.open(&database.url()).await.unwrap())
}

pub(crate) fn queue(store: &Store<Postgres>, name: &str) -> Queue<Postgres> {
    store.queue(name, QueueOpts::default()).unwrap()
}

pub(crate) async fn enqueue(queue: &Queue<Postgres>, number: i64) -> i64 {
    queue
        .enqueue(&number, EnqueueOpts::default())
        .await
        .unwrap()
}

/// A store that can do a bit of everything.
pub(crate) async fn works(store: &Store<Postgres>) {
    let queue = queue(store, "work");
    let mut wakes = queue.listen().await.unwrap();
    enqueue(&queue, 1).await;
    assert!(wakes.recv().await.is_some());
    assert_eq!(
        queue
            .enqueue_batch(&[1; 3], EnqueueOpts::default())
            .await
            .unwrap()
            .len(),
        3
    );
    let job = queue.claim_one("w").await.unwrap().unwrap();
    assert!(job.retry("again", Some(0)).await.unwrap());
    let job = queue.claim_one("w").await.unwrap().unwrap();
    assert!(job.fail(None).await.unwrap());
    let stream = store.stream("events").unwrap();
    let offset = stream.publish(&1).await.unwrap();
    assert_eq!(stream.read_since(offset - 1, 1).await.unwrap().len(), 1);
    let lock = store.try_lock("lock", "me", 10).await.unwrap().unwrap();
    assert!(lock.release().await.unwrap());
    store
        .schedule(
            "s",
            "@every 1h",
            "work",
            &1,
            alkstore::ScheduleOpts::default(),
        )
        .await
        .unwrap();
    store
        .with_tx(async |tx| tx.notify_tx("channel", &1).await)
        .await
        .unwrap();
}

/// What must happen soon.
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    within(Duration::from_secs(20), what).await
}

pub(crate) async fn within<F: Future>(most: Duration, what: F) -> F::Output {
    tokio::time::timeout(most, what)
        .await
        .unwrap_or_else(|_| panic!("not within {most:?}"))
}

/// Looks until `done` says so.
pub(crate) async fn eventually<F: AsyncFnMut() -> bool>(mut done: F) {
    soon(async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// How many sessions of the database are in a transaction that nobody works on.
pub(crate) fn open_transactions(database: &Database<'_>) -> String {
    database.sql(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND state LIKE 'idle in transaction%'",
    )
}

/// The warnings of this thread's tasks, while it lives.
pub(crate) struct Warnings {
    told: Arc<Mutex<Vec<String>>>,
    _subscriber: tracing::subscriber::DefaultGuard,
}

impl Warnings {
    pub(crate) fn capture() -> Self {
        let told = Arc::default();
        let subscriber = Collecting(Arc::clone(&told));
        let _subscriber = tracing::subscriber::set_default(subscriber);
        Self { told, _subscriber }
    }

    pub(crate) fn count(&self, part: &str) -> usize {
        let told = self.told.lock().unwrap();
        told.iter().filter(|warning| warning.contains(part)).count()
    }
}

struct Collecting(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Collecting {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = String::new();
        event.record(
            &mut |_: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                text.push_str(&format!("{value:?} "));
            },
        );
        self.0.lock().unwrap().push(text);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
