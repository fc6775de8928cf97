use alkstore::engine::{At, ClaimEnd, ClaimId, ClaimRequest, Outcome, Queues};
use alkstore::{EnqueueOpts, Error, JobState, QueueOpts};

use super::*;
use crate::Harness;
use crate::support::error_of;

/// Claims, one or a batch, go by priority from high to low, then by `run_at`, then by id.
pub(super) async fn claims_go_by_priority_then_run_at_then_id<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    // (priority, run_at, the place in the order)
    let table = [
        (0, 500, 6),
        (0, 100, 4),
        (i64::MIN, 1, 9),
        (5, 900, 3),
        (0, 100, 5),
        (i64::MAX, 1000, 0),
        (-1, 50, 7),
        (5, 800, 1),
        (-1, 60, 8),
        (5, 800, 2),
    ];
    for batch in [1, 3, 100] {
        let mut expected = [0; 10];
        for (priority, run_at, place) in table {
            let opts = EnqueueOpts::default().priority(priority).run_at(run_at);
            expected[place] = put(&queue, opts).await;
        }
        let mut order = Vec::new();
        loop {
            let claims = queue.claim_batch("w", batch).await.unwrap();
            if claims.is_empty() {
                break;
            }
            order.extend(ids(&claims));
        }
        assert_eq!(order, expected, "in batches of {batch}");
    }
}

/// A batch has what is ready and never more than was asked for.
pub(super) async fn a_claim_takes_at_most_n<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let all = put_many(&queue, 12, EnqueueOpts::default()).await;
    assert_eq!(ids(&queue.claim_batch("w", 5).await.unwrap()), all[..5]);
    let left = jobs(&queue, &all[5..]).await;
    assert!(
        left.iter()
            .flatten()
            .all(|job| job.state == JobState::Pending && job.attempts == 0)
    );
    assert_eq!(ids(&queue.claim_batch("w", 1).await.unwrap()), all[5..6]);
    assert_eq!(
        ids(&queue.claim_batch("w", i64::MAX).await.unwrap()),
        all[6..]
    );
    assert_eq!(queue.claim_batch("w", 5).await.unwrap().len(), 0);
}

/// Asking for zero jobs or fewer gives none and changes nothing.
pub(super) async fn an_extent_below_one_claims_nothing<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let id = put(&queue, EnqueueOpts::default()).await;
    let before = job(&queue, id).await;
    for n in [0, -1, i64::MIN] {
        assert_eq!(queue.claim_batch("w", n).await.unwrap().len(), 0, "n = {n}");
    }
    assert_eq!(job(&queue, id).await, before);
}

/// A worker may have any local name; another one is refused before anything is claimed.
pub(super) async fn worker_names_are_local_names<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = with_opts(&store, QueueOpts::default().max_attempts(9));
    let id = put(&queue, EnqueueOpts::default()).await;
    for bad in ["", " \t\n", "a\0b", &"x".repeat(256), &"é".repeat(128)] {
        let one = error_of(queue.claim_one(bad).await);
        let batch = error_of(queue.claim_batch(bad, 0).await);
        for error in [one, batch] {
            assert!(
                matches!(&error, Error::InvalidName { name, .. } if name == bad),
                "{error:?}"
            );
        }
    }
    assert_eq!(job(&queue, id).await.attempts, 0);
    for good in [
        "__alkstore_worker",
        &"x".repeat(255),
        "🦀 'quoted' \"twice\"\n",
        " w ",
    ] {
        let claim = take(&queue, good).await;
        assert_eq!(claim.worker_id.as_deref(), Some(good));
        assert_eq!(job(&queue, id).await.worker_id.as_deref(), Some(good));
        assert!(claim.retry("again", Some(0)).await.unwrap());
    }
}

/// A priority is any integer: each is kept as it was given and counts in the order.
pub(super) async fn any_integer_is_a_priority<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let rising = [
        i64::MIN,
        i64::MIN + 1,
        -1 << 31,
        -1,
        0,
        1,
        1 << 31,
        (1 << 53) + 1,
        i64::MAX,
    ];
    let mut expected = Vec::new();
    for priority in rising {
        let id = put(&queue, EnqueueOpts::default().priority(priority)).await;
        assert_eq!(job(&queue, id).await.priority, priority);
        expected.insert(0, id);
    }
    assert_eq!(ids(&take_many(&queue, "w", rising.len()).await), expected);
}

/// Delayed, claimed, expired and dead jobs of any priority do not hold up a ready one.
pub(super) async fn jobs_that_are_not_ready_do_not_block<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = plain(&store);
    let urgent = EnqueueOpts::default().priority(100);
    put_many(&queue, 20, urgent.clone()).await;
    for claim in take_many(&queue, "w", 20).await {
        assert!(claim.fail(None).await.unwrap());
    }
    put_many(&queue, 20, urgent.clone()).await;
    take_many(&queue, "w", 20).await;
    put_many(&queue, 20, expiring(0).priority(100)).await;
    put_many(&queue, 20, urgent.delay(Duration::from_secs(7 * 86_400))).await;
    let ready = put_many(&queue, 5, EnqueueOpts::default().priority(-100)).await;
    assert_eq!(take(&queue, "w").await.id, ready[0]);
    assert_eq!(ids(&queue.claim_batch("w", 100).await.unwrap()), ready[1..]);
}

