//! Calls together come to what the same calls come to one by one, and cost fewer commits.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use alkstore::engine::Open as _;
use alkstore::{EnqueueOpts, JobHandle, Queue, QueueOpts, Store};
use futures::future::{join_all, poll_immediate};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::backend::Kept;
use crate::backoff::Backoff;

const CALLS: usize = 64;

struct Subject {
    store: Store<Sqlite>,
    queue: Queue<Sqlite>,
    _folder: TempDir,
}

impl Subject {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("together.db");
        let engine = Sqlite::open(path.to_str().expect("a path")).await;
        let store = Store::new(engine.expect("it opens"));
        Self {
            queue: queue(&store, "q"),
            store,
            _folder: folder,
        }
    }

    async fn hold(&self) -> Kept {
        let mut backoff = Backoff::new(Duration::from_secs(10));
        let kept = self
            .store
            .engine()
            .inner()
            .keep_writer("testing", &mut backoff);
        kept.await.expect("the writer")
    }

    /// Does something with the connection that writes.
    async fn on_writer<T>(&self, body: impl FnOnce(&mut Connection) -> T) -> T {
        let kept = self.hold().await;
        body(kept.writer().connection.as_mut().expect("it is open"))
    }

    /// Counts the commits from now on.
    async fn commits(&self) -> Arc<AtomicUsize> {
        let count = Arc::new(AtomicUsize::new(0));
        let counting = Arc::clone(&count);
        let hook = move || {
            counting.fetch_add(1, Ordering::SeqCst);
            false
        };
        self.on_writer(|connection| connection.commit_hook(Some(hook)))
            .await
            .expect("a hook");
        count
    }

    /// Makes calls that all find the writer held, so that those after the first go together.
    async fn together<T>(&self, calls: Vec<impl Future<Output = T>>) -> Vec<T> {
        let held = self.hold().await;
        let mut calls: Vec<_> = calls.into_iter().map(Box::pin).collect();
        for call in &mut calls {
            assert!(poll_immediate(call).await.is_none(), "it does not wait");
        }
        drop(held);
        join_all(calls).await
    }

    async fn enqueue(&self, queue: &str) -> Result<i64> {
        let queue = self::queue(&self.store, queue);
        queue.enqueue("x", EnqueueOpts::default()).await
    }

    async fn fill(&self, jobs: usize) {
        let batch = vec!["x"; jobs];
        let ids = self.queue.enqueue_batch(&batch, EnqueueOpts::default());
        ids.await.expect("enqueued");
    }

    /// Makes jobs of some queues fail, of one at once and of another at the commit.
    async fn refuse(&self) {
        let refuse = "CREATE TABLE known (id INTEGER PRIMARY KEY);
             CREATE TABLE owed (
                 id INTEGER REFERENCES known (id) DEFERRABLE INITIALLY DEFERRED);
             CREATE TRIGGER refuse BEFORE INSERT ON __alkstore_jobs WHEN new.queue = 'refused'
             BEGIN SELECT raise(ABORT, 'refused'); END;
             CREATE TRIGGER owe AFTER INSERT ON __alkstore_jobs WHEN new.queue = 'owing'
             BEGIN INSERT INTO owed VALUES (1); END;
             PRAGMA foreign_keys = ON;";
        self.on_writer(|connection| connection.execute_batch(refuse))
            .await
            .expect("triggers");
    }

    /// Which of the enqueues into these queues are done, when they go together.
    async fn done(&self, queues: [&str; 5]) -> Vec<bool> {
        let calls = queues
            .map(|queue| self.enqueue(queue))
            .into_iter()
            .collect();
        let results = self.together(calls).await;
        results.iter().map(Result::is_ok).collect()
    }

    async fn jobs(&self) -> i64 {
        let count = "SELECT count(*) FROM __alkstore_jobs";
        self.on_writer(|connection| connection.query_row(count, [], |row| row.get(0)))
            .await
            .expect("a count")
    }
}

fn queue(store: &Store<Sqlite>, name: &str) -> Queue<Sqlite> {
    store.queue(name, QueueOpts::default()).expect("a queue")
}

/// The first call may have gone before the others.
fn at_most_two(commits: &AtomicUsize) {
    let commits = commits.swap(0, Ordering::SeqCst);
    assert!((1..=2).contains(&commits), "{commits} commits");
}

fn all_of<T>(results: Vec<Result<T>>) -> Vec<T> {
    let all: Result<_> = results.into_iter().collect();
    all.expect("each is done")
}

