//! Transactions that end behind their owner's back, and ends without a runtime.

use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use alkstore::{EnqueueOpts, Error, QueueOpts, Result, Store, Tx};
use alkstore_sqlite::{Sqlite, SqliteOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Connection as _, Executor as _, SqlitePool};
use tokio::runtime::{Builder, Runtime};

use crate::support::{Files, PATIENCE, chain, polled};

const PLAIN: fn() -> EnqueueOpts = EnqueueOpts::default;

/// Statements of an application that end its transaction.
const ENDS: [&str; 8] = [
    "INSERT OR ROLLBACK INTO business VALUES ('taken')",
    "INSERT INTO business VALUES ('refused')",
    "ROLLBACK",
    "COMMIT",
    "COMMIT; BEGIN",
    "COMMIT; BEGIN IMMEDIATE; INSERT INTO business VALUES ('other')",
    "ROLLBACK; BEGIN IMMEDIATE; INSERT INTO business VALUES ('other')",
    "RELEASE no_such_savepoint; ROLLBACK",
];

async fn business(store: &Store<Sqlite>) {
    let tables = "CREATE TABLE business (key TEXT PRIMARY KEY);
        INSERT INTO business VALUES ('taken');
        CREATE TRIGGER refuse BEFORE INSERT ON business WHEN new.key = 'refused'
        BEGIN SELECT raise(ROLLBACK, 'refused'); END";
    let pool = store.engine().pool();
    pool.execute(tables).await.expect("tables");
}

async fn write(tx: &mut Tx<Sqlite>) {
    tx.enqueue_tx("q", PLAIN(), "x").await.expect("enqueued");
    tx.publish_tx("s", "x").await.expect("published");
    let row = "INSERT INTO business VALUES ('mine')";
    tx.connection().execute(row).await.expect("inserted");
}

fn says_gone<T: std::fmt::Debug>(result: Result<T>) {
    let error = result.expect_err("the transaction is gone");
    assert!(matches!(error, Error::Database(_)), "{error:?}");
    assert!(
        chain(&error).contains("has ended already"),
        "{}",
        chain(&error)
    );
}

/// Every operation of a transaction that has ended says so, one after another.
async fn says_gone_everywhere(tx: &mut Tx<Sqlite>) {
    for _ in 0..2 {
        says_gone(tx.enqueue_tx("q", PLAIN(), "ghost").await);
        says_gone(tx.publish_tx("s", "ghost").await);
        says_gone(tx.notify_tx("c", "ghost").await);
        says_gone(tx.save_offset_tx("s", "consumer", 1).await);
        says_gone(tx.get_job_tx("q", 1).await);
        says_gone(tx.get_offset_tx("s", "consumer").await);
        says_gone(tx.read_since_tx("s", 0, 1).await);
        // Nor does a business write commit by itself.
        let ghost = "INSERT INTO business VALUES ('ghost')";
        tx.connection().execute(ghost).await.ok();
    }
}

async fn nothing_remains(store: &Store<Sqlite>) {
    let counts = "SELECT (SELECT count(*) FROM __alkstore_jobs)
        + (SELECT count(*) FROM __alkstore_events) + (SELECT count(*) FROM __alkstore_offsets)
        + (SELECT count(*) FROM business) - 1";
    let count: i64 = sqlx::query_scalar(counts)
        .fetch_one(store.engine().pool())
        .await
        .expect("a count");
    assert_eq!(count, 0);
}

async fn the_next_one_works(store: &Store<Sqlite>) {
    for _ in 0..3 {
        let mut tx = store.begin_tx().await.expect("a transaction");
        write(&mut tx).await;
        tx.rollback().await.expect("rolled back");
        let mut tx = store.begin_tx().await.expect("a transaction");
        tx.notify_tx("c", "x").await.expect("notified");
        tx.commit().await.expect("committed");
    }
}

async fn ends_are_noticed(store: Store<Sqlite>) {
    business(&store).await;
    for end in ENDS {
        for commit in [true, false] {
            let mut tx = store.begin_tx().await.expect("a transaction");
            write(&mut tx).await;
            // Each statement by itself: a script ends at the first one that fails.
            for statement in end.split("; ") {
                tx.connection().execute(statement).await.ok();
            }
            says_gone_everywhere(&mut tx).await;
            if commit {
                says_gone(tx.commit().await);
            } else {
                tx.rollback().await.expect("nothing is left to roll back");
            }
            nothing_remains(&store).await;
            the_next_one_works(&store).await;
        }
        let mut tx = store.begin_tx().await.expect("a transaction");
        write(&mut tx).await;
        tx.connection().execute(end).await.ok();
        drop(tx);
        the_next_one_works(&store).await;
        nothing_remains(&store).await;
    }
}