/// A claim never hands out another queue's jobs, whatever their names share.
pub(super) async fn a_queue_hands_out_its_own_jobs<H: Harness>(h: &H) {
    let store = h.open().await;
    let names = ["work", "Work", "work ", "work%", "wor_", "wörk"];
    let mut enqueued = Vec::new();
    for name in names {
        let queue = store.queue(name, QueueOpts::default()).unwrap();
        enqueued.push(put(&queue, EnqueueOpts::default()).await);
    }
    for (name, id) in names.iter().zip(enqueued) {
        let queue = store.queue(name, QueueOpts::default()).unwrap();
        let claims = queue.claim_batch("w", 100).await.unwrap();
        assert_eq!(ids(&claims), [id], "queue {name:?}");
        assert_eq!(claims[0].queue, *name);
    }
}

/// What becomes of one job of a batch does not touch the others.
pub(super) async fn jobs_of_one_batch_end_each_in_its_own_way<H: Harness>(h: &H) {
    let store = h.open().await;
    let queue = with_opts(&store, visible_after(60));
    let all = put_many(&queue, 5, EnqueueOpts::default()).await;
    let mut claims = take_many(&queue, "w", 5).await.into_iter();
    let mut next = || claims.next().unwrap();
    assert!(next().ack().await.unwrap());
    assert!(next().retry("later", Some(1)).await.unwrap());
    assert!(next().fail(Some("never")).await.unwrap());
    let (kept, dropped) = (next(), next());
    assert!(kept.heartbeat(500).await.unwrap());
    drop(dropped);

    let now = jobs(&queue, &all).await;
    let states: Vec<_> = now
        .iter()
        .map(|job| job.as_ref().map(|job| job.state))
        .collect();
    use JobState::{Dead, Pending, Processing};
    let expected = [
        None,
        Some(Pending),
        Some(Dead),
        Some(Processing),
        Some(Processing),
    ];
    assert_eq!(states, expected);
    h.advance(62);
    assert_eq!(
        ids(&queue.claim_batch("w", 100).await.unwrap()),
        [all[4], all[1]]
    );
    assert!(kept.ack().await.unwrap());
}

/// Calls that were gathered into one commit get a result each, in their order, as if they
/// had come one after another.
pub(super) async fn an_engine_serves_requests_of_many_queues_at_once<H: Harness>(h: &H) {
    let store = h.open().await;
    let (queue, other) = (
        plain(&store),
        store.queue("other", QueueOpts::default()).unwrap(),
    );
    let here = put_many(&queue, 4, EnqueueOpts::default()).await;
    let there = put_many(&other, 2, EnqueueOpts::default()).await;
    let request = |queue, worker, limit| ClaimRequest {
        queue,
        worker,
        limit,
    };
    let requests = [
        request("work", "a", 2),
        request("other", "b", 5),
        request("work", "c", 1),
        request("nothing", "d", 1),
        request("work", "e", 9),
        request("work", "f", 9),
    ];
    let claimed = store.engine().claim_jobs(&requests).await.unwrap();
    let got: Vec<Vec<i64>> = claimed
        .iter()
        .map(|jobs| jobs.iter().map(|job| job.id).collect())
        .collect();
    assert_eq!(got, [&here[..2], &there, &here[2..3], &[], &here[3..], &[]]);
    for (jobs, request) in claimed.iter().zip(&requests) {
        assert!(
            jobs.iter()
                .all(|job| job.worker_id.as_deref() == Some(request.worker))
        );
    }

    let end = |queue, id, attempt, outcome| ClaimEnd {
        claim: ClaimId { queue, id, attempt },
        outcome,
    };
    let ends = [
        end("work", here[0], 1, Outcome::Done),
        end("other", there[0], 1, Outcome::Dead { error: "broken" }),
        end("work", here[0], 1, Outcome::Dead { error: "once more" }),
        end("other", here[1], 1, Outcome::Done),
        end("work", here[1], 2, Outcome::Done),
        end(
            "work",
            here[1],
            1,
            Outcome::Again {
                delay: 500,
                error: "later",
            },
        ),
        end("work", here[2], 1, Outcome::Done),
    ];
    let landed = store.engine().finish_claims(At::Auto, &ends).await.unwrap();
    assert_eq!(landed[..], [true, true, false, false, false, true, true]);
    let left = jobs(&queue, &here).await.into_iter().flatten();
    let left: Vec<_> = left
        .map(|job| (job.id, job.state, job.last_error))
        .collect();
    let waiting = (here[1], JobState::Pending, Some("later".to_owned()));
    assert_eq!(left, [waiting, (here[3], JobState::Processing, None)]);
    assert_eq!(
        job(&other, there[0]).await.last_error.as_deref(),
        Some("broken")
    );

    assert_eq!(
        store.engine().claim_jobs(&[]).await.unwrap(),
        [[]; 0] as [[Job; 0]; 0]
    );
    let landed = store.engine().finish_claims(At::Auto, &[]).await;
    assert!(landed.unwrap().is_empty());
    let ids = store.engine().insert_jobs(At::Auto, &[]).await;
    assert!(ids.unwrap().is_empty());
}