#[tokio::test]
async fn many_calls_are_two_commits_at_most() {
    let subject = Subject::new().await;
    let stream = subject.store.stream("s").expect("a stream");
    let commits = subject.commits().await;

    let calls = (0..CALLS).map(|_| subject.enqueue("q")).collect();
    let ids = all_of(subject.together(calls).await);
    at_most_two(&commits);
    assert!(ids.is_sorted_by(|one, next| *next == one + 1), "{ids:?}");

    let calls = (0..CALLS).map(|_| stream.publish("x")).collect();
    let offsets = all_of(subject.together(calls).await);
    at_most_two(&commits);
    let in_order: Vec<_> = (1..).take(CALLS).collect();
    assert_eq!(offsets, in_order);

    let calls = (0..CALLS).map(|_| subject.queue.claim_one("w")).collect();
    let claimed = all_of(subject.together(calls).await);
    at_most_two(&commits);
    let claimed: Vec<JobHandle<Sqlite>> = claimed.into_iter().flatten().collect();
    assert!(claimed.iter().map(|job| job.id).eq(ids));

    let acks = claimed.into_iter().map(JobHandle::ack).collect();
    let acked = all_of(subject.together(acks).await);
    at_most_two(&commits);
    assert_eq!(acked, [true; CALLS]);
    assert_eq!(subject.jobs().await, 0);
}

#[tokio::test]
async fn one_that_is_refused_fails_alone() {
    let subject = Subject::new().await;
    subject.refuse().await;
    let done = subject.done(["q", "q", "refused", "q", "r"]).await;
    assert_eq!(done, [true, true, false, true, true]);
    assert_eq!(subject.jobs().await, 4);
}

#[tokio::test]
async fn all_hear_of_a_commit_that_fails_and_nobody_tries_again() {
    let subject = Subject::new().await;
    subject.refuse().await;
    let done = subject.done(["q", "q", "owing", "q", "r"]).await;
    assert_eq!(done, [true, false, false, false, false]);
    assert_eq!(subject.jobs().await, 1);
    // The writer is in order afterwards.
    subject.enqueue("q").await.expect("enqueued");
    assert_eq!(subject.jobs().await, 2);
}

#[tokio::test]
async fn a_dropped_call_takes_nothing_with_it() {
    let subject = Subject::new().await;
    let held = subject.hold().await;
    let mut calls: Vec<_> = (0..9).map(|_| Box::pin(subject.enqueue("q"))).collect();
    for call in &mut calls {
        assert!(poll_immediate(call).await.is_none(), "it does not wait");
    }
    // The one that went first, one in the middle, the last.
    for gone in [8, 4, 0] {
        drop(calls.remove(gone));
    }
    drop(held);
    all_of(join_all(calls).await);
    assert_eq!(subject.jobs().await, 6);
}

#[tokio::test]
async fn claims_and_ends_and_enqueues_go_in_one_commit() {
    let subject = Subject::new().await;
    subject.fill(4).await;
    let mut held = subject.queue.claim_batch("w", 2).await.expect("claimed");
    let (bad, good) = held.pop().zip(held.pop()).expect("two");
    let commits = subject.commits().await;
    let writer = subject.hold().await;
    let first = subject.enqueue("other");
    let (ack, fail) = (good.ack(), bad.fail(Some("broken")));
    let (claim, enqueue) = (subject.queue.claim_batch("w", 9), subject.enqueue("q"));
    let mut calls =
        Box::pin(async { futures::future::join5(first, ack, fail, claim, enqueue).await });
    assert!(poll_immediate(&mut calls).await.is_none());
    drop(writer);
    let (first, acked, failed, claimed, enqueued) = calls.await;
    assert_eq!(commits.load(Ordering::SeqCst), 2);
    first.expect("enqueued");
    assert!(acked.expect("acked") && failed.expect("failed"));
    // The claim finds what was enqueued beside it.
    let claimed: Vec<_> = claimed.expect("claimed").iter().map(|job| job.id).collect();
    assert_eq!(claimed.len(), 3);
    assert_eq!(claimed[2], enqueued.expect("enqueued"));
}

thread_local! {
    /// The length of the log after the last commit, in pages.
    static LOG: Cell<i32> = const { Cell::new(0) };
}

/// How many pages a commit writes; each is a copy and a checksum of 4 KB.
#[tokio::test]
async fn a_call_writes_the_pages_that_it_must() {
    let subject = Subject::new().await;
    subject.fill(3).await;
    let stream = subject.store.stream("s").expect("a stream");
    stream.publish("x").await.expect("published");
    subject
        .on_writer(|connection| {
            connection.wal_hook(Some(|_, pages| {
                LOG.set(pages);
                Ok(())
            }));
        })
        .await;
    let written = |before: i32| LOG.replace(0).saturating_sub(before);
    subject.enqueue("q").await.expect("enqueued");
    let before = LOG.get();

    subject.enqueue("q").await.expect("enqueued");
    assert_eq!(written(before), 2, "the job and its place in line");
    let before = before + 2;
    stream.publish("x").await.expect("published");
    assert_eq!(written(before), 1, "the event");
    let before = before + 1;
    let job = subject.queue.claim_one("w").await.expect("claimed");
    assert_eq!(written(before), 3, "the job, out of line, and its deadline");
    let before = before + 3;
    job.expect("a job").ack().await.expect("acked");
    assert_eq!(written(before), 2, "the job and its deadline");
}
