use alkstore::{EnqueueOpts, JobState};

use super::*;
use crate::Harness;
use crate::support::{Clock, attempts, job_of};

/// A retry without a delay waits any whole second from half the cap, rounded up, to the cap.
pub(super) async fn a_retry_spreads_over_the_whole_range<H: Harness>(h: &H) {
    let store = h.open().await;
    let (queue, clock) = (plain(&store), Clock::new(h, &store));
    let mut delays = Vec::new();
    for () in attempts() {
        let all = put_many(&queue, 20, EnqueueOpts::default()).await;
        let now = clock.now().await;
        for claim in take_many(&queue, "w", 20).await {
            assert!(claim.retry("again", None).await.unwrap());
        }
        if clock.shows(now).await {
            let jobs = jobs(&queue, &all).await.into_iter().flatten();
            delays.extend(jobs.map(|job| job.run_at - now));
        }
        for id in all {
            queue.cancel(id).await.unwrap();
        }
        // That a third of the range is missed by chance in 80 draws: 3 × (2/3)^80 < 10⁻¹³.
        if delays.len() >= 80 {
            break;
        }
    }
    delays.sort_unstable();
    delays.dedup();
    assert_eq!(delays, [3, 4, 5]);
}

/// The cap doubles with each attempt up to an hour and stays there at any attempt.
pub(super) async fn the_retry_curve_doubles_up_to_an_hour<H: Harness>(h: &H) {
    let store = h.open().await;
    let (queue, clock) = (plain(&store), Clock::new(h, &store));
    let id = put(&queue, EnqueueOpts::default().max_attempts(100)).await;
    for attempt in 1..=70 {
        let claim = take(&queue, "w").await;
        assert_eq!(claim.attempts, attempt);
        let before = clock.now().await;
        assert!(claim.retry("again", None).await.unwrap());
        let after = clock.now().await;
        let cap = if attempt <= 10 {
            5 << (attempt - 1)
        } else {
            3600
        };
        let run_at = job(&queue, id).await.run_at;
        let range = before + (cap + 1) / 2..=after + cap;
        assert!(
            range.contains(&run_at),
            "attempt {attempt}: {run_at} is not in {range:?}"
        );
        h.advance(cap);
    }
    let opts = changed(|opts: &mut QueueOpts| opts.backoff_base_s = i64::MAX);
    let id = put(&with_opts(&store, opts), EnqueueOpts::default().priority(1)).await;
    let before = clock.now().await;
    assert!(take(&queue, "w").await.retry("again", None).await.unwrap());
    let range = before + 1800..=clock.now().await + 3600;
    assert!(range.contains(&job(&queue, id).await.run_at));
}

/// With a backoff base of zero a retry without a delay is ready at once.
pub(super) async fn a_base_of_zero_retries_at_once<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = with_opts(&store, QueueOpts::default().backoff_base(Duration::ZERO));
    let id = put(&queue, EnqueueOpts::default().max_attempts(10)).await;
    for attempt in 1..10 {
        let claim = take(&queue, "w").await;
        assert_eq!((claim.id, claim.attempts), (id, attempt));
        assert!(claim.retry("again", None).await.unwrap());
    }
}

/// A delay that is given is taken as it is: none, negative, or never.
pub(super) async fn a_given_delay_is_taken_as_it_is<H: Harness>(h: &H) {
    let store = h.open().await;
    let (queue, clock) = (plain(&store), Clock::new(h, &store));
    for delay in [0, 1, 7, 100_000, -1, -100_000, i64::MAX, i64::MIN] {
        for () in attempts() {
            let id = put(&queue, EnqueueOpts::default()).await;
            let claim = take(&queue, "w").await;
            let now = clock.now().await;
            assert!(claim.retry("again", Some(delay)).await.unwrap());
            let retried = job(&queue, id).await;
            if clock.shows(now).await {
                assert_eq!(retried.run_at, now.saturating_add(delay), "delay {delay}");
                let ready = queue.claim_one("w").await.unwrap().map(|job| job.id);
                // A delay of a second may be over by now.
                if delay != 1 {
                    assert_eq!(ready, (delay <= 0).then_some(id), "delay {delay}");
                }
                queue.cancel(id).await.unwrap();
                break;
            }
            queue.cancel(id).await.unwrap();
        }
    }
}

/// After a retry the job is pending, nobody's, and shows the error until it is gone.
pub(super) async fn a_retry_shows_its_error_and_frees_the_job<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let id = put(&queue, EnqueueOpts::default().priority(3)).await;
    let first = take(&queue, "w").await;
    let claimed = first.job().clone();
    assert!(first.retry("no answer", Some(-1)).await.unwrap());
    let pending = job(&queue, id).await;
    let expected = job_of! {
        state: JobState::Pending,
        run_at: pending.run_at,
        worker_id: None,
        claim_expires_at: None,
        last_error: Some("no answer".to_owned()),
        ..claimed
    };
    assert_eq!(pending, expected);
    let second = take(&queue, "w").await;
    assert_eq!(
        (second.attempts, second.last_error.as_deref()),
        (2, Some("no answer"))
    );
    assert!(second.retry("wrong answer", Some(0)).await.unwrap());
    assert_eq!(
        job(&queue, id).await.last_error.as_deref(),
        Some("wrong answer")
    );
    assert!(take(&queue, "w").await.ack().await.unwrap());
    assert_eq!(queue.get_job(id).await.unwrap(), None);
}

/// A retry of the last attempt makes the job dead with its error, whatever the delay.
pub(super) async fn a_retry_without_attempts_left_is_dead<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    for delay in [None, Some(0), Some(i64::MAX)] {
        let id = put(&queue, EnqueueOpts::default().max_attempts(2)).await;
        assert!(
            take(&queue, "w")
                .await
                .retry("first", Some(0))
                .await
                .unwrap()
        );
        let last = take(&queue, "w").await;
        let before = last.job().clone();
        assert!(last.retry("second", delay).await.unwrap());
        assert_died(&job(&queue, id).await, &before, "second");
        none_ready(&queue).await;
    }
}

/// Error texts may hold anything; a NUL, which not every database can store, is replaced.
pub(super) async fn any_error_text_is_kept<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let long = "é".repeat(50_000);
    let texts = [
        "",
        "it's \"quoted\" \\ %s $1 ?",
        "\u{1b}[31m\r\n\t\u{7f}🦀",
        &long,
        "a\0b\0",
    ];
    for text in texts {
        let id = put(&queue, EnqueueOpts::default()).await;
        let stored = text.replace('\0', "\u{fffd}");
        assert!(take(&queue, "w").await.retry(text, Some(0)).await.unwrap());
        assert_eq!(job(&queue, id).await.last_error.as_deref(), Some(&*stored));
        assert!(take(&queue, "w").await.fail(Some(text)).await.unwrap());
        assert_eq!(job(&queue, id).await.last_error.as_deref(), Some(&*stored));
    }
}
