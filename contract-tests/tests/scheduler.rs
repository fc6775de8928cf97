//! The scheduler's loop on a clock that stands still while there is something to do: minutes
//! of an outage pass in no time, and a timer is late by its own fault only.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "these are tests"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use alkstore::{Error, QueueOpts, Result, ScheduleOpts, StopToken, Store};
use alkstore_contract_tests::reference::{Database, Reach, Reference};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const AWAY: Reach = Reach::Refused { transient: true };
const BROKEN: Reach = Reach::Refused { transient: false };

fn process(database: &Arc<Database>) -> Store<Reference> {
    Store::new(Reference::new(Arc::clone(database)))
}

fn run(store: &Store<Reference>) -> (StopToken, JoinHandle<Result<()>>) {
    let (store, stop) = (store.clone(), StopToken::new());
    let token = stop.clone();
    (
        stop,
        tokio::spawn(async move { store.run_schedules(token).await }),
    )
}

async fn schedule(store: &Store<Reference>, spec: &str) {
    let opts = ScheduleOpts::default();
    store
        .schedule("tick", spec, "tick", &1, opts)
        .await
        .unwrap();
}

async fn claim(store: &Store<Reference>) -> Option<alkstore::Job> {
    let queue = store.queue("tick", QueueOpts::default()).unwrap();
    let job = queue.claim_one("w").await.unwrap()?;
    let claimed = job.job().clone();
    assert!(job.ack().await.unwrap());
    Some(claimed)
}

/// Counts the warnings of this thread.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if *event.metadata().level() == Level::WARN {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Each boundary fires when the clock shows it, also of a schedule that another process
/// registers while the leader sleeps, and a boundary costs a handful of calls.
#[tokio::test(start_paused = true)]
async fn a_boundary_fires_by_a_timer() {
    let database = Database::on_tokio_time();
    let (store, other) = (process(&database), process(&database));
    let (stop, runner) = run(&store);
    sleep(Duration::from_millis(7_310)).await;
    let queue = other.queue("tick", QueueOpts::default()).unwrap();
    let mut wakes = queue.listen().await.unwrap();
    schedule(&other, "@every 1s").await;
    let calls = database.calls();
    for _ in 0..100 {
        wakes.recv().await.unwrap();
        let time = database.time();
        let late = Duration::from_nanos(time.subsec_nanos().into());
        assert!(late <= Duration::from_millis(3), "{late:?} late");
        let job = claim(&other).await.unwrap();
        let second = i64::try_from(time.as_secs()).unwrap();
        assert_eq!((job.created_at, job.run_at), (second, second));
        assert_eq!(claim(&other).await, None);
    }
    // Three of each hundred calls are this test's.
    let calls = database.calls() - calls;
    assert!(calls < 1_200, "{calls} calls for 100 boundaries");
    stop.cancel();
    runner.await.unwrap().unwrap();
}

/// Without anything to do a leader makes three calls for each renewal.
#[tokio::test(start_paused = true)]
async fn an_idle_leader_makes_few_calls() {
    let database = Database::on_tokio_time();
    let store = process(&database);
    schedule(&store, "@every 1h").await;
    let (stop, runner) = run(&store);
    sleep(Duration::from_secs(60)).await;
    let before = database.calls();
    sleep(Duration::from_secs(600)).await;
    let calls = database.calls() - before;
    assert!((300..=400).contains(&calls), "{calls} calls in ten minutes");
    stop.cancel();
    runner.await.unwrap().unwrap();
}

/// An outage that is shorter than the lease ends no runner, and is told of a few times.
#[tokio::test(start_paused = true)]
async fn a_leader_outlives_an_outage_that_is_shorter_than_its_lease() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    for reach in [AWAY, BROKEN] {
        let database = Database::on_tokio_time();
        let store = process(&database);
        schedule(&store, "@every 1s").await;
        let (stop, runner) = run(&store);
        sleep(Duration::from_secs(20)).await;
        while claim(&store).await.is_some() {}
        warnings.0.store(0, Ordering::SeqCst);
        database.set_reach(reach);
        let calls = database.calls();
        sleep(Duration::from_millis(9_500)).await;
        let calls = database.calls() - calls;
        assert!(calls <= 8, "{calls} attempts");
        database.set_reach(Reach::Open);
        sleep(Duration::from_secs(5)).await;
        let mut fired = 0;
        while claim(&store).await.is_some() {
            fired += 1;
        }
        assert!((13..=15).contains(&fired), "{fired} boundaries");
        let warnings = warnings.0.load(Ordering::SeqCst);
        assert!((1..=5).contains(&warnings), "{warnings} warnings");
        stop.cancel();
        runner.await.unwrap().unwrap();
    }
}

/// An outage that is longer ends the leader when its lease does, with what happened.
#[tokio::test(start_paused = true)]
async fn a_leader_gives_up_with_its_lease_and_says_why() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    for (reach, cause) in [
        (AWAY, "the database is away"),
        (BROKEN, "the database is broken"),
    ] {
        let database = Database::on_tokio_time();
        let store = process(&database);
        schedule(&store, "@every 1s").await;
        let (_stop, runner) = run(&store);
        sleep(Duration::from_secs(20)).await;
        warnings.0.store(0, Ordering::SeqCst);
        database.set_reach(reach);
        let begun = Instant::now();
        let error = runner.await.unwrap().unwrap_err();
        let lasted = begun.elapsed().as_secs();
        assert!((9..=15).contains(&lasted), "{lasted} seconds");
        assert!(matches!(error, Error::Database(_)), "{error:?}");
        assert_eq!(error.is_transient(), reach == AWAY);
        assert!(format!("{error:#}").contains(cause), "{error:#}");
        let warnings = warnings.0.load(Ordering::SeqCst);
        assert!((1..=5).contains(&warnings), "{warnings} warnings");
    }
}

/// A runner that stands by waits for a database that is away, however long that is.
#[tokio::test(start_paused = true)]
async fn a_stand_by_outlives_any_outage() {
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let database = Database::on_tokio_time();
    let store = process(&database);
    schedule(&store, "@every 1s").await;
    database.set_reach(AWAY);
    let (stop, runner) = run(&store);
    sleep(Duration::from_secs(3600)).await;
    let warnings = warnings.0.load(Ordering::SeqCst);
    assert!((1..=12).contains(&warnings), "{warnings} warnings");
    database.set_reach(Reach::Open);
    sleep(Duration::from_secs(6)).await;
    assert!(claim(&store).await.is_some());
    stop.cancel();
    runner.await.unwrap().unwrap();
}

/// A runner that is stopped ends, though the database does not answer.
#[tokio::test(start_paused = true)]
async fn a_runner_ends_though_the_database_is_silent() {
    for led_for in [0, 20] {
        let database = Database::on_tokio_time();
        let store = process(&database);
        schedule(&store, "@every 1s").await;
        let (stop, runner) = run(&store);
        if led_for > 0 {
            sleep(Duration::from_secs(led_for)).await;
        }
        database.set_reach(Reach::Silent);
        sleep(Duration::from_secs(8)).await;
        assert!(!runner.is_finished());
        stop.cancel();
        let ended = timeout(Duration::from_secs(3), runner).await;
        ended.expect("it ends").unwrap().unwrap();
    }
}
