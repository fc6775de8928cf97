//! How long a poll keeps an executor thread, on SQLite: at work, and while another process holds
//! the write lock.
//!
//! ```sh
//! cargo bench -p alkstore-benches --bench executor -- --only polls
//! ```
//!
//! Sections are `polls` and `held`.

#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::print_stdout,
    missing_docs,
    reason = "a program that prints what it measures, and ends where it cannot"
)]
#![forbid(unsafe_code)]

#[path = "../growth/arguments.rs"]
mod arguments;
mod held;
mod polls;
#[path = "../growth/table.rs"]
mod table;
mod timed;

use alkstore::Store;
use alkstore_sqlite::Sqlite;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use arguments::Arguments;

/// How many tasks are at work at once.
const TASKS: usize = 64;

fn main() {
    if held::hold_if_told() {
        return;
    }
    let arguments = Arguments::of_process();
    if !arguments.on("sqlite") {
        return;
    }
    if arguments.wants("polls") {
        polls::polls(&arguments);
    }
    if arguments.wants("held") {
        held::held(&arguments);
    }
}

/// The runtimes that services have, by name.
fn runtimes() -> [(&'static str, Runtime); 2] {
    let two = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let one = Builder::new_current_thread().enable_all().build();
    [
        ("two workers", two.expect("a runtime starts")),
        ("current_thread", one.expect("a runtime starts")),
    ]
}

/// A database in a temporary file, as the engine opens it by default: `synchronous = NORMAL`.
async fn open() -> (TempDir, String, Store<Sqlite>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("executor.db");
    let path = path.to_str().expect("the path is text").to_owned();
    let store = Store::<Sqlite>::open(&path).await;
    (folder, path, store.expect("the database opens"))
}
