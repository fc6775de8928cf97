//! What operations cost, counted: round trips, commits, rows and blocks. No clock decides.

use std::pin::pin;
use std::time::Duration;

use alkstore::{EnqueueOpts, Store};
use alkstore_contract_tests::postgres_server::{Database, PostgresServer, ServerOptions};
use alkstore_postgres::{Postgres, PostgresOptions};
use futures::future::{join_all, poll_immediate};
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::support::{database, enqueue, eventually, open, open_with, queue};
use crate::wire::Wire;

/// Options without what costs something at times of its own.
fn options() -> PostgresOptions {
    PostgresOptions::new()
        .listen(false)
        .wake_debounce(Duration::from_secs(3600))
}

/// Each operation is one round trip, batches of any size too.
#[tokio::test]
async fn an_operation_is_one_round_trip() {
    let Some(server) = PostgresServer::start_or_skip(&ServerOptions::new()) else {
        return;
    };
    let database = server.create_database();
    let wire = Wire::to(server.address());
    let url = format!(
        "postgres://postgres@127.0.0.1:{}/{}?sslmode=disable",
        wire.port(),
        database.name()
    );
    let store = Store::new(options().pool(1).open(&url).await.unwrap());
    let (work, stream) = (queue(&store, "work"), store.stream("stream").unwrap());
    // A statement is prepared at its first use, a connection that idled long is asked whether
    // it is there: neither is so each time.
    macro_rules! one_round_trip {
        ($name:literal, $operation:expr) => {{
            let mut least = u64::MAX;
            let mut last = None;
            for _ in 0..5 {
                let before = wire.round_trips();
                last = Some($operation.await.unwrap());
                least = least.min(wire.round_trips() - before);
            }
            assert_eq!(least, 1, $name);
            last.unwrap()
        }};
    }
    let plain = EnqueueOpts::default;
    one_round_trip!("enqueue", work.enqueue(&1, plain()));
    one_round_trip!("enqueue_batch", work.enqueue_batch(&[1; 1500], plain()));
    let jobs = one_round_trip!("claim_batch", work.claim_batch("w", 100));
    one_round_trip!("ack_batch", work.ack_batch(&jobs));
    let job = one_round_trip!("claim_one", work.claim_one("w")).unwrap();
    one_round_trip!("heartbeat", job.heartbeat(60));
    let mut jobs = work.claim_batch("w", 15).await.unwrap().into_iter();
    let mut next = || jobs.next().unwrap();
    one_round_trip!("ack", next().ack());
    one_round_trip!("retry", next().retry("later", Some(60)));
    one_round_trip!("fail", next().fail(Some("never")));
    one_round_trip!("cancel", work.cancel(0));
    one_round_trip!("get_job", work.get_job(0));
    one_round_trip!("publish", stream.publish(&1));
    one_round_trip!("publish_batch", stream.publish_batch(&[(None, 1); 1500]));
    one_round_trip!("read_since", stream.read_since(0, 1000));
    one_round_trip!("save_offset", stream.save_offset("c", 1));
    one_round_trip!("get_offset", stream.get_offset("c"));
    one_round_trip!("try_lock", store.try_lock("lock", "me", 60));
}

/// Makes calls of which the first is not done before the last has come.
async fn at_once<T>(
    lock: &mut PgConnection,
    calls: impl Iterator<Item = impl Future<Output = T>>,
) -> Vec<T> {
    let tables = "BEGIN; LOCK TABLE alkstore.jobs, alkstore.streams IN EXCLUSIVE MODE";
    lock.execute(tables).await.unwrap();
    let mut calls = pin!(join_all(calls));
    // A task polls so many at most before it lets others run.
    for _ in 0..8 {
        assert!(poll_immediate(&mut calls).await.is_none());
        tokio::task::yield_now().await;
    }
    lock.execute("COMMIT").await.unwrap();
    calls.await
}

/// Calls that come at once share commits.
#[tokio::test]
async fn calls_at_once_take_few_commits() {
    const CALLS: i64 = 400;
    let database = database();
    open(&database).await.close().await;
    let commits = || -> i64 {
        let text = format!(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = '{}'",
            database.name()
        );
        database.server().sql("postgres", &text).parse().unwrap()
    };
    all_gone(&database).await;
    let before = commits();
    let store = open_with(&database, options()).await;
    let (work, stream) = (queue(&store, "work"), store.stream("stream").unwrap());
    let mut lock = PgConnection::connect(&database.url()).await.unwrap();
    let ids = at_once(&mut lock, (0..CALLS).map(|n| enqueue(&work, n))).await;
    assert_eq!(ids.len(), 400);
    let claims = at_once(&mut lock, (0..CALLS).map(|_| work.claim_one("w"))).await;
    let jobs: Vec<_> = claims
        .into_iter()
        .map(|job| job.unwrap().unwrap())
        .collect();
    let acks = at_once(&mut lock, jobs.into_iter().map(|job| job.ack())).await;
    assert!(acks.into_iter().all(|landed| landed.unwrap()));
    let published = (0..CALLS).map(async |n| stream.publish(&n).await);
    let offsets = at_once(&mut lock, published).await;
    assert!(offsets.into_iter().all(|offset| offset.is_ok()));
    lock.close().await.unwrap();
    store.close().await;
    all_gone(&database).await;
    let commits = commits() - before;
    assert!(
        commits < CALLS / 8,
        "{commits} commits for {} calls",
        4 * CALLS
    );
}

