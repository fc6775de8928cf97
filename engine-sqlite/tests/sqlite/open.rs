//! Opening: what it refuses, and what it leaves alone.

use std::time::{Duration, Instant};

use alkstore::engine::Open as _;
use alkstore::{EnqueueOpts, Error, QueueOpts, Store};
use alkstore_sqlite::{Sqlite, SqliteOptions, Synchronous};
use sqlx::Executor as _;
use sqlx::sqlite::SqlitePoolOptions;

use crate::support::{Files, chain};

async fn refused(target: &str) -> String {
    let started = Instant::now();
    let error = Sqlite::open(target).await.expect_err("it does not open");
    assert!(matches!(error, Error::Database(_)), "{error:?}");
    assert!(!error.is_transient(), "{error:?}");
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "it is refused at once"
    );
    chain(&error)
}

#[tokio::test]
async fn what_is_no_database_is_refused_by_its_path() {
    let files = Files::new();
    let text = files.path("notes.txt");
    std::fs::write(
        &text,
        "no database at all, but longer than a header of one hundred bytes\n",
    )
    .expect("a text file");
    let missing = files.path("missing/app.db");
    for (path, why) in [
        (text.as_path(), "not a SQLite database"),
        (files.folder.path(), "it is a folder"),
        (missing.as_path(), "does not exist"),
    ] {
        let path = path.to_str().expect("a path of text");
        let message = refused(path).await;
        assert!(message.contains(path), "{message}");
        assert!(message.contains(why), "{message}");
    }
    let kept = std::fs::read_to_string(&text).expect("the text file");
    assert!(kept.starts_with("no database at all"));
    assert!(
        !missing.exists() && !files.path("missing").exists(),
        "no folder is made"
    );
}

#[tokio::test]
async fn a_database_that_cannot_be_written_is_refused() {
    let files = Files::new();
    files.open().await.close().await;
    let message = refused(&format!("sqlite://{}?mode=ro", files.database())).await;
    assert!(message.contains("reading only"), "{message}");
    assert!(message.contains(&files.database()), "{message}");
}

#[tokio::test]
async fn a_url_that_says_so_creates_no_file() {
    let files = Files::new();
    let message = refused(&format!("sqlite://{}?mode=rw", files.database())).await;
    assert!(message.contains(&files.database()), "{message}");
    assert!(message.contains("the file does not exist"), "{message}");
    let missing = files.path("missing/app.db");
    let message = refused(&format!("sqlite://{}?mode=rw", missing.display())).await;
    assert!(message.contains("its folder"), "{message}");
    assert!(!files.path("app.db").exists());
    for target in [
        "sqlite://{}",
        "sqlite:{}",
        "SQLITE:{}",
        "Sqlite://{}?mode=rwc",
        "sqlite://{}?mode=rwc&cache=private",
        "{}",
    ] {
        let target = target.replace("{}", &files.database());
        let engine = Sqlite::open(&target).await.expect("it opens");
        assert!(files.path("app.db").exists());
        Store::new(engine).close().await;
        std::fs::remove_file(files.database()).expect("the file is removed");
    }
}

#[tokio::test]
async fn a_target_that_means_nothing_is_an_invalid_argument() {
    for (target, why) in [
        ("", "blank"),
        (" ", "blank"),
        ("sqlite:", "names no file"),
        ("sqlite://?mode=rwc", "names no file"),
        ("sqlite://app.db?mode=sideways", "sideways"),
        ("sqlite://app.db?mod=rwc", "mod"),
        ("sqlite://app.db?cache=shared", "`cache=shared`"),
        ("sqlite://app.db?immutable=1", "`immutable=1`"),
        ("app.db?mode=rwc", "sqlite://app.db?mode=rwc"),
        ("?mod=rwc", "a path takes no parameters"),
        ("file:x.db?mode=rwc", "sqlite://app.db?mode=rwc"),
        ("sqlite:file:x.db", "sqlite://app.db"),
        ("sqlite3:x", "`sqlite3:` is not a scheme"),
        (
            "postgres://app@localhost/app",
            "`postgres:` is not a scheme",
        ),
    ] {
        let error = Sqlite::open(target).await.expect_err("it does not open");
        assert!(
            matches!(error, Error::InvalidArgument { .. }),
            "{target}: {error:?}"
        );
        assert!(error.to_string().contains(why), "{target}: {error}");
    }
}

#[tokio::test]
async fn a_wrong_setting_makes_no_database() {
    let folder = std::fs::read_dir(".").expect("a folder").count();
    let drivers = alkstore::Drivers::new().with::<Sqlite>();
    for target in ["", " ", "host=127.0.0.1 user=app", "app", "not set"] {
        let error = drivers.open(target).await.map(drop).expect_err("refused");
        assert!(
            matches!(error, Error::InvalidArgument { .. }),
            "{target}: {error:?}"
        );
    }
    assert_eq!(std::fs::read_dir(".").expect("a folder").count(), folder);
}

