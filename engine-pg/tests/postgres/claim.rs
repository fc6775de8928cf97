//! Claims under the planner's whims, and with much in the way.

use std::time::Duration;

use alkstore::{EnqueueOpts, QueueOpts, Store};
use sqlx::PgPool;

use crate::support::{database, enqueue, open, queue};

/// However the server plans it, a claim takes the head of the queue and no job more.
#[tokio::test]
async fn a_claim_takes_no_more_under_any_plan() {
    let database = database();
    let settings = [
        "work_mem = '64kB'",
        "enable_hashjoin = off",
        "enable_nestloop = off",
        "enable_mergejoin = off",
        "enable_material = off",
        "enable_hashagg = off",
        "enable_indexscan = off",
        "enable_bitmapscan = off",
        "enable_sort = off",
        "enable_memoize = off",
        "plan_cache_mode = force_generic_plan",
        "plan_cache_mode = force_custom_plan",
        "random_page_cost = 1000",
    ];
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        for setting in random.choose_multiple(settings, 4) {
            database.sql(&format!("ALTER DATABASE {} SET {setting}", database.name()));
        }
        // What is switched off is expensive to the planner, and would be compiled: the same plans,
        // half a second later each.
        database.sql(&format!("ALTER DATABASE {} SET jit = off", database.name()));
        // An application's pool: nothing is set in its sessions but what the database sets.
        let pool = PgPool::connect(&database.url()).await.unwrap();
        let engine = alkstore_postgres::PostgresOptions::new()
            .over_pool(pool)
            .await
            .unwrap();
        let queue = queue(&Store::new(engine), &format!("work {seed}"));
        let mut ids = Vec::new();
        for priority in [1, 3, 2] {
            let opts = EnqueueOpts::default().priority(priority);
            ids.push(queue.enqueue_batch(&vec![0; 100], opts).await.unwrap());
        }
        let expected: Vec<_> = [1, 2, 0]
            .iter()
            .flat_map(|level| ids[*level].clone())
            .collect();
        for expected in expected.chunks(5).take(42) {
            let claimed = queue.claim_batch("w", 5).await.unwrap();
            let claimed: Vec<_> = claimed.iter().map(|job| job.id).collect();
            assert_eq!(claimed, expected, "seed {seed}");
        }
        database.sql(&format!("ALTER DATABASE {} RESET ALL", database.name()));
    }
}

/// Rows that a claim of ten looks at, whatever else its queue holds: twenty for each at most.
#[tokio::test]
async fn a_claim_is_flat() {
    const MANY: i64 = 20_000;
    let database = database();
    let store = open(&database).await;
    let work = queue(&store, "work");
    // Statements are planned while the tables are empty and stay as they are.
    enqueue(&work, 1).await;
    work.claim_one("w")
        .await
        .unwrap()
        .unwrap()
        .ack()
        .await
        .unwrap();
    database.sql(&format!(
        "INSERT INTO alkstore.jobs (queue, priority, run_at, max_attempts, created_at,
             visibility_timeout_s, backoff_base_s, payload, claim_expires_at, expires_at)
         SELECT 'work', 5, CASE WHEN kind = 'delayed' THEN 99999999999 ELSE 0 END, 9, 0, 300, 5, '',
             CASE WHEN kind = 'held' THEN 99999999999 END,
             CASE WHEN kind = 'expiring' THEN 99999999999 END
         FROM generate_series(1, {MANY}),
             unnest(ARRAY['ready', 'delayed', 'held', 'expiring']) AS kind
         ORDER BY random();
         INSERT INTO alkstore.dead_jobs (id, queue, priority, run_at, attempts, max_attempts,
             created_at, visibility_timeout_s, backoff_base_s, payload, died_at)
         SELECT -id, 'work', 5, 0, 1, 1, 0, 1, 1, '', 0 FROM generate_series(1, {MANY}) AS id;"
    ));
    let rows_read = || -> i64 {
        let sum = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)
             FROM pg_stat_user_tables WHERE relname = 'jobs'";
        database.sql(sum).parse().unwrap()
    };
    // The statistics of a session arrive when it has idled, at the latest when it is closed.
    store.close().await;
    let before = settled(&rows_read).await;
    let store = open(&database).await;
    for _ in 0..5 {
        assert_eq!(
            queue(&store, "work")
                .claim_batch("w", 10)
                .await
                .unwrap()
                .len(),
            10
        );
    }
    store.close().await;
    let read = settled(&rows_read).await - before;
    assert!(read <= 5 * 10 * 20, "{read} rows were read");
}

/// What a claim does with its job goes to that job, past no other claim of the queue: the index
/// of their deadlines is looked at once for each claim, and for nothing else.
#[tokio::test]
async fn a_handle_finds_its_job_at_once() {
    const ROUNDS: i64 = 10;
    let database = database();
    let looks = || -> i64 {
        let scans = "SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_indexes
             WHERE indexrelname = 'jobs_claimed'";
        database.sql(scans).parse().unwrap()
    };
    let store = open(&database).await;
    let work = queue(&store, "work");
    work.enqueue_batch(&[1; 200], EnqueueOpts::default())
        .await
        .unwrap();
    for _ in 0..ROUNDS {
        let jobs = work.claim_batch("w", 10).await.unwrap();
        assert!(jobs[0].heartbeat(60).await.unwrap());
        assert_eq!(work.ack_batch(&jobs).await.unwrap(), 10);
        let job = work.claim_one("w").await.unwrap().unwrap();
        assert!(job.ack().await.unwrap());
        let job = work.claim_one("w").await.unwrap().unwrap();
        assert!(job.retry("again", Some(0)).await.unwrap());
    }
    store.close().await;
    let looks = settled(&looks).await;
    assert!(looks <= 3 * ROUNDS, "{looks} looks");
}

/// A figure once it stands still.
async fn settled(figure: &impl Fn() -> i64) -> i64 {
    let mut last = figure();
    let mut same = 0;
    while same < 10 {
        tokio::time::sleep(Duration::from_millis(30)).await;
        let now = figure();
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last
}

/// Batches that end, sweep, cancel and claim the same jobs never wait in a circle.
#[tokio::test(flavor = "multi_thread")]
async fn batches_do_not_deadlock() {
    let database = database();
    let store = open(&database).await;
    let payloads = vec![0; 300];
    let tasks = (0..8).map(|n| {
        let (store, payloads) = (store.clone(), payloads.clone());
        tokio::spawn(async move {
            let opts = QueueOpts::default().visibility_timeout(Duration::from_secs(1));
            let queue = store.queue("work", opts).unwrap();
            let mut random = fastrand::Rng::with_seed(n);
            for _ in 0..15 {
                let expire = EnqueueOpts::default().expires(Duration::from_secs(random.u64(0..2)));
                queue.enqueue_batch(&payloads[..50], expire).await.unwrap();
                let mut jobs = queue.claim_batch("w", 60).await.unwrap();
                random.shuffle(&mut jobs);
                match random.u8(0..4) {
                    0 => drop(queue.ack_batch(&jobs).await.unwrap()),
                    1 => drop(queue.sweep_expired().await.unwrap()),
                    2 => {
                        for job in jobs.iter().take(5) {
                            queue.cancel(job.id).await.unwrap();
                        }
                    }
                    _ => {
                        let mut tx = store.begin_tx().await.unwrap();
                        for job in jobs.iter().take(2) {
                            tx.ack_tx(job).await.unwrap();
                        }
                        tx.commit().await.unwrap();
                    }
                }
            }
        })
    });
    for task in futures::future::join_all(tasks).await {
        task.unwrap();
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(database.sql(deadlocks), "0");
}
