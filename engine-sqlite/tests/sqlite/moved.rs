//! One store is one database, wherever its name leads later.

use std::path::{Path, PathBuf};
use std::time::Duration;

use alkstore::{EnqueueOpts, Error, QueueOpts, Result, Store};
use alkstore_sqlite::{Sqlite, SqliteOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

use crate::process::{start, succeeded};
use crate::support::{Files, chain};

/// Writes in each way, and returns how much of it is there.
async fn write(store: &Store<Sqlite>) -> Result<usize> {
    let queue = store.queue("q", QueueOpts::default())?;
    queue.enqueue("x", EnqueueOpts::default()).await?;
    store.stream("s")?.publish("x").await?;
    let mut tx = store.begin_tx().await?;
    tx.publish_tx("s", "x").await?;
    tx.commit().await?;
    count(store).await
}

async fn count(store: &Store<Sqlite>) -> Result<usize> {
    Ok(store.stream("s")?.read_since(0, 10).await?.len())
}

fn says_gone<T: std::fmt::Debug>(result: Result<T>) {
    let error = result.expect_err("the file is not there");
    assert!(matches!(error, Error::Database(_)), "{error:?}");
    assert!(!error.is_transient(), "{error:?}");
    assert!(
        chain(&error).contains("removed or replaced"),
        "{}",
        chain(&error)
    );
}

async fn says_gone_everywhere(store: &Store<Sqlite>) {
    for _ in 0..2 {
        let queue = store.queue("q", QueueOpts::default()).expect("a queue");
        says_gone(queue.enqueue("x", EnqueueOpts::default()).await);
        says_gone(queue.claim_one("w").await);
        says_gone(store.stream("s").expect("a stream").publish("x").await);
        says_gone(store.notify("c", "x").await);
        says_gone(store.begin_tx().await);
    }
}

/// In a process of its own, since it moves that to other folders.
pub(crate) async fn move_about(database: &str) {
    let folder = Path::new(database).parent().expect("a folder");
    let [first, second] = ["first", "second"].map(|name| folder.join(name));
    for folder in [&second, &first] {
        std::fs::create_dir(folder).expect("a folder");
        std::env::set_current_dir(folder).expect("moved");
        let store = Store::<Sqlite>::open("app.db").await.expect("it opens");
        store.close().await;
    }
    let own = Store::<Sqlite>::open("app.db").await.expect("it opens");
    let by_url = Store::<Sqlite>::open("sqlite://app.db")
        .await
        .expect("it opens");
    let relative = SqliteConnectOptions::new().filename("app.db");
    let pool = SqlitePoolOptions::new().connect_lazy_with(relative);
    let over_pool = SqliteOptions::new()
        .over_pool(pool)
        .await
        .expect("it opens");
    let over_pool = Store::new(over_pool);
    std::env::set_current_dir(&second).expect("moved");
    assert_eq!(write(&own).await.expect("written"), 2);
    assert_eq!(write(&by_url).await.expect("written"), 4);
    // The pool opens its connections by itself, and in the wrong folder now.
    let error = over_pool.begin_tx().await.expect_err("it is another file");
    assert!(chain(&error).contains("absolute path"), "{}", chain(&error));
    let other = Store::<Sqlite>::open("app.db").await.expect("it opens");
    assert_eq!(count(&other).await.expect("read"), 0);
}

#[tokio::test]
async fn the_working_directory_may_change() {
    let files = Files::new();
    succeeded(vec![start("move", &files.database())]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_symbolic_link_may_be_switched() {
    use std::os::unix::fs::symlink;
    let files = Files::new();
    let [first, second] = ["first", "second"].map(|name| files.path(name));
    for folder in [&first, &second] {
        std::fs::create_dir(folder).expect("a folder");
        let path = folder.join("app.db");
        let path = path.to_str().expect("a path of text");
        Store::<Sqlite>::open(path)
            .await
            .expect("it opens")
            .close()
            .await;
    }
    let current = files.path("current");
    symlink(&first, &current).expect("a link");
    let open = || async {
        let path = current.join("app.db");
        let path = path.to_str().expect("a path of text");
        Store::<Sqlite>::open(path).await.expect("it opens")
    };
    let store = open().await;
    let switched = files.path("switched");
    symlink(&second, &switched).expect("a link");
    std::fs::rename(&switched, &current).expect("switched");
    assert_eq!(write(&store).await.expect("written"), 2);
    assert_eq!(count(&open().await).await.expect("read"), 0);
}

fn with_suffix(path: &str, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{path}{suffix}"))
}

#[tokio::test]
async fn nothing_is_acknowledged_into_a_file_that_was_removed() {
    for suffix in ["", "-wal"] {
        let files = Files::new();
        let store = files.open().await;
        assert_eq!(write(&store).await.expect("written"), 2);
        let mut open = store.begin_tx().await.expect("a transaction");
        open.publish_tx("s", "lost").await.expect("published");
        let removed = with_suffix(&files.database(), suffix);
        std::fs::remove_file(&removed).expect("removed");
        says_gone(open.commit().await);
        if !suffix.is_empty() {
            // The log is looked for now and then only.
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        says_gone_everywhere(&store).await;
        assert!(!removed.exists(), "no new file of that name is made");
    }
}

#[tokio::test]
async fn nothing_is_acknowledged_into_a_file_that_was_replaced() {
    let files = Files::new();
    let store = files.open().await;
    let pool = files.pool().await;
    let engine = SqliteOptions::new().over_pool(pool).await;
    let over_pool = Store::new(engine.expect("it opens"));
    let new = files.path("new.db");
    let other = Store::<Sqlite>::open(new.to_str().expect("text")).await;
    other.expect("it opens").close().await;
    std::fs::rename(&new, files.database()).expect("replaced");
    says_gone_everywhere(&store).await;
    says_gone_everywhere(&over_pool).await;
    assert_eq!(count(&files.open().await).await.expect("read"), 0);
}