/// A batch draws one id for a thousand jobs, and no two jobs ever have one id.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_draws_few_ids() {
    const STEP: i64 = 1000;
    let database = database();
    let store = open(&database).await;
    let drawn = || -> i64 {
        let last = "SELECT last_value FROM alkstore.jobs_id_seq";
        (database.sql(last).parse::<i64>().unwrap() - 1) / STEP
    };
    let work = queue(&store, "work");
    let first = enqueue(&work, -1).await;
    let before = drawn();
    let numbers: Vec<_> = (0..2500).collect();
    let ids = work
        .enqueue_batch(&numbers, EnqueueOpts::default())
        .await
        .unwrap();
    assert_eq!(drawn() - before, 3);
    assert!(first < ids[0] && ids.is_sorted_by(|a, b| a < b));
    let claimed = work.claim_batch("w", 9999).await.unwrap();
    let claimed = claimed.iter().skip(1);
    for ((id, number), job) in std::iter::zip(&ids, numbers).zip(claimed) {
        assert_eq!((*id, number), (job.id, job.payload_as().unwrap()));
    }
    let stores = join_all((0..4).map(|_| open(&database))).await;
    let mixed = (0..4).map(|n| {
        let store = stores[n].clone();
        tokio::spawn(async move {
            let work = queue(&store, "more");
            let mut ids = Vec::new();
            for size in [1, 2, 999, 1000, 1001, 1] {
                let numbers = vec![0; size];
                let batch = work.enqueue_batch(&numbers, EnqueueOpts::default());
                ids.extend(batch.await.unwrap());
                ids.push(enqueue(&work, 0).await);
            }
            ids
        })
    });
    let mut ids = Vec::new();
    for task in join_all(mixed.collect::<Vec<_>>()).await {
        ids.extend(task.unwrap());
    }
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count);
}

/// Rows and blocks that a round of everything touches do not grow with what else is there,
/// neither under plans from when nothing was, nor under those from when the server had just looked
/// at a queue that was emptied, nor under new ones.
#[tokio::test]
async fn what_an_operation_touches_does_not_grow() {
    // While somebody else is in a transaction the server forgets no row: nobody else is here.
    let Some(server) = PostgresServer::start_or_skip(&ServerOptions::new()) else {
        return;
    };
    let emptied = [
        "INSERT INTO alkstore.jobs (queue, priority, run_at, max_attempts, created_at,
             visibility_timeout_s, backoff_base_s, payload)
         SELECT 'work', 5, 0, 9, 0, 300, 5, repeat('x', 100)::bytea
         FROM generate_series(1, 30000)",
        "ANALYZE alkstore.jobs",
        "DELETE FROM alkstore.jobs",
        "ANALYZE alkstore.jobs",
        "SELECT pg_stat_reset()",
    ];
    for before in [&[][..], &emptied] {
        let few = touched(&server.create_database(), before, 100).await;
        let many = touched(&server.create_database(), before, 60_000).await;
        for (what, few, many) in [("rows", few.0, many.0), ("blocks", few.1, many.1)] {
            // A tree of two hundred thousand entries has two levels more than one of a hundred.
            assert!(
                many <= few * 2,
                "{what}: {few} beside few, {many} beside many"
            );
        }
    }
}

/// What ten rounds touch beside `each` jobs of four kinds: rows, under plans from after the SQL
/// `before`; blocks, under new plans.
async fn touched(database: &Database<'_>, before: &[&str], each: u32) -> (i64, i64) {
    let store = open_with(database, options().pool(1)).await;
    database.sql("ALTER TABLE alkstore.jobs SET (autovacuum_enabled = off)");
    before.iter().for_each(|text| drop(database.sql(text)));
    for _ in 0..10 {
        round(&store, 0).await;
    }
    database.sql(&format!(
        "INSERT INTO alkstore.jobs (queue, priority, run_at, max_attempts, created_at,
             visibility_timeout_s, backoff_base_s, payload, claim_expires_at, expires_at)
         SELECT 'work', 5, CASE WHEN kind = 'delayed' THEN 99999999999 ELSE 0 END, 9, 0, 300, 5, '',
             CASE WHEN kind = 'held' THEN 99999999999 END,
             CASE WHEN kind = 'expiring' THEN 99999999999 END
         FROM generate_series(1, {each}),
             unnest(ARRAY['ready', 'delayed', 'held', 'expiring']) AS kind"
    ));
    for _ in 0..10 {
        round(&store, 10).await;
    }
    store.close().await;
    all_gone(database).await;
    let figure = |text: &str| -> i64 { database.sql(text).parse().unwrap() };
    let rows = figure(
        "SELECT seq_tup_read + idx_tup_fetch + (SELECT sum(idx_tup_read)
             FROM pg_stat_user_indexes WHERE relname = 'jobs')
         FROM pg_stat_user_tables WHERE relname = 'jobs'",
    );
    let blocks = || {
        figure(
            "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read
             FROM pg_statio_user_tables WHERE relname = 'jobs'",
        )
    };
    let before = blocks();
    let store = open_with(database, options().pool(1)).await;
    for _ in 0..10 {
        round(&store, 10).await;
    }
    store.close().await;
    all_gone(database).await;
    (rows, blocks() - before)
}

