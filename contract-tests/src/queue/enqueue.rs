use alkstore::{EnqueueOpts, Error, JobState, QueueOpts};
use serde::{Serialize, Serializer};
use serde_json::json;

use super::*;
use crate::Harness;
use crate::support::{Clock, attempts, error_of, job_of};

/// A job is pending until it is claimed, processing until it is acked, and then gone.
pub(super) async fn a_job_lives_from_enqueue_to_ack<H: Harness>(h: &H) {
    let (store, other) = (h.open().await, h.open().await);
    let (queue, clock) = (plain(&store), Clock::new(h, &store));
    let before = clock.now().await;
    let id = queue
        .enqueue(&json!({"n": [1, null]}), EnqueueOpts::default())
        .await
        .unwrap();
    let pending = job(&plain(&other), id).await;
    assert!((before..=clock.now().await).contains(&pending.created_at));
    let expected = job_of! {
        id,
        queue: "work".to_owned(),
        state: JobState::Pending,
        payload: br#"{"n":[1,null]}"#.to_vec(),
        priority: 0,
        run_at: pending.created_at,
        attempts: 0,
        max_attempts: 3,
        worker_id: None,
        claimed_at: None,
        claim_expires_at: None,
        created_at: pending.created_at,
        expires_at: None,
        visibility_timeout_s: 300,
        backoff_base_s: 5,
        dead_letter_retention_s: None,
        last_error: None,
        died_at: None,
    };
    assert_eq!(pending, expected);

    let before = clock.now().await;
    let claim = take(&plain(&other), "worker-1").await;
    let claimed_at = claim.claimed_at.expect("a claim stamps its time");
    assert!((before..=clock.now().await).contains(&claimed_at));
    let expected = job_of! {
        state: JobState::Processing,
        attempts: 1,
        worker_id: Some("worker-1".to_owned()),
        claimed_at: Some(claimed_at),
        claim_expires_at: Some(claimed_at + 300),
        ..pending
    };
    assert_eq!(*claim.job(), expected);
    assert_eq!(job(&queue, id).await, expected);
    none_ready(&queue).await;

    assert!(claim.ack().await.unwrap());
    assert_eq!(queue.get_job(id).await.unwrap(), None);
    none_ready(&queue).await;
}

/// A later job has a greater id, also after the jobs before it are gone and after a restart.
pub(super) async fn ids_grow_and_are_never_used_again<H: Harness>(h: &H) {
    let store = h.open().await;
    let forget = QueueOpts::default().dead_letter_retention(Duration::ZERO);
    let queue = with_opts(&store, forget);
    let acked = put(&queue, EnqueueOpts::default()).await;
    assert!(take(&queue, "w").await.ack().await.unwrap());
    let cancelled = put(&queue, EnqueueOpts::default()).await;
    assert!(queue.cancel(cancelled).await.unwrap());
    let purged = put(&queue, EnqueueOpts::default()).await;
    assert!(take(&queue, "w").await.fail(None).await.unwrap());
    h.advance(2);
    assert_eq!(queue.sweep_expired().await.unwrap().purged, 1);
    store.close().await;

    let store = h.open().await;
    let reopened = put(&plain(&store), EnqueueOpts::default()).await;
    let elsewhere = store.queue("elsewhere", QueueOpts::default()).unwrap();
    let elsewhere = put(&elsewhere, EnqueueOpts::default()).await;
    let ids = [acked, cancelled, purged, reopened, elsewhere];
    assert!(
        ids.is_sorted_by(|earlier, later| earlier < later),
        "{ids:?}"
    );
}

/// The ids of a batch are in the order of its payloads, and all jobs have the same stamps.
pub(super) async fn a_batch_keeps_the_order_of_its_payloads<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let payloads: Vec<u32> = (0..100).rev().collect();
    let opts = changed(|opts: &mut EnqueueOpts| {
        opts.delay = Some(-7);
        opts.priority = 4;
        opts.expires = Some(1000);
    });
    let ids = queue.enqueue_batch(&payloads, opts).await.unwrap();
    assert_eq!(ids.len(), 100);
    assert!(
        ids.is_sorted_by(|earlier, later| earlier < later),
        "{ids:?}"
    );
    let first = job(&queue, ids[0]).await;
    assert_eq!((first.run_at, first.priority), (first.created_at - 7, 4));
    assert_eq!(first.expires_at, Some(first.created_at + 1000));
    for (id, payload) in ids.iter().zip(&payloads) {
        let payload = payload.to_string().into_bytes();
        assert_eq!(
            job(&queue, *id).await,
            job_of! {
                id: *id,
                payload,
                ..first.clone()
            }
        );
    }
    assert_eq!(super::ids(&take_many(&queue, "w", 100).await), ids);
}

