//! What the benches have in common: each runs on every engine, side by side.

use alkstore::{Engine, Store};
use alkstore_contract_tests::postgres_server::PostgresServer;
use alkstore_postgres::Postgres;
use alkstore_sqlite::Sqlite;
use criterion::Criterion;
use tokio::runtime::Runtime;

/// One engine under a bench, with a fresh database.
pub(crate) struct Subject<'s, E> {
    pub(crate) engine: &'static str,
    pub(crate) runtime: &'s Runtime,
    pub(crate) store: Store<E>,
}

/// A bench on any engine.
pub(crate) trait Bench {
    fn run<E: Engine>(criterion: &mut Criterion, subject: &Subject<'_, E>);
}

/// Runs a bench on SQLite in a temporary file and on a Postgres server of its own.
pub(crate) fn on_each_engine<B: Bench>(criterion: &mut Criterion) {
    let runtime = &tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("bench.db");
    let path = path.to_str().expect("the path is text");
    let store = runtime
        .block_on(Store::<Sqlite>::open(path))
        .expect("the database opens");
    B::run(
        criterion,
        &Subject {
            engine: "sqlite",
            runtime,
            store,
        },
    );

    let database = PostgresServer::shared().create_database();
    let store = runtime.block_on(Store::<Postgres>::open(&database.url()));
    let store = store.expect("the database opens");
    B::run(
        criterion,
        &Subject {
            engine: "postgres",
            runtime,
            store: store.clone(),
        },
    );
    runtime.block_on(store.close());
}
