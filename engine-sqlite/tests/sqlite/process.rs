//! Several processes on one file: this test binary, started again.

use std::process::{Child, Command, Stdio};

use alkstore::{EnqueueOpts, QueueOpts, Store};
use alkstore_sqlite::Sqlite;

use crate::support::{Files, PATIENCE};

const ROLE: &str = "ALKSTORE_SQLITE_TEST_ROLE";
const DATABASE: &str = "ALKSTORE_SQLITE_TEST_DATABASE";

/// How many events or jobs one child writes.
const EACH: i64 = 50;

/// Runs this binary again in a role, with as many file handles as are given; whether it
/// succeeded.
pub(crate) fn succeeds_with_handles(role: &str, database: &str, handles: u32) -> bool {
    let script = format!("ulimit -n {handles}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .arg(std::env::current_exe().expect("this binary"));
    run_child(&mut command, role, database)
        .wait()
        .expect("a child")
        .success()
}

/// Starts this binary again, to run [`child`] in a role.
pub(crate) fn start(role: &str, database: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    run_child(&mut command, role, database)
}

fn run_child(command: &mut Command, role: &str, database: &str) -> Child {
    command
        .args([
            "--exact",
            "process::child",
            "--ignored",
            "--test-threads",
            "1",
        ])
        .env(ROLE, role)
        .env(DATABASE, database)
        .stdout(Stdio::null())
        .spawn()
        .expect("a child")
}

pub(crate) fn succeeded(children: Vec<Child>) {
    for mut child in children {
        assert!(child.wait().expect("a child").success());
    }
}

#[tokio::test]
#[ignore = "started by the other tests of this module, in a process of its own"]
async fn child() {
    let role = std::env::var(ROLE).expect("a role");
    let database = std::env::var(DATABASE).expect("a database");
    match role.as_str() {
        "read-only" => return Sqlite::open_as_nobody(&database).await,
        "move" => return crate::moved::move_about(&database).await,
        "exhaust" => return crate::exhausted::exhaust(&database).await,
        _ => {}
    }
    let store = Store::<Sqlite>::open(&database).await.expect("it opens");
    match role.as_str() {
        "enqueue" => {
            let queue = store.queue("q", QueueOpts::default()).expect("a queue");
            queue
                .enqueue("x", EnqueueOpts::default())
                .await
                .expect("enqueued");
        }
        "publish" => {
            let stream = store.stream("s").expect("a stream");
            for number in 0..EACH {
                if number % 5 == 0 {
                    let mut tx = store.begin_tx().await.expect("a transaction");
                    tx.publish_tx("s", &number).await.expect("published");
                    tx.commit().await.expect("committed");
                } else {
                    stream.publish(&number).await.expect("published");
                }
            }
        }
        "claim" => {
            let queue = store.queue("q", QueueOpts::default()).expect("a queue");
            let done = store.stream("done").expect("a stream");
            while let Some(job) = queue.claim_one("w").await.expect("claimed") {
                done.publish(&job.id).await.expect("published");
                assert!(job.ack().await.expect("acked"));
            }
        }
        "notify" => store.notify("c", "x").await.expect("notified"),
        other => panic!("no role {other}"),
    }
    store.close().await;
}

/// What the child does that may not write.
trait AsNobody {
    async fn open_as_nobody(database: &str);
}

impl AsNobody for Sqlite {
    async fn open_as_nobody(database: &str) {
        use alkstore::engine::Open as _;
        let error = Sqlite::open(database).await.expect_err("it may not write");
        assert!(matches!(error, alkstore::Error::Database(_)), "{error:?}");
        assert!(!error.is_transient(), "{error:?}");
        assert!(error.to_string().contains(database), "{error}");
    }
}

#[tokio::test]
async fn a_fresh_file_is_opened_by_many_processes_at_once() {
    for _ in 0..3 {
        let files = Files::new();
        succeeded(
            (0..8)
                .map(|_| start("enqueue", &files.database()))
                .collect(),
        );
        let store = files.open().await;
        let queue = store.queue("q", QueueOpts::default()).expect("a queue");
        assert_eq!(queue.claim_batch("w", 100).await.expect("claimed").len(), 8);
    }
}

#[tokio::test]
async fn offsets_stay_dense_among_processes() {
    let files = Files::new();
    let children = (0..4)
        .map(|_| start("publish", &files.database()))
        .collect();
    let store = files.open().await;
    let stream = store.stream("s").expect("a stream");
    let mut last = 0;
    let all = async {
        while last < 4 * EACH {
            for event in stream.read_since(last, 1000).await.expect("read") {
                assert_eq!(event.offset, last + 1, "nothing is skipped");
                last = event.offset;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(6 * PATIENCE, all)
        .await
        .expect("all events come");
    succeeded(children);
    assert_eq!(stream.read_since(last, 1).await.expect("read"), []);
}

#[tokio::test]
async fn each_job_goes_to_one_process() {
    let files = Files::new();
    let store = files.open().await;
    let queue = store.queue("q", QueueOpts::default()).expect("a queue");
    let jobs = vec!["x"; 200];
    let mut ids = queue
        .enqueue_batch(&jobs, EnqueueOpts::default())
        .await
        .expect("enqueued");
    succeeded((0..4).map(|_| start("claim", &files.database())).collect());
    let done = store
        .stream("done")
        .expect("a stream")
        .read_since(0, 1000)
        .await
        .expect("read");
    let mut done: Vec<i64> = done
        .iter()
        .map(|event| event.payload_as().expect("an id"))
        .collect();
    done.sort_unstable();
    ids.sort_unstable();
    assert_eq!(done, ids);
}

#[tokio::test]
async fn another_process_wakes_who_listens_here() {
    let files = Files::new();
    let store = files.open().await;
    let mut wakes = store.listen("c").await.expect("a receiver");
    let child = start("notify", &files.database());
    assert!(
        wakes
            .recv_timeout(6 * PATIENCE)
            .await
            .expect("open")
            .is_some()
    );
    succeeded(vec![child]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_or_folder_without_the_right_to_write_is_refused() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::os::unix::process::CommandExt as _;
    let files = Files::new();
    files.open().await.close().await;
    let mode = |path: &std::path::Path, mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, permissions).expect("permissions");
    };
    mode(&files.path("app.db"), 0o444);
    mode(files.folder.path(), 0o555);
    // The superuser may write everything, so the child becomes nobody then.
    let superuser = std::fs::metadata(files.database()).expect("the file").uid() == 0;
    for database in [
        files.database(),
        format!("{}/new.db", files.folder.path().display()),
    ] {
        // By this name nobody may start the binary, whatever folders it lies in.
        let mut command = Command::new("/proc/self/exe");
        command
            .args([
                "--exact",
                "process::child",
                "--ignored",
                "--test-threads",
                "1",
            ])
            .env(ROLE, "read-only")
            .env(DATABASE, &database)
            .stdout(Stdio::null());
        if superuser {
            command.uid(65534);
        }
        assert!(command.status().expect("a child").success(), "{database}");
    }
    mode(files.folder.path(), 0o755);
}