/// A payload that cannot be encoded keeps its whole batch out.
pub(super) async fn a_batch_is_enqueued_whole_or_not_at_all<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    for bad in 0..3 {
        let batch: Vec<_> = (0..3).map(|n| Payload { encodes: n != bad }).collect();
        let error = error_of(queue.enqueue_batch(&batch, EnqueueOpts::default()).await);
        assert!(matches!(error, Error::Codec(_)), "{error:?}");
    }
    let bad = Payload { encodes: false };
    let error = error_of(queue.enqueue(&bad, EnqueueOpts::default()).await);
    assert!(matches!(error, Error::Codec(_)), "{error:?}");
    none_ready(&queue).await;
}

struct Payload {
    encodes: bool,
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.encodes {
            true => serializer.serialize_unit(),
            false => Err(serde::ser::Error::custom("on purpose")),
        }
    }
}

/// A batch without payloads has no ids and stores nothing.
pub(super) async fn an_empty_batch_enqueues_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let nothing: [&str; 0] = [];
    let ids = queue
        .enqueue_batch(&nothing, EnqueueOpts::default())
        .await
        .unwrap();
    assert_eq!(ids, [0; 0]);
    none_ready(&queue).await;
}

/// A job shows when it is ready: the delay from now, else the given second, else now.
pub(super) async fn delay_beats_run_at_beats_now<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    // (delay, run_at, how far that is from the enqueue, or else the very second)
    let table = [
        (None, None, Some(0), None),
        (Some(0), None, Some(0), None),
        (Some(30), None, Some(30), None),
        (Some(-30), None, Some(-30), None),
        (None, Some(0), None, Some(0)),
        (None, Some(-1), None, Some(-1)),
        (None, Some(4_102_444_800), None, Some(4_102_444_800)),
        (Some(30), Some(5), Some(30), None),
        (Some(0), Some(4_102_444_800), Some(0), None),
        (Some(-30), Some(5), Some(-30), None),
    ];
    for (delay, run_at, from_now, at) in table {
        let opts = changed(|opts: &mut EnqueueOpts| (opts.delay, opts.run_at) = (delay, run_at));
        let id = put(&queue, opts).await;
        let job = job(&queue, id).await;
        let expected = from_now.map(|seconds: i64| job.created_at + seconds).or(at);
        assert_eq!(
            Some(job.run_at),
            expected,
            "delay {delay:?}, run_at {run_at:?}"
        );
    }
}

/// Every `i64` is a legal delay, start and lifetime; sums saturate, and claims go on.
pub(super) async fn enqueue_times_saturate<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let never = changed(|opts: &mut EnqueueOpts| opts.delay = Some(i64::MAX)).priority(9);
    let never = put(&queue, never).await;
    let at_the_end = put(&queue, EnqueueOpts::default().run_at(i64::MAX).priority(9)).await;
    let endless = put(&queue, expiring(i64::MAX).priority(1)).await;
    let stillborn = put(&queue, expiring(i64::MIN).priority(9)).await;
    let always = changed(|opts: &mut EnqueueOpts| opts.delay = Some(i64::MIN));
    let always = put(&queue, always).await;
    let from_the_start = put(&queue, EnqueueOpts::default().run_at(i64::MIN)).await;

    assert_eq!(job(&queue, never).await.run_at, i64::MAX);
    assert_eq!(job(&queue, at_the_end).await.run_at, i64::MAX);
    assert_eq!(job(&queue, endless).await.expires_at, Some(i64::MAX));
    let created_at = job(&queue, stillborn).await.created_at;
    assert_eq!(
        job(&queue, stillborn).await.expires_at,
        Some(created_at + i64::MIN)
    );
    let created_at = job(&queue, always).await.created_at;
    assert_eq!(job(&queue, always).await.run_at, created_at + i64::MIN);
    assert_eq!(job(&queue, from_the_start).await.run_at, i64::MIN);

    let claims = queue.claim_batch("w", 100).await.unwrap();
    assert_eq!(ids(&claims), [endless, from_the_start, always]);
    assert_eq!(job(&queue, stillborn).await.state, JobState::Dead);
    h.advance(100 * 365 * 86_400);
    assert_eq!(queue.sweep_expired().await.unwrap(), Swept::default());
    for id in [never, at_the_end] {
        assert_eq!(job(&queue, id).await.state, JobState::Pending);
    }
}