#[tokio::test]
async fn a_pool_may_name_its_file_by_a_uri() {
    let files = Files::new();
    for uri in ["file:{}?mode=rwc", "file:{}"] {
        let uri = uri.replace("{}", &files.database());
        let options = sqlx::sqlite::SqliteConnectOptions::new()
            .filename(&uri)
            .create_if_missing(true);
        let pool = SqlitePoolOptions::new().connect_with(options).await;
        let engine = SqliteOptions::new().over_pool(pool.expect("a pool")).await;
        let store = Store::new(engine.expect("it opens"));
        let mut tx = store.begin_tx().await.expect("a transaction");
        tx.publish_tx("s", "x").await.expect("published");
        tx.commit().await.expect("committed");
        let events = store.stream("s").expect("a stream").read_since(0, 9).await;
        assert!(!events.expect("read").is_empty());
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_nothing_changes() {
    let files = Files::new();
    files.open().await.close().await;
    let pool = files.pool().await;
    let newer = "UPDATE __alkstore_meta SET value = 999 WHERE key = 'schema_version'";
    pool.execute(newer).await.expect("a newer version");
    pool.execute("PRAGMA journal_mode = DELETE")
        .await
        .expect("another mode");
    pool.close().await;
    let before = std::fs::read(files.database()).expect("the file");
    let message = refused(&files.database()).await;
    assert!(
        message.contains("999") && message.contains("versions up to 1"),
        "{message}"
    );
    assert!(before == std::fs::read(files.database()).expect("the file"));
}

#[tokio::test]
async fn the_mode_is_wal_and_the_application_keeps_its_own_marks() {
    let files = Files::new();
    let pool = files.pool().await;
    pool.execute("PRAGMA user_version = 41")
        .await
        .expect("a user version");
    pool.execute("PRAGMA application_id = 42")
        .await
        .expect("an application id");
    for (synchronous, number) in [(Synchronous::Normal, 1), (Synchronous::Full, 2)] {
        let engine = SqliteOptions::new().synchronous(synchronous);
        let engine = engine.open(&files.database()).await.expect("it opens");
        let (mode, level): (String, i64) = (
            pragma(engine.pool(), "journal_mode").await,
            pragma(engine.pool(), "synchronous").await,
        );
        assert_eq!((mode.as_str(), level), ("wal", number));
        let limit: i64 = pragma(engine.pool(), "journal_size_limit").await;
        assert_eq!(limit, 64 << 20);
        Store::new(engine).close().await;
    }
    assert_eq!(pragma::<i64>(&pool, "user_version").await, 41);
    assert_eq!(pragma::<i64>(&pool, "application_id").await, 42);
}

async fn pragma<T>(pool: &sqlx::SqlitePool, name: &str) -> T
where
    T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite> + Send + Unpin,
{
    let sql = sqlx::AssertSqlSafe(format!("PRAGMA {name}"));
    sqlx::query_scalar(sql)
        .fetch_one(pool)
        .await
        .expect("a pragma")
}

#[tokio::test]
async fn an_application_pool_is_used_and_stays_open() {
    let files = Files::new();
    let pool = files.pool().await;
    let engine = SqliteOptions::new()
        .over_pool(pool.clone())
        .await
        .expect("it opens");
    let store = Store::new(engine);
    let queue = store.queue("mail", QueueOpts::default()).expect("a queue");
    let id = queue
        .enqueue("hello", EnqueueOpts::default())
        .await
        .expect("enqueued");
    let mut tx = store.begin_tx().await.expect("a transaction");
    assert!(tx.get_job_tx("mail", id).await.expect("read").is_some());
    tx.commit().await.expect("committed");
    store.close().await;
    assert!(!pool.is_closed());
    pool.execute("SELECT 1").await.expect("the pool works");
}

#[tokio::test]
async fn a_private_database_in_memory_is_refused_with_advice() {
    for url in ["sqlite::memory:", "sqlite://x?mode=memory"] {
        let pool = SqlitePoolOptions::new().connect(url).await.expect("a pool");
        let error = SqliteOptions::new()
            .over_pool(pool)
            .await
            .expect_err("it is refused");
        assert!(
            matches!(
                error,
                Error::InvalidArgument {
                    argument: "pool",
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(error.to_string().contains("vfs=memdb"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fresh_file_is_opened_by_many_at_once() {
    for _ in 0..5 {
        let files = Files::new();
        let opens: Vec<_> = (0..16)
            .map(|_| {
                let path = files.database();
                tokio::spawn(async move { Store::<Sqlite>::open(&path).await })
            })
            .collect();
        for open in opens {
            let store = open.await.expect("no panic").expect("it opens");
            let queue = store.queue("q", QueueOpts::default()).expect("a queue");
            queue
                .enqueue("x", EnqueueOpts::default())
                .await
                .expect("enqueued");
        }
        let store = files.open().await;
        let queue = store.queue("q", QueueOpts::default()).expect("a queue");
        assert_eq!(
            queue.claim_batch("w", 100).await.expect("claimed").len(),
            16
        );
    }
}

#[tokio::test]
async fn a_closed_engine_says_so_and_closes_twice() {
    use alkstore::engine::{At, Backend as _, Notify as _, Queues as _, Topic};
    let files = Files::new();
    let engine = Sqlite::open(&files.database()).await.expect("it opens");
    let mut wakes = engine.listen(Topic::queue("q")).await.expect("a receiver");
    engine.close().await;
    engine.close().await;
    assert!(wakes.recv().await.is_none());
    for error in [
        engine.sweep_jobs("q").await.expect_err("closed"),
        engine.find_job(At::Auto, "q", 1).await.expect_err("closed"),
        engine.begin().await.expect_err("closed"),
    ] {
        assert!(
            chain(&error).contains("the store is closed"),
            "{}",
            chain(&error)
        );
    }
}
