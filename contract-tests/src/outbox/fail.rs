use std::fmt;
use std::future::Ready;

use alkstore::JobState;

use super::*;
use crate::Harness;
use crate::support::{Clock, within};

/// A message carries an outbox's options; an `Err` lets it wait by its curve with the
/// error's text.
pub(super) async fn a_delivery_that_fails_is_tried_again_later<H: Harness>(h: &H) {
    let store = h.open().await;
    let (outbox, clock) = (outbox(&store), Clock::new(h, &store));
    let id = outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    assert_outbox_stamps(&job(&outbox, id).await);
    for attempt in 1..=3 {
        let before = clock.now().await;
        let failing = async |_| Err::<(), _>(format!("answer {attempt}: no\0t now"));
        assert!(outbox.run_once("w", failing).await.unwrap());
        let waiting = job(&outbox, id).await;
        assert_eq!(
            (waiting.state, waiting.attempts),
            (JobState::Pending, attempt)
        );
        let text = format!("answer {attempt}: no\u{fffd}t now");
        assert_eq!(waiting.last_error, Some(text));
        let cap = 5 << (attempt - 1);
        let range = before + (cap + 1) / 2..=clock.now().await + cap;
        assert!(
            range.contains(&waiting.run_at),
            "{} is not in {range:?}",
            waiting.run_at
        );
        h.advance(cap);
    }
    let delivery = async |_| Ok::<_, Infallible>(());
    assert!(outbox.run_once("w", delivery).await.unwrap());
    assert_eq!(outbox.get_job(id).await.unwrap(), None);
}

/// A delivery that panics, at its call or later, failed, and the runner goes on.
pub(super) async fn a_panic_is_a_failed_delivery<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = outbox(&store);
    let id = outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let at_the_call = |_| -> Ready<Result<(), Infallible>> { panic!("at the call") };
    assert!(outbox.run_once("w", at_the_call).await.unwrap());
    assert_failed(&job(&outbox, id).await, 1, "at the call");
    h.advance(5);
    // A text that is made at run time makes a panic of another type.
    let when = "later";
    let later = async |_| -> Result<(), Infallible> {
        tokio::task::yield_now().await;
        panic!("a while {when}")
    };
    assert!(outbox.run_once("w", later).await.unwrap());
    assert_failed(&job(&outbox, id).await, 2, "a while later");
    h.advance(10);
    let without_text = async |_| -> Result<(), Infallible> { std::panic::panic_any(7) };
    assert!(outbox.run_once("w", without_text).await.unwrap());
    assert_failed(&job(&outbox, id).await, 3, "");
    h.advance(20);
    assert!(
        outbox
            .run_once("w", async |_| Ok::<_, Infallible>(()))
            .await
            .unwrap()
    );
    assert_eq!(outbox.get_job(id).await.unwrap(), None);
}

/// An error that panics when it is dropped, and when it is shown fails or panics.
struct Unshowable {
    panics: bool,
}

impl fmt::Display for Unshowable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no route")?;
        assert!(!self.panics, "while it was shown");
        Err(fmt::Error)
    }
}

impl Drop for Unshowable {
    fn drop(&mut self) {
        panic!("while it was dropped");
    }
}

/// Whatever a delivery's error does, the message has failed and the runner goes on.
pub(super) async fn an_error_that_cannot_be_shown_is_a_failed_delivery<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = outbox(&store);
    let id = outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    for (attempt, panics) in [(1, false), (2, true)] {
        let failing = async |_| Err::<(), _>(Unshowable { panics });
        assert!(within(h, outbox.run_once("w", failing)).await.unwrap());
        assert_failed(&job(&outbox, id).await, attempt, "no route");
        h.advance(10);
    }
    assert!(
        outbox
            .run_once("w", async |_| Ok::<_, Infallible>(()))
            .await
            .unwrap()
    );
}

/// A panic's payload that panics when it is dropped, with another one of its kind.
struct Persistent;

impl Drop for Persistent {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::panic_any(Self);
        }
    }
}

/// The payload of a panic is the application's, too: dropping it does no harm.
pub(super) async fn a_panic_whose_payload_panics_is_a_failed_delivery<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = outbox(&store);
    let id = outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    let failing = async |_| -> Result<(), Infallible> { std::panic::panic_any(Persistent) };
    assert!(within(h, outbox.run_once("w", failing)).await.unwrap());
    assert_failed(&job(&outbox, id).await, 1, "");
}

#[track_caller]
fn assert_failed(job: &Job, attempts: i64, text: &str) {
    assert_eq!((job.state, job.attempts), (JobState::Pending, attempts));
    let error = job
        .last_error
        .as_deref()
        .expect("a failed delivery leaves an error");
    assert!(error.contains(text), "{error:?}");
}

/// The fifth failure is the last: the message is dead with its error.
pub(super) async fn a_message_dies_after_five_attempts<H: Harness>(h: &H) {
    let store = h.open().await;
    let outbox = outbox(&store);
    let id = outbox.enqueue(&1, EnqueueOpts::default()).await.unwrap();
    for attempt in 1..=5 {
        assert_eq!(job(&outbox, id).await.state, JobState::Pending);
        let failing = async |_| Err::<(), _>(format!("failure {attempt}"));
        assert!(outbox.run_once("w", failing).await.unwrap());
        h.advance(5 << (attempt - 1));
    }
    let dead = job(&outbox, id).await;
    assert_eq!((dead.state, dead.attempts), (JobState::Dead, 5));
    assert_eq!(dead.last_error.as_deref(), Some("failure 5"));
    assert!(dead.died_at.is_some());
    assert!(!outbox.run_once("w", unreachable_delivery).await.unwrap());
}
