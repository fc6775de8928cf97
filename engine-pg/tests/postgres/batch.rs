//! Calls that are done together with others, as if each had been alone.

use std::time::Duration;

use alkstore::engine::{ClaimRequest, Queues as _};
use alkstore::{EnqueueOpts, Job, Store};
use alkstore_contract_tests::postgres_server::Database;
use alkstore_postgres::{Postgres, PostgresOptions};
use futures::future::{join_all, poll_immediate};
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::support::{database, enqueue, eventually, open, queue, soon};

/// Makes an enqueue into the queue `held` wait until [`Held::release`], and one into `bad` fail.
struct Held(PgConnection);

impl Held {
    async fn new(database: &Database<'_>) -> Self {
        database.sql(
            "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 IF NEW.queue = 'held' THEN PERFORM pg_advisory_xact_lock(1); END IF;
                 IF NEW.queue = 'bad' THEN RAISE 'refused'; END IF;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER hold BEFORE INSERT ON alkstore.jobs
                 FOR EACH ROW EXECUTE FUNCTION hold();",
        );
        let mut connection = PgConnection::connect(&database.url()).await.unwrap();
        connection
            .execute("SELECT pg_advisory_lock(1)")
            .await
            .unwrap();
        Self(connection)
    }

    async fn release(mut self) {
        self.0
            .execute("SELECT pg_advisory_unlock(1)")
            .await
            .unwrap();
    }
}

/// An enqueue that waits in the server.
async fn holding(database: &Database<'_>, store: &Store<Postgres>) -> tokio::task::JoinHandle<i64> {
    let store = store.clone();
    let holding = tokio::spawn(async move { enqueue(&queue(&store, "held"), 0).await });
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually(async || database.sql(waits) == "1").await;
    holding
}

/// One that the server refuses fails alone.
#[tokio::test]
async fn a_refused_call_does_not_fail_its_neighbours() {
    let database = database();
    let store = open(&database).await;
    let held = Held::new(&database).await;
    let holding = holding(&database, &store).await;
    let (good, bad) = (queue(&store, "good"), queue(&store, "bad"));
    let mut calls: Vec<_> = (0..9)
        .map(|n| {
            let queue = if n % 3 == 0 {
                bad.clone()
            } else {
                good.clone()
            };
            Box::pin(async move {
                queue
                    .enqueue_batch(&[n, n + 1], EnqueueOpts::default())
                    .await
            })
        })
        .collect();
    for call in &mut calls {
        assert!(poll_immediate(call).await.is_none(), "it waits");
    }
    held.release().await;
    let results = soon(join_all(calls)).await;
    for (n, result) in results.into_iter().enumerate() {
        assert_eq!(result.is_err(), n % 3 == 0, "{result:?}");
        for (id, payload) in std::iter::zip(result.unwrap_or_default(), n..) {
            let job = good.get_job(id).await.unwrap().unwrap();
            assert_eq!(job.payload_as::<usize>().unwrap(), payload);
        }
    }
    soon(holding).await.unwrap();
    assert_eq!(database.sql("SELECT count(*) FROM alkstore.jobs"), "13");
}

/// One whose future is dropped while it waits for its turn is as if it had never been made, and
/// one that is dropped in its turn keeps nobody waiting.
#[tokio::test]
async fn dropped_calls_keep_nobody_waiting() {
    let database = database();
    let store = open(&database).await;
    let held = Held::new(&database).await;
    let first = holding(&database, &store).await;
    let good = queue(&store, "good");
    let mut kept = Box::pin(good.enqueue(&1, EnqueueOpts::default()));
    let mut dropped = Box::pin(good.enqueue(&2, EnqueueOpts::default()));
    assert!(poll_immediate(&mut kept).await.is_none());
    assert!(poll_immediate(&mut dropped).await.is_none());
    drop(dropped);
    first.abort();
    // What was on its way when it was dropped still waits in the server; the others go on.
    soon(kept).await.unwrap();
    enqueue(&good, 3).await;
    held.release().await;
    let mut payloads = Vec::new();
    while let Some(job) = good.claim_one("w").await.unwrap() {
        payloads.push(job.payload_as::<i64>().unwrap());
    }
    assert_eq!(payloads, [1, 3]);
}

