//! Dead rows on Postgres: what a snapshot that somebody holds costs, and what autovacuum saves.

use std::time::{Duration, Instant};

use alkstore::EnqueueOpts;
use alkstore_benches::PAYLOAD;
use sqlx::{Connection as _, PgConnection};

use crate::arguments::Arguments;
use crate::subject::{Fresh, Kind};
use crate::table::{self, quantile};
use crate::work::{Work, micros};

/// So many jobs are enqueued together, and then claimed and acked one by one.
const JOBS: usize = 20;

/// A run is shown in so many parts.
const PARTS: u32 = 10;

/// How long a run lasts.
fn lasting(arguments: &Arguments) -> Duration {
    arguments.lasting(Duration::from_millis(
        arguments.length.pick(100, 500, 60_000),
    ))
}

/// How long claims and acks took.
#[derive(Debug, Default)]
struct Churn {
    claims: Vec<Duration>,
    acks: Vec<Duration>,
}

impl Churn {
    /// Enqueues, claims and acks for so long.
    async fn run(work: &Work, time: Duration) -> Self {
        let (begin, queue) = (Instant::now(), &work.queues[0]);
        let mut churn = Self::default();
        while begin.elapsed() < time {
            let enqueued = queue.enqueue_batch(&[PAYLOAD; JOBS], EnqueueOpts::default());
            enqueued.await.expect("the jobs are enqueued");
            for _ in 0..JOBS {
                let claim = Instant::now();
                let job = queue.claim_one("worker").await.expect("a claim succeeds");
                let ack = Instant::now();
                let landed = job.expect("a job is ready").ack().await;
                assert!(landed.expect("an ack succeeds"), "the claim holds");
                churn.acks.push(ack.elapsed());
                churn.claims.push(ack - claim);
            }
        }
        churn
    }

    /// Medians: of a claim, of an ack.
    fn cells(&mut self) -> [String; 2] {
        [&mut self.claims, &mut self.acks].map(|times| micros(quantile(times, 0.5)))
    }
}

/// The jobs' dead tuples, and the size in kB of the index that claims walk.
fn dead(fresh: &Fresh) -> [String; 2] {
    let tuples = fresh.sql(
        "SELECT n_dead_tup FROM pg_stat_user_tables
         WHERE schemaname = 'alkstore' AND relname = 'jobs'",
    );
    let size = fresh.sql("SELECT pg_relation_size('alkstore.jobs_pending') / 1024");
    [tuples, size]
}

/// Jobs come and go while a snapshot is held; then it is released, then VACUUM has run.
pub(crate) async fn snapshot(arguments: &Arguments) {
    table::begin(
        "A snapshot held on Postgres: µs for a call, one task",
        &[
            "when",
            "jobs done",
            "dead tuples",
            "jobs_pending, kB",
            "claim",
            "ack",
        ],
    );
    let fresh = Kind::Postgres.fresh();
    let store = Kind::Postgres.open(&fresh.url).await;
    let work = Work::on(&store, 1);
    let (time, mut done) = (lasting(arguments), 0);
    let mut show = |when: &str, churn: &mut Churn| {
        done += churn.acks.len();
        let mut cells = vec![when.to_owned(), done.to_string()];
        cells.extend(dead(&fresh));
        cells.extend(churn.cells());
        table::row(&cells);
    };
    let part = time / PARTS;
    show("before", &mut Churn::run(&work, part).await);
    let mut holder = PgConnection::connect(&fresh.url)
        .await
        .expect("it connects");
    for sql in [
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "SELECT count(*) FROM alkstore.jobs",
    ] {
        let run = sqlx::query(sql).execute(&mut holder).await;
        run.expect("the snapshot is taken");
    }
    for number in 1..=PARTS {
        eprintln!("postgres: a snapshot held, part {number} of {PARTS}");
        let held = (part * number).as_secs_f64();
        let when = format!("held, {held:.1} s");
        show(&when, &mut Churn::run(&work, part).await);
    }
    holder.close().await.expect("the snapshot is released");
    show("released", &mut Churn::run(&work, part).await);
    fresh.sql("VACUUM alkstore.jobs");
    show("after VACUUM", &mut Churn::run(&work, part).await);
    store.close().await;
}

/// The same without a snapshot, under several settings of autovacuum.
pub(crate) async fn autovacuum(arguments: &Arguments) {
    const EAGER: &str = "ALTER TABLE alkstore.jobs SET (autovacuum_vacuum_scale_factor = 0, \
                         autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)";
    const OFF: &str = "ALTER TABLE alkstore.jobs SET (autovacuum_enabled = off)";
    table::begin(
        "Autovacuum on Postgres, nobody holding a snapshot: µs for a call, one task",
        &[
            "autovacuum of the jobs",
            "jobs done",
            "vacuums",
            "dead tuples",
            "jobs_pending, kB",
            "claim, first tenth",
            "ack, first tenth",
            "claim, last tenth",
            "ack, last tenth",
        ],
    );
    // The second settings are the server's: how often it looks at a database.
    let cases = [
        ("off", OFF, "1min"),
        ("as the server has it", "SELECT", "1min"),
        ("threshold 1000, no delay", EAGER, "1min"),
        ("the same, naptime 1 s", EAGER, "1s"),
    ];
    for (name, settings, naptime) in cases {
        eprintln!("postgres: autovacuum {name}");
        let fresh = Kind::Postgres.fresh();
        let store = Kind::Postgres.open(&fresh.url).await;
        fresh.sql(settings);
        fresh.sql(&format!(
            "ALTER SYSTEM SET autovacuum_naptime = '{naptime}'"
        ));
        fresh.sql("SELECT pg_reload_conf()");
        let work = Work::on(&store, 1);
        let part = lasting(arguments) / PARTS;
        let mut first = Churn::run(&work, part).await;
        let between = Churn::run(&work, part * (PARTS - 2)).await;
        let mut last = Churn::run(&work, part).await;
        let done = first.acks.len() + between.acks.len() + last.acks.len();
        let vacuums = fresh.sql(
            "SELECT autovacuum_count FROM pg_stat_user_tables
             WHERE schemaname = 'alkstore' AND relname = 'jobs'",
        );
        let mut cells = vec![name.to_owned(), done.to_string(), vacuums];
        cells.extend(dead(&fresh));
        cells.extend(first.cells());
        cells.extend(last.cells());
        table::row(&cells);
        store.close().await;
    }
    // Whatever comes later is on the server's own setting again.
    let fresh = Kind::Postgres.fresh();
    fresh.sql("ALTER SYSTEM RESET autovacuum_naptime");
    fresh.sql("SELECT pg_reload_conf()");
}
