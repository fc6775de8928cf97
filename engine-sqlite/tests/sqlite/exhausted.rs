//! What a process hears that has run out of file handles.

use std::fs::File;
use std::time::Duration;

use alkstore::Store;
use alkstore_sqlite::{Sqlite, SqliteOptions};

use crate::process::succeeds_with_handles;
use crate::support::{Files, PATIENCE};

fn has_file_watcher() -> bool {
    let handles = std::fs::read_dir("/proc/self/fd").expect("the handles");
    let links = handles.filter_map(|handle| std::fs::read_link(handle.ok()?.path()).ok());
    links
        .into_iter()
        .any(|link| link.to_string_lossy().contains("inotify"))
}

/// In a process of its own, with few handles.
pub(crate) async fn exhaust(database: &str) {
    let options = SqliteOptions::new().reread_interval(Duration::from_millis(20));
    let here = Store::new(options.open(database).await.expect("it opens"));
    let there = Store::<Sqlite>::open(database).await.expect("it opens");
    // Both have their connections for what follows.
    here.stream("s")
        .expect("a stream")
        .read_since(0, 1)
        .await
        .expect("read");
    there.notify("c", "x").await.expect("notified");
    let mut handles: Vec<File> = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        handles.push(file);
    }
    let mut wakes = loop {
        match here.listen("c").await {
            Ok(wakes) => break wakes,
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
        // One at a time: the connection has room before the file watcher has.
        handles.pop().expect("listening works with all handles");
    };
    there.notify("c", "x").await.expect("notified");
    let woken = wakes.recv_timeout(PATIENCE).await;
    assert!(woken.expect("open").is_some(), "it polls meanwhile");
    drop(handles);
    let watched = async {
        while !has_file_watcher() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let watched = tokio::time::timeout(PATIENCE, watched).await;
    watched.expect("it watches the file once there is room");
    there.notify("c", "x").await.expect("notified");
    assert!(wakes.recv_timeout(PATIENCE).await.expect("open").is_some());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn listening_without_file_handles_fails_or_polls() {
    let files = Files::new();
    assert!(succeeds_with_handles("exhaust", &files.database(), 100));
}