async fn over_a_pool_of_one(files: &Files) -> (Store<Sqlite>, SqlitePool) {
    let pool = files.pool().await;
    let engine = SqliteOptions::new().over_pool(pool.clone()).await;
    (Store::new(engine.expect("it opens")), pool)
}

#[tokio::test]
async fn an_end_by_sql_is_noticed() {
    ends_are_noticed(Files::new().open().await).await;
}

#[tokio::test]
async fn an_end_by_sql_is_noticed_over_an_application_pool() {
    let files = Files::new();
    ends_are_noticed(over_a_pool_of_one(&files).await.0).await;
}

#[tokio::test]
async fn an_end_by_sql_is_noticed_in_memory() {
    let shared = SqliteConnectOptions::new().filename("file:/ended?vfs=memdb");
    let pool = SqlitePoolOptions::new().connect_with(shared).await;
    let engine = SqliteOptions::new().over_pool(pool.expect("a pool")).await;
    ends_are_noticed(Store::new(engine.expect("it opens"))).await;
}

#[tokio::test]
async fn an_operation_of_the_library_that_ends_the_transaction_is_noticed() {
    let files = Files::new();
    let store = files.open().await;
    business(&store).await;
    let trigger = "CREATE TRIGGER full BEFORE INSERT ON __alkstore_jobs WHEN new.queue = 'full'
        BEGIN SELECT raise(ROLLBACK, 'full'); END";
    store
        .engine()
        .pool()
        .execute(trigger)
        .await
        .expect("a trigger");
    let mut tx = store.begin_tx().await.expect("a transaction");
    write(&mut tx).await;
    let error = tx
        .enqueue_tx("full", PLAIN(), "x")
        .await
        .expect_err("it fails");
    assert!(chain(&error).contains("full"), "{}", chain(&error));
    says_gone_everywhere(&mut tx).await;
    says_gone(tx.commit().await);
    nothing_remains(&store).await;
    the_next_one_works(&store).await;
}

/// A page limit fills the database as a full disk does.
#[tokio::test]
async fn a_full_database_ends_the_transaction_whole() {
    let files = Files::new();
    let store = files.open().await;
    business(&store).await;
    let mut tx = store.begin_tx().await.expect("a transaction");
    let limit = "PRAGMA max_page_count = 60";
    tx.connection().execute(limit).await.expect("a limit");
    let large = "x".repeat(20_000);
    let mut full = None;
    for _ in 0..20 {
        if let Err(error) = tx.enqueue_tx("q", PLAIN(), &large).await {
            full = Some(error);
            break;
        }
    }
    let full = full.expect("there is no space left");
    assert!(chain(&full).contains("no space left"), "{}", chain(&full));
    // SQLite may have rolled back the statement alone, or everything.
    match tx.publish_tx("s", "x").await {
        Ok(_) => tx.rollback().await.expect("rolled back"),
        Err(_) => says_gone(tx.commit().await),
    }
    nothing_remains(&store).await;
}

#[tokio::test]
async fn a_statement_left_in_the_queue_leaves_no_ghost() {
    let files = Files::new();
    let store = files.open().await;
    business(&store).await;
    for polls in 1..4 {
        let mut tx = store.begin_tx().await.expect("a transaction");
        write(&mut tx).await;
        // Dropped before it is answered, it still runs: before whatever comes next.
        let ends = "ROLLBACK; INSERT INTO business VALUES ('ghost')";
        drop(polled(polls, tx.connection().execute(ends)).await);
        tx.publish_tx("s", "ghost").await.ok();
        tx.commit().await.expect_err("the transaction is gone");
        nothing_remains(&store).await;
        the_next_one_works(&store).await;
    }
}

#[tokio::test]
async fn nested_transactions_of_the_driver_work_and_a_forgotten_one_is_refused() {
    let files = Files::new();
    let store = files.open().await;
    business(&store).await;
    let mut tx = store.begin_tx().await.expect("a transaction");
    for (key, commit) in [("one", true), ("two", false)] {
        let mut nested = tx.connection().begin().await.expect("a savepoint");
        let row = sqlx::query("INSERT INTO business VALUES (?)").bind(key);
        row.execute(&mut *nested).await.expect("inserted");
        if commit {
            nested.commit().await.expect("released");
        } else {
            drop(nested);
        }
    }
    tx.commit().await.expect("committed");
    let mut tx = store.begin_tx().await.expect("a transaction");
    let nested = tx.connection().begin().await.expect("a savepoint");
    std::mem::forget(nested);
    let error = tx.commit().await.expect_err("it is not committed");
    assert!(chain(&error).contains("nested"), "{}", chain(&error));
    let keys = "SELECT group_concat(key) FROM business";
    let keys: String = sqlx::query_scalar(keys)
        .fetch_one(store.engine().pool())
        .await
        .expect("keys");
    assert_eq!(keys, "taken,one");
    store.begin_tx().await.expect("a transaction");
}

