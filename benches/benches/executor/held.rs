//! Another process holds the write lock: this program, started again.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use alkstore::{EnqueueOpts, QueueOpts, Store};
use alkstore_benches::PAYLOAD;
use alkstore_sqlite::Sqlite;
use rusqlite::Connection;

use crate::arguments::Arguments;
use crate::polls::millis;
use crate::timed::{Timed, Took};
use crate::{TASKS, open, runtimes, table};

/// The database that a child holds, and for how many milliseconds.
const DATABASE: &str = "ALKSTORE_EXECUTOR_HOLD";
const MILLIS: &str = "ALKSTORE_EXECUTOR_MILLIS";

/// How many tasks read meanwhile.
const READERS: usize = 2;

/// Measures on each runtime.
pub(crate) fn held(arguments: &Arguments) {
    table::begin(
        "The write lock held by another process: 64 tasks that write, 2 that read",
        &[
            "runtime",
            "held, ms",
            "longest poll, ms, without waits for a processor",
            "with them",
            "largest delay of a 1 ms tick, ms",
            "reads meanwhile",
            "writes before the release",
            "writes landed",
            "the last after, ms",
        ],
    );
    let time = Duration::from_millis(arguments.length.pick(100, 300, 2000));
    for (name, runtime) in runtimes() {
        eprintln!("{name}: the lock is held");
        let cells = runtime.block_on(measure(time));
        let mut row = vec![name.to_owned(), time.as_millis().to_string()];
        row.extend(cells);
        table::row(&row);
    }
}

/// What the tasks share.
struct Scene {
    store: Store<Sqlite>,
    over: AtomicBool,
}

async fn measure(time: Duration) -> [String; 7] {
    let (_folder, path, store) = open().await;
    let queue = store.queue("mail", QueueOpts::default());
    let queue = queue.expect("the name is valid");
    let job = queue.enqueue(PAYLOAD, EnqueueOpts::default()).await;
    let job = job.expect("a job is there to be read");
    let stream = store.stream("users").expect("the name is valid");
    let event = stream.publish(PAYLOAD).await;
    event.expect("an event is there to be read");

    let mut holder = hold(&path, time);
    let over = AtomicBool::new(false);
    let scene = Arc::new(Scene { store, over });
    let ticker = tokio::spawn(Timed::new(tick(Arc::clone(&scene))));
    let readers = [(); READERS].map(|()| tokio::spawn(Timed::new(read(Arc::clone(&scene), job))));
    let begin = Instant::now();
    let writers: Vec<_> = (0..TASKS)
        .map(|_| tokio::spawn(Timed::new(write(Arc::clone(&scene)))))
        .collect();
    let (mut all, mut ends) = (Vec::new(), Vec::new());
    for writer in writers {
        let (end, polls) = writer.await.expect("no task panics");
        all.extend(polls);
        ends.push(end);
    }
    scene.over.store(true, Ordering::SeqCst);
    let mut reads = 0;
    for reader in readers {
        let (done, polls) = reader.await.expect("no task panics");
        all.extend(polls);
        reads += done;
    }
    let (delay, polls) = ticker.await.expect("no task panics");
    all.extend(polls);
    let ended = holder.wait().expect("the holder ends");
    assert!(ended.success(), "the holder ends as it should");
    let longest = |of: fn(&Took) -> Duration| all.iter().map(of).max().unwrap_or_default();
    let last = ends.iter().max().expect("there are writers");
    // The holder began a moment before the writers.
    let early = ends.iter().filter(|end| **end < begin + time * 9 / 10);
    let early = early.count();
    let landed = stream.read_since(1, 1000).await.expect("events are read");
    scene.store.close().await;
    [
        millis(longest(|poll| poll.own)),
        millis(longest(|poll| poll.whole)),
        millis(delay),
        reads.to_string(),
        early.to_string(),
        landed.len().to_string(),
        millis(last.saturating_duration_since(begin + time)),
    ]
}

/// Publishes once, and says when that was done.
async fn write(scene: Arc<Scene>) -> Instant {
    let stream = scene.store.stream("users").expect("the name is valid");
    let landed = stream.publish(PAYLOAD).await;
    landed.expect("it lands when the lock is free");
    Instant::now()
}

/// Reads for as long as the writers wait, and says how often.
async fn read(scene: Arc<Scene>, job: i64) -> usize {
    let queue = scene.store.queue("mail", QueueOpts::default());
    let queue = queue.expect("the name is valid");
    let stream = scene.store.stream("users").expect("the name is valid");
    let mut reads = 0;
    while !scene.over.load(Ordering::SeqCst) {
        let events = stream.read_since(0, 10).await;
        assert!(!events.expect("events are read").is_empty(), "one is there");
        let found = queue.get_job(job).await;
        assert!(found.expect("a job is read").is_some(), "it is there");
        reads += 2;
        tokio::task::yield_now().await;
    }
    reads
}

/// Ticks each millisecond, and says how late the latest tick was.
async fn tick(scene: Arc<Scene>) -> Duration {
    const EACH: Duration = Duration::from_millis(1);
    let mut latest = Duration::ZERO;
    while !scene.over.load(Ordering::SeqCst) {
        let begin = Instant::now();
        tokio::time::sleep(EACH).await;
        latest = latest.max(begin.elapsed().saturating_sub(EACH));
    }
    latest
}

/// Starts a process that holds the write lock, and waits until it does.
fn hold(path: &str, time: Duration) -> Child {
    let program = std::env::current_exe().expect("this program has a file");
    let mut child = Command::new(program)
        .env(DATABASE, path)
        .env(MILLIS, time.as_millis().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child starts");
    let says = child.stdout.as_mut().expect("its output is a pipe");
    let mut line = String::new();
    BufReader::new(says)
        .read_line(&mut line)
        .expect("it says so");
    assert_eq!(line.trim(), "held", "the child has the lock");
    child
}

/// Holds the write lock, if this process is the one that is to.
pub(crate) fn hold_if_told() -> bool {
    let Ok(path) = std::env::var(DATABASE) else {
        return false;
    };
    let time = std::env::var(MILLIS)
        .ok()
        .and_then(|time| time.parse().ok());
    let connection = Connection::open(path).expect("the database opens");
    connection
        .execute_batch("BEGIN IMMEDIATE")
        .expect("the lock is free");
    println!("held");
    std::thread::sleep(Duration::from_millis(
        time.expect("it is told for how long"),
    ));
    connection
        .execute_batch("ROLLBACK")
        .expect("it is released");
    true
}