/// A job is ready at its `run_at`, and not a second earlier.
pub(super) async fn a_job_is_ready_from_its_second_on<H: Harness>(h: &H) {
    let store = h.open().await;
    let (queue, clock) = (plain(&store), Clock::new(h, &store));
    for () in attempts() {
        let id = put(
            &queue,
            EnqueueOpts::default().delay(Duration::from_secs(60)),
        )
        .await;
        let run_at = job(&queue, id).await.run_at;
        clock.go_to(run_at - 1).await;
        let early = queue.claim_one("w").await.unwrap();
        if !clock.shows(run_at - 1).await {
            queue.cancel(id).await.unwrap();
            continue;
        }
        assert_eq!(early.map(|job| job.id), None);
        clock.go_to(run_at).await;
        let ready = queue.claim_one("w").await.unwrap();
        if !clock.shows(run_at).await {
            queue.cancel(id).await.unwrap();
            continue;
        }
        assert_eq!(ready.map(|job| job.id), Some(id));
        return;
    }
}

/// Pending, claimed and dead jobs are the same after all stores were closed.
pub(super) async fn jobs_survive_a_restart<H: Harness>(h: &H) {
    let store = h.open().await;
    let opts = visible_after(50)
        .max_attempts(7)
        .backoff_base(Duration::from_secs(2));
    let queue = with_opts(&store, opts.dead_letter_retention(Duration::from_secs(9)));
    let dead = put(&queue, EnqueueOpts::default()).await;
    assert!(take(&queue, "w").await.fail(Some("broken")).await.unwrap());
    let claimed = put(&queue, EnqueueOpts::default().priority(-3)).await;
    let _claim = take(&queue, "w").await;
    let pending = put(&queue, expiring(500).delay(Duration::from_secs(70))).await;
    let before = jobs(&queue, &[dead, claimed, pending]).await;
    store.close().await;

    let store = h.open().await;
    let queue = plain(&store);
    let after = jobs(&queue, &[dead, claimed, pending]).await;
    assert_eq!(after, before);
    let states = after
        .into_iter()
        .flatten()
        .map(|job| job.state)
        .collect::<Vec<_>>();
    assert_eq!(
        states,
        [JobState::Dead, JobState::Processing, JobState::Pending]
    );
    none_ready(&queue).await;
    h.advance(71);
    assert_eq!(ids(&take_many(&queue, "w", 2).await), [pending, claimed]);
}

/// A transaction has no queue handle, so its jobs carry the plain options and their own.
pub(super) async fn enqueue_tx_stamps_the_plain_defaults<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = with_opts(&store, visible_after(7).max_attempts(9));
    let own = expiring(90)
        .delay(Duration::from_secs(8))
        .priority(-2)
        .max_attempts(4);
    let mut tx = store.begin_tx().await.unwrap();
    let plain = tx
        .enqueue_tx("work", EnqueueOpts::default(), &"a")
        .await
        .unwrap();
    let own = tx.enqueue_tx("work", own, &"b").await.unwrap();
    tx.commit().await.unwrap();

    let plain = job(&queue, plain).await;
    let expected = job_of! {
        id: plain.id,
        queue: "work".to_owned(),
        state: JobState::Pending,
        payload: br#""a""#.to_vec(),
        priority: 0,
        run_at: plain.created_at,
        attempts: 0,
        max_attempts: 3,
        worker_id: None,
        claimed_at: None,
        claim_expires_at: None,
        created_at: plain.created_at,
        expires_at: None,
        visibility_timeout_s: 300,
        backoff_base_s: 5,
        dead_letter_retention_s: None,
        last_error: None,
        died_at: None,
    };
    assert_eq!(plain, expected);
    let own = job(&queue, own).await;
    let expected = job_of! {
        id: own.id,
        payload: br#""b""#.to_vec(),
        priority: -2,
        run_at: own.created_at + 8,
        max_attempts: 4,
        created_at: own.created_at,
        expires_at: Some(own.created_at + 90),
        ..expected
    };
    assert_eq!(own, expected);
}

/// A job that is enqueued through a handle in a transaction carries the handle's options, and
/// is there if the transaction commits.
pub(super) async fn enqueue_tx_through_a_handle_stamps_its_options<H: Harness>(h: &H) {
    let store = h.open().await;
    let opts = visible_after(77)
        .max_attempts(9)
        .backoff_base(Duration::from_secs(3));
    let queue = with_opts(&store, opts.dead_letter_retention(Duration::from_secs(8)));
    let mut tx = store.begin_tx().await.unwrap();
    let own = EnqueueOpts::default().priority(4);
    let dropped = queue.enqueue_tx(&mut tx, &"x", own.clone()).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(queue.get_job(dropped).await.unwrap(), None);
    let mut tx = store.begin_tx().await.unwrap();
    let id = queue.enqueue_tx(&mut tx, &"x", own).await.unwrap();
    tx.commit().await.unwrap();
    let job = job(&queue, id).await;
    let stamps = (
        job.visibility_timeout_s,
        job.max_attempts,
        job.backoff_base_s,
    );
    assert_eq!(stamps, (77, 9, 3));
    assert_eq!((job.dead_letter_retention_s, job.priority), (Some(8), 4));
}
