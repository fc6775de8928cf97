use alkstore::{EnqueueOpts, Error, Job, JobState};

use super::*;
use crate::Harness;
use crate::support::{Clock, attempts, error_of, job_of};

/// A job keeps the options of the handle that enqueued it; the other handles' do not matter.
pub(super) async fn options_are_stamped_when_a_job_is_enqueued<H: Harness>(h: &H) {
    let store = h.open().await;
    let clock = Clock::new(h, &store);
    let seconds = Duration::from_secs;
    let opts = visible_after(500).max_attempts(2).backoff_base(seconds(40));
    let maker = with_opts(&store, opts.dead_letter_retention(seconds(1000)));
    let opts = visible_after(1)
        .max_attempts(1)
        .backoff_base(Duration::ZERO);
    let queue = with_opts(&store, opts.dead_letter_retention(Duration::ZERO));
    for () in attempts() {
        let id = put(&maker, EnqueueOpts::default()).await;
        let stamped = job(&queue, id).await;
        assert_eq!(
            (
                stamped.visibility_timeout_s,
                stamped.max_attempts,
                stamped.backoff_base_s
            ),
            (500, 2, 40)
        );
        assert_eq!(stamped.dead_letter_retention_s, Some(1000));
        let claim = take(&queue, "w").await;
        assert_eq!(claim.claim_expires_at, claim.claimed_at.map(|at| at + 500));
        let now = clock.now().await;
        assert!(claim.retry("again", None).await.unwrap());
        let retried = job(&queue, id).await;
        if !clock.shows(now).await {
            queue.cancel(id).await.unwrap();
            continue;
        }
        assert_eq!(retried.state, JobState::Pending, "it has two attempts");
        assert!((now + 20..=now + 40).contains(&retried.run_at));
        h.advance(41);
        assert!(take(&queue, "w").await.retry("again", None).await.unwrap());
        let dead = job(&queue, id).await;
        let expected = job_of! {
            attempts: 2,
            state: JobState::Dead,
            run_at: dead.run_at,
            ..stamped.clone()
        };
        let kept = |job: &Job| (job.id, job.attempts, job.state, job.dead_letter_retention_s);
        assert_eq!(kept(&dead), kept(&expected));
        h.advance(900);
        assert_eq!(queue.sweep_expired().await.unwrap(), Swept::default());
        h.advance(102);
        assert_eq!(queue.sweep_expired().await.unwrap().purged, 1);
        return;
    }
}

/// One job may have more attempts than its queue says, or fewer; nothing else changes.
pub(super) async fn max_attempts_can_be_set_for_one_job<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = with_opts(&store, visible_after(9).max_attempts(5));
    for attempts in [1, 2, 7, i64::MAX] {
        let id = put(&queue, EnqueueOpts::default().max_attempts(attempts)).await;
        let stamped = job(&queue, id).await;
        assert_eq!(
            (stamped.max_attempts, stamped.visibility_timeout_s),
            (attempts, 9)
        );
        for attempt in 1..=attempts.min(7) {
            let claim = take(&queue, "w").await;
            assert_eq!(claim.attempts, attempt);
            assert!(claim.retry("again", Some(0)).await.unwrap());
        }
        let live = attempts > 7;
        assert_eq!(
            job(&queue, id).await.state == JobState::Pending,
            live,
            "{attempts} attempts"
        );
        assert_eq!(queue.cancel(id).await.unwrap(), live);
    }
}

/// Options that make no sense are refused when the handle is made.
pub(super) async fn senseless_queue_options_are_refused<H: Harness>(h: &H) {
    let store = h.open().await;
    type Change = fn(&mut QueueOpts, i64);
    let bad: [(&str, i64, Change); 8] = [
        ("visibility_timeout_s", 0, |opts, bad| {
            opts.visibility_timeout_s = bad
        }),
        ("visibility_timeout_s", -1, |opts, bad| {
            opts.visibility_timeout_s = bad
        }),
        ("max_attempts", 0, |opts, bad| opts.max_attempts = bad),
        ("max_attempts", i64::MIN, |opts, bad| {
            opts.max_attempts = bad
        }),
        ("backoff_base_s", -1, |opts, bad| opts.backoff_base_s = bad),
        ("backoff_base_s", i64::MIN, |opts, bad| {
            opts.backoff_base_s = bad
        }),
        ("dead_letter_retention_s", -1, |opts, bad| {
            opts.dead_letter_retention_s = Some(bad)
        }),
        ("dead_letter_retention_s", i64::MIN, |opts, bad| {
            opts.dead_letter_retention_s = Some(bad)
        }),
    ];
    for (name, value, change) in bad {
        let opts = changed(|opts| change(opts, value));
        assert_names_argument(&error_of(store.queue("work", opts)), name, value);
    }
    let least = changed(|opts: &mut QueueOpts| {
        (opts.visibility_timeout_s, opts.max_attempts) = (1, 1);
        (opts.backoff_base_s, opts.dead_letter_retention_s) = (0, Some(0));
    });
    let queue = store.queue("work", least).unwrap();
    let job = job(&queue, put(&queue, EnqueueOpts::default()).await).await;
    assert_eq!(
        (
            job.visibility_timeout_s,
            job.max_attempts,
            job.backoff_base_s
        ),
        (1, 1, 0)
    );
    assert_eq!(job.dead_letter_retention_s, Some(0));
}

/// A job that could never be claimed is refused when it is enqueued, a whole batch too, and
/// a transaction goes on.
pub(super) async fn senseless_job_options_are_refused_and_store_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    for value in [0, -1, i64::MIN] {
        let opts = EnqueueOpts::default().max_attempts(value);
        let error = error_of(queue.enqueue(&"one", opts.clone()).await);
        assert_names_argument(&error, "max_attempts", value);
        let error = error_of(queue.enqueue_batch(&["one", "two"], opts.clone()).await);
        assert_names_argument(&error, "max_attempts", value);

        let mut tx = store.begin_tx().await.unwrap();
        let error = error_of(tx.enqueue_tx("work", opts.clone(), &"one").await);
        assert_names_argument(&error, "max_attempts", value);
        let error = error_of(tx.outbox_enqueue_tx("work", opts, &"one").await);
        assert_names_argument(&error, "max_attempts", value);
        let id = tx
            .enqueue_tx("work", EnqueueOpts::default(), &"good")
            .await
            .unwrap();
        tx.commit().await.unwrap();
        assert_eq!(take(&queue, "w").await.id, id);
        none_ready(&queue).await;
    }
}

#[track_caller]
fn assert_names_argument(error: &Error, name: &str, given: i64) {
    let Error::InvalidArgument {
        argument, value, ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!((*argument, &**value), (name, &*given.to_string()));
}