/// A future that is kept and not polled keeps nobody waiting.
#[tokio::test]
async fn a_future_that_nobody_polls_keeps_nobody_waiting() {
    let database = database();
    let store = open(&database).await;
    let work = queue(&store, "work");
    for polls in 1..6 {
        let mut kept = Box::pin(work.enqueue(&0, EnqueueOpts::default()));
        for _ in 0..polls {
            if poll_immediate(&mut kept).await.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
        soon(work.enqueue(&1, EnqueueOpts::default()))
            .await
            .unwrap();
    }
}

/// Who waits for a transaction that publishes to one stream keeps nobody waiting but those that
/// publish to the same.
#[tokio::test]
async fn a_held_stream_holds_nothing_else() {
    let database = database();
    let store = open(&database).await;
    let mut tx = store.begin_tx().await.unwrap();
    tx.publish_tx("held", &0).await.unwrap();
    let held = store.stream("held").unwrap();
    let mut waiting: Vec<_> = (1..5).map(|n| Box::pin(publish(held.clone(), n))).collect();
    for call in &mut waiting {
        assert!(poll_immediate(call).await.is_none());
    }
    for n in 1..4 {
        let other = store.stream("other").unwrap();
        assert_eq!(soon(publish(other, n)).await, n);
        enqueue(&queue(&store, "work"), n).await;
    }
    tx.commit().await.unwrap();
    let mut offsets = soon(join_all(waiting)).await;
    offsets.sort_unstable();
    assert_eq!(offsets, [2, 3, 4, 5]);
}

async fn publish(stream: alkstore::Stream<Postgres>, payload: i64) -> i64 {
    stream.publish(&payload).await.unwrap()
}

/// Claims that are made together each get what they asked for, under their own name.
#[tokio::test(flavor = "multi_thread")]
async fn claims_made_together_are_told_apart() {
    let database = database();
    let store = open(&database).await;
    let work = queue(&store, "work");
    work.enqueue_batch(&vec![0; 400], EnqueueOpts::default())
        .await
        .unwrap();
    let claims = (1..=20).map(|n| {
        let work = work.clone();
        tokio::spawn(async move {
            let jobs = work.claim_batch(&format!("worker {n}"), n).await.unwrap();
            assert_eq!(i64::try_from(jobs.len()).unwrap(), n);
            for job in &jobs {
                assert_eq!(job.worker_id.as_deref(), Some(&*format!("worker {n}")));
                assert!(job.heartbeat(10).await.unwrap());
            }
            assert_eq!(work.ack_batch(&jobs).await.unwrap(), jobs.len());
        })
    });
    for claim in join_all(claims.collect::<Vec<_>>()).await {
        claim.unwrap();
    }
    assert_eq!(database.sql("SELECT count(*) FROM alkstore.jobs"), "190");
}

/// However many they are, claims that go together are served in their order from the highest
/// level down, whatever is above that is not ready.
#[tokio::test]
async fn claims_that_go_together_go_down_the_levels() {
    for delayed in [0, 3] {
        let database = database();
        let engine = PostgresOptions::new().open(&database.url()).await.unwrap();
        let work = queue(&Store::new(engine.clone()), "work");
        let plain = EnqueueOpts::default;
        let later = plain().priority(9).delay(Duration::from_secs(3600));
        work.enqueue_batch(&vec![0; delayed], later).await.unwrap();
        let low = work.enqueue_batch(&vec![0; 150], plain()).await.unwrap();
        let high = work.enqueue_batch(&[0; 100], plain().priority(5));
        let mut ids = high.await.unwrap().into_iter().chain(low);
        let request = |(worker, limit)| ClaimRequest {
            queue: "work",
            worker,
            limit,
        };
        let requests = [("a", 60), ("b", 60), ("c", 100), ("d", 60)].map(request);
        let claimed = engine.claim_jobs(&requests).await.unwrap();
        for (request, jobs) in std::iter::zip(&requests, &claimed) {
            let own = jobs.iter().map(|job| job.id);
            let limit = usize::try_from(request.limit).unwrap();
            assert_eq!(
                own.collect::<Vec<_>>(),
                ids.by_ref().take(limit).collect::<Vec<_>>()
            );
            let theirs = |job: &Job| job.worker_id.as_deref() == Some(request.worker);
            assert!(jobs.iter().all(theirs));
        }
        assert_eq!(claimed.iter().map(Vec::len).sum::<usize>(), 250);
    }
}
