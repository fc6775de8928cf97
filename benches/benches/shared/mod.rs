//! What the benches on a database file have in common.

use alkstore::Store;
use alkstore_sqlite::Sqlite;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A payload of about what a small job or event weighs: an id and a few words.
pub(crate) const PAYLOAD: &str = "a payload of about one hundred bytes, as jobs and events have \
                                  that carry an id and a few words";

/// A fresh database file, open. It is gone when this is dropped.
pub(crate) struct File {
    pub(crate) runtime: Runtime,
    pub(crate) store: Store<Sqlite>,
    _folder: TempDir,
}

impl File {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime starts");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("bench.db");
        let path = path.to_str().expect("the path is text");
        let store = runtime
            .block_on(Store::open(path))
            .expect("the database opens");
        Self {
            runtime,
            store,
            _folder: folder,
        }
    }
}