#[tokio::test]
async fn a_failed_batch_tells_the_application_that_its_transaction_is_gone() {
    use alkstore::engine::{At, NewEvent, Streams as _};
    let files = Files::new();
    let store = files.open().await;
    let pool = files.pool().await;
    let trigger = "CREATE TRIGGER full BEFORE INSERT ON __alkstore_events WHEN new.key = 'full'
        BEGIN SELECT raise(ROLLBACK, 'full'); END";
    pool.execute(trigger).await.expect("a trigger");
    let event = |key| NewEvent {
        stream: "s",
        key: Some(key),
        payload: b"1",
    };
    let mut tx = pool.begin().await.expect("a transaction");
    let events = [event("kept"), event("full")];
    let failed = store.engine().append_events(At::In(&mut tx), &events).await;
    let error = failed.expect_err("it fails");
    assert!(
        chain(&error).contains("rolled back the whole transaction"),
        "{}",
        chain(&error)
    );
}

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

/// Runs a future by this thread alone.
fn without_runtime<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn enqueue(runtime: &Runtime, store: &Store<Sqlite>) {
    let queue = store.queue("q", QueueOpts::default()).expect("a queue");
    let enqueued = runtime
        .block_on(async { tokio::time::timeout(PATIENCE, queue.enqueue("x", PLAIN())).await });
    enqueued.expect("in time").expect("the writer is free");
}

#[test]
fn a_tx_ends_without_the_runtime_that_began_it() {
    let files = Files::new();
    let (first, second) = (runtime(), runtime());
    let own = first.block_on(files.open());
    let (over_pool, _pool) = first.block_on(over_a_pool_of_one(&files));
    for store in [own, over_pool] {
        for _ in 0..3 {
            // Dropped by `?` at the end of what the first runtime runs.
            first.block_on(async {
                let mut tx = store.begin_tx().await.expect("a transaction");
                tx.publish_tx("s", "x").await.expect("published");
            });
            enqueue(&second, &store);
            let mut tx = first.block_on(store.begin_tx()).expect("a transaction");
            second.block_on(tx.publish_tx("s", "x")).expect("published");
            second.block_on(tx.commit()).expect("committed");
            let tx = first.block_on(store.begin_tx()).expect("a transaction");
            second.block_on(tx.rollback()).expect("rolled back");
            let tx = first.block_on(store.begin_tx()).expect("a transaction");
            // No runtime at all.
            without_runtime(tx.commit()).expect("committed");
            drop(first.block_on(store.begin_tx()).expect("a transaction"));
            enqueue(&second, &store);
        }
    }
}

#[test]
fn a_tx_ends_after_its_runtime() {
    let files = Files::new();
    let second = runtime();
    let store = second.block_on(files.open());
    for commit in [true, false] {
        let first = runtime();
        let tx = first.block_on(store.begin_tx()).expect("a transaction");
        drop(first);
        if commit {
            second.block_on(tx.commit()).expect("committed");
        } else {
            drop(tx);
        }
        enqueue(&second, &store);
    }
}

/// A small file system of the test's own, where the system lets it be mounted.
struct Disk<'f>(&'f Path);

impl<'f> Disk<'f> {
    fn mount(path: &'f Path, size: &str) -> Option<Self> {
        let mut mount = Command::new("mount");
        let size = format!("size={size}");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then_some(Self(path))
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.0).status().ok();
    }
}

#[tokio::test]
async fn a_full_disk_at_the_commit_leaves_a_store_that_works() {
    let files = Files::new();
    let Some(_disk) = Disk::mount(files.folder.path(), "2m") else {
        return;
    };
    let store = files.open().await;
    business(&store).await;
    let filler = files.path("filler");
    let mut tx = store.begin_tx().await.expect("a transaction");
    let large = "x".repeat(200_000);
    tx.enqueue_tx("q", PLAIN(), &large).await.expect("enqueued");
    // What is left of the disk.
    let mut size = 4 << 20;
    while size > 0 {
        let filling = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&filler);
        let mut file = filling.expect("a file");
        if std::io::Write::write_all(&mut file, &vec![0; size]).is_err() {
            size /= 2;
        }
    }
    let error = tx.commit().await.expect_err("the disk is full");
    assert!(chain(&error).contains("no space left"), "{}", chain(&error));
    std::fs::remove_file(filler).expect("space");
    nothing_remains(&store).await;
    the_next_one_works(&store).await;
}
