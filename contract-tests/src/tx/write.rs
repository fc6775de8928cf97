//! What the writing methods of a transaction store.

use alkstore::{EnqueueOpts, QueueOpts, Result};

use crate::Harness;
use crate::support::{find_job, numbers, offsets, read_all, refused};

/// A transaction has no queue handle: its jobs carry the plain queue defaults.
pub(super) async fn jobs_of_a_transaction_carry_the_plain_defaults<H: Harness>(h: &H) {
    let store = h.open().await;
    let opts = EnqueueOpts::default();
    let id = store
        .with_tx(async |tx| tx.enqueue_tx("queue", opts, &1).await)
        .await
        .unwrap();
    let job = find_job(&store, "queue", id).await.unwrap();
    assert_eq!(
        (
            job.visibility_timeout_s,
            job.max_attempts,
            job.backoff_base_s
        ),
        (300, 3, 5)
    );
    assert_eq!(
        (job.dead_letter_retention_s, job.expires_at, job.priority),
        (None, None, 0)
    );
    assert_eq!(job.run_at, job.created_at);
}

/// The outbox form stamps what the outbox itself stamps.
pub(super) async fn messages_of_a_transaction_carry_the_outbox_defaults<H: Harness>(h: &H) {
    let store = h.open().await;
    let opts = EnqueueOpts::default;
    let id = store
        .with_tx(async |tx| tx.outbox_enqueue_tx("outbox", opts(), &1).await)
        .await;
    let outbox = store.outbox("outbox").unwrap();
    let job = outbox.get_job(id.unwrap()).await.unwrap().unwrap();
    assert_eq!(
        (
            job.visibility_timeout_s,
            job.max_attempts,
            job.backoff_base_s
        ),
        (60, 5, 5)
    );
    assert_eq!(
        (job.dead_letter_retention_s, job.expires_at, job.priority),
        (None, None, 0)
    );
    let plain = outbox.enqueue(&1, opts()).await.unwrap();
    let plain = outbox.get_job(plain).await.unwrap().unwrap();
    assert_eq!((plain.visibility_timeout_s, plain.max_attempts), (60, 5));
    assert_eq!(
        (plain.backoff_base_s, plain.queue),
        (job.backoff_base_s, job.queue)
    );
}

/// The options of one job hold in a transaction, resolved as a plain enqueue resolves them.
pub(super) async fn jobs_of_a_transaction_take_their_options<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut opts = EnqueueOpts::default()
        .run_at(7)
        .priority(-3)
        .max_attempts(9);
    opts.expires = Some(50);
    let mut delayed = opts.clone();
    delayed.delay = Some(100);
    let mut never = opts.clone();
    never.delay = Some(i64::MAX);
    never.expires = Some(i64::MAX);
    let ids = store.with_tx(async |tx| -> Result<_> {
        let at = tx.enqueue_tx("queue", opts, &1).await?;
        let delayed = tx.enqueue_tx("queue", delayed, &1).await?;
        Ok((at, delayed, tx.enqueue_tx("queue", never, &1).await?))
    });
    let (at, delayed, never) = ids.await.unwrap();
    let job = find_job(&store, "queue", at).await.unwrap();
    assert_eq!((job.run_at, job.priority, job.max_attempts), (7, -3, 9));
    assert_eq!(job.expires_at, Some(job.created_at + 50));
    let job = find_job(&store, "queue", delayed).await.unwrap();
    assert_eq!(job.run_at, job.created_at + 100);
    let job = find_job(&store, "queue", never).await.unwrap();
    assert_eq!(
        (job.run_at, job.expires_at),
        (i64::MAX, Some(i64::MAX)),
        "sums saturate"
    );
}

/// A number of attempts below one is refused, and the transaction goes on.
pub(super) async fn job_options_are_checked_in_a_transaction<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut tx = store.begin_tx().await.unwrap();
    for attempts in [0, -1, i64::MIN] {
        let opts = || EnqueueOpts::default().max_attempts(attempts);
        let errors = [
            refused(tx.enqueue_tx("queue", opts(), &1)),
            refused(tx.outbox_enqueue_tx("outbox", opts(), &1)),
        ];
        for error in errors {
            let refused = matches!(
                &error,
                alkstore::Error::InvalidArgument { argument: "max_attempts", value, .. }
                    if *value == attempts.to_string()
            );
            assert!(refused, "{attempts} gives {error:?}");
        }
    }
    tx.publish_tx("stream", &1).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(numbers(&read_all(&store, "stream").await), [1]);
    let queue = store.queue("queue", QueueOpts::default()).unwrap();
    assert!(queue.claim_one("worker").await.unwrap().is_none());
}

/// A rolled-back publish leaves no hole: the next one gets its offset.
pub(super) async fn offsets_are_dense_across_transactions<H: Harness>(h: &H) {
    let store = h.open().await;
    let mut kept = Vec::new();
    for round in 0..12 {
        let mut tx = store.begin_tx().await.unwrap();
        let first = tx.publish_tx("one", &round).await.unwrap();
        assert_eq!(tx.publish_tx("other", &round).await.unwrap(), first);
        assert_eq!(
            tx.publish_with_key_tx("one", Some("k"), &round)
                .await
                .unwrap(),
            first + 1
        );
        tx.publish_tx("other", &round).await.unwrap();
        match round % 3 {
            0 => tx.rollback().await.unwrap(),
            1 => drop(tx),
            _ => {
                tx.commit().await.unwrap();
                kept.extend([round, round]);
            }
        }
    }
    for stream in ["one", "other"] {
        let events = read_all(&store, stream).await;
        assert_eq!(offsets(&events), (1..=8).collect::<Vec<_>>());
        assert_eq!(numbers(&events), kept);
    }
}

/// A lower or negative save is ignored in a transaction too, against what is committed and
/// against what the transaction itself saved.
pub(super) async fn saved_offsets_never_go_back_in_a_transaction<H: Harness>(h: &H) {
    let store = h.open().await;
    let stream = store.stream("stream").unwrap();
    stream.save_offset("consumer", 10).await.unwrap();
    let mut tx = store.begin_tx().await.unwrap();
    let mut before = 10;
    for (save, then) in [
        (9, 10),
        (12, 12),
        (11, 12),
        (0, 12),
        (-1, 12),
        (i64::MIN, 12),
    ] {
        let moved = tx.save_offset_tx("stream", "consumer", save).await.unwrap();
        assert_eq!(moved, then > before, "save of {save}");
        before = then;
        assert_eq!(tx.get_offset_tx("stream", "consumer").await.unwrap(), then);
    }
    let beyond = tx.save_offset_tx("stream", "beyond", i64::MAX).await;
    assert!(beyond.unwrap());
    assert!(!tx.save_offset_tx("stream", "negative", -5).await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!(stream.get_offset("consumer").await.unwrap(), 12);
    assert_eq!(stream.get_offset("beyond").await.unwrap(), i64::MAX);
    assert_eq!(stream.get_offset("negative").await.unwrap(), 0);
}