/// Every hot operation of a queue, with claims of `most` jobs that must be there.
async fn round(store: &Store<Postgres>, most: i64) {
    let work = queue(store, "work");
    if most > 0 {
        enqueue(&work, 1).await;
        let batch = work.enqueue_batch(&[1; 20], EnqueueOpts::default()).await;
        assert_eq!(batch.unwrap().len(), 20);
    }
    let jobs = work.claim_batch("w", most.max(1)).await.unwrap();
    assert_eq!(i64::try_from(jobs.len()), Ok(most));
    if let Some(job) = jobs.first() {
        assert!(job.heartbeat(60).await.unwrap());
    }
    let landed = work.ack_batch(&jobs).await.unwrap();
    assert_eq!(landed, jobs.len());
    for nth in 0..most.min(2) {
        let job = work.claim_one("w").await.unwrap().unwrap();
        let landed = match nth {
            0 => job.ack().await,
            _ => job.retry("again", Some(0)).await,
        };
        assert!(landed.unwrap());
    }
}

/// Waits until no session is on the database: its figures are complete then.
async fn all_gone(database: &Database<'_>) {
    let sessions = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}'",
        database.name()
    );
    let server = database.server();
    eventually(async || server.sql("postgres", &sessions) == "0").await;
    // Up to version 14 a process collects what sessions say when they end, and tells of it twice a
    // second.
    if server.version() < 15 {
        tokio::time::sleep(Duration::from_millis(1200)).await;
    }
}

/// The blocks that claims of one job read do not follow how many priorities delayed jobs have,
/// nor how many jobs have expired.
#[tokio::test]
async fn a_claim_passes_by_no_delayed_and_no_expired_job() {
    // Priority, run_at, created_at and expiry of the n-th job.
    const READY: &str = "0, n, n, NULL";
    const DELAYED: &str = "9, 90000000000 + n, 0, NULL";
    const LEVELS: &str = "n, 90000000000 + n, 0, NULL";
    const EXPIRED: &str = "9, n, n, n + 100";
    let server = PostgresServer::start(&ServerOptions::new());
    let blocks = async |kinds: &[&str], found| {
        let database = server.create_database();
        blocks_of_claims(&database, kinds, found).await
    };
    for (others, found) in [(None, None), (Some(READY), Some(0))] {
        let beside = async |delayed| {
            let kinds: Vec<_> = others.into_iter().chain([delayed]).collect();
            blocks(&kinds, found).await
        };
        let (one, many) = (beside(DELAYED).await, beside(LEVELS).await);
        assert!(many <= one * 3, "{one} beside one priority, {many}");
    }
    let alone = blocks(&[READY], Some(0)).await;
    let beside = blocks(&[READY, EXPIRED], Some(0)).await;
    println!("{alone} {beside}");
    assert!(beside <= alone * 3 / 2, "{alone} alone, {beside}");
}

/// The blocks that ten claims read, of a queue with 20,000 jobs of each of these kinds.
async fn blocks_of_claims(database: &Database<'_>, kinds: &[&str], found: Option<i64>) -> i64 {
    let blocks = || -> i64 {
        let text = "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read
             FROM pg_statio_user_tables WHERE relname = 'jobs'";
        database.sql(text).parse().unwrap()
    };
    open_with(database, options()).await.close().await;
    for columns in kinds {
        database.sql(&format!(
            "INSERT INTO alkstore.jobs (queue, max_attempts, visibility_timeout_s, backoff_base_s,
                 payload, priority, run_at, created_at, expires_at)
             SELECT 'work', 9, 300, 5, '', {columns} FROM generate_series(1, 20000) AS n"
        ));
    }
    database.sql("VACUUM ANALYZE alkstore.jobs");
    all_gone(database).await;
    let before = blocks();
    let store = open_with(database, options().pool(1)).await;
    for _ in 0..10 {
        let claimed = queue(&store, "work").claim_one("w").await.unwrap();
        assert_eq!(claimed.map(|job| job.priority), found);
    }
    store.close().await;
    all_gone(database).await;
    blocks() - before
}
