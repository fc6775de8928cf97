//! What a server, or somebody who works on it, does to a process over time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use alkstore::{EnqueueOpts, Error, LISTENER_RECONNECTED, ScheduleOpts, Store, WakeReceiver};
use alkstore_contract_tests::postgres_server::{
    Database, PostgresServer, Proxy, ServerOptions, Stop,
};
use alkstore_postgres::{Postgres, PostgresOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::time::sleep;

use crate::support::{
    Warnings, database, enqueue, eventually, open, open_with, queue, soon, within, works,
};

/// Without the fallback: what is heard is heard by wakes alone.
fn wakes_alone() -> PostgresOptions {
    PostgresOptions::new().reread_interval(Duration::from_secs(100_000))
}

async fn heard_reconnect(wakes: &mut WakeReceiver) {
    while soon(wakes.recv()).await.unwrap().channel() != LISTENER_RECONNECTED {}
}

/// The primary and its standby, and an address that leads to either.
fn primary_and_standby() -> Option<(PostgresServer, PostgresServer, Proxy)> {
    let primary = PostgresServer::start_or_skip(&ServerOptions::new())?;
    let standby = primary.start_standby();
    let proxy = Proxy::to(primary.address());
    Some((primary, standby, proxy))
}

/// A store through the address, once what it made is on the standby too.
async fn through(
    proxy: &Proxy,
    database: &Database<'_>,
    standby: &PostgresServer,
) -> Store<Postgres> {
    let url = format!(
        "postgres://postgres@127.0.0.1:{}/{}",
        proxy.port(),
        database.name()
    );
    let store = Store::new(wakes_alone().open(&url).await.unwrap());
    works(&store).await;
    database.sql("CREATE TABLE last ()");
    let there = "SELECT count(*) FROM pg_class WHERE relname = 'last'";
    eventually(async || standby.try_sql(database.name(), there) == Ok("1".into())).await;
    store
}

/// Receivers live through a time in which the address leads to a standby, where nobody can
/// listen.
#[tokio::test]
async fn receivers_live_through_a_switch_to_a_standby() {
    let Some((primary, standby, proxy)) = primary_and_standby() else {
        return;
    };
    let database = primary.create_database();
    let store = through(&proxy, &database, &standby).await;
    let mut wakes = store.listen("channel").await.unwrap();
    let served = proxy.served();
    proxy.lead_to(standby.address());
    eventually(async || proxy.served() > served + 1).await;
    proxy.lead_to(primary.address());
    heard_reconnect(&mut wakes).await;
    open(&database).await.notify("channel", &1).await.unwrap();
    assert_eq!(soon(wakes.recv()).await.unwrap().channel(), "channel");
}

/// Writes fail in a way that may pass while the address leads to a standby, and work again as
/// soon as it leads to the primary.
#[tokio::test]
async fn writes_go_on_after_a_switch_to_a_standby() {
    let Some((primary, standby, proxy)) = primary_and_standby() else {
        return;
    };
    let database = primary.create_database();
    let store = through(&proxy, &database, &standby).await;
    let stream = store.stream("events").unwrap();
    proxy.lead_to(standby.address());
    for _ in 0..20 {
        let error = stream.publish(&1).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        assert!(store.begin_tx().await.is_err() || stream.publish(&1).await.is_err());
    }
    assert!(!stream.read_since(0, 1).await.unwrap().is_empty());
    proxy.lead_to(primary.address());
    eventually(async || stream.publish(&2).await.is_ok()).await;
    for _ in 0..20 {
        stream.publish(&2).await.unwrap();
        works(&store).await;
    }
}

/// Of a server that is gone for a while the log tells a few times, not at each attempt.
#[tokio::test]
async fn an_outage_is_told_of_a_few_times() {
    let Some(server) = PostgresServer::start_or_skip(&ServerOptions::new()) else {
        return;
    };
    let warnings = Warnings::capture();
    let database = server.create_database();
    let store = open_with(&database, wakes_alone()).await;
    let mut wakes = store.listen("channel").await.unwrap();
    server.stop(Stop::Fast);
    // Pauses of 50, 100, 200, 400, 800 ms and so on.
    sleep(Duration::from_millis(2500)).await;
    server.restart();
    heard_reconnect(&mut wakes).await;
    let told = warnings.count("not listening");
    assert!((1..=2).contains(&told), "{told} warnings");
}

/// A role whose password changes.
struct Role<'d> {
    database: &'d Database<'static>,
    name: String,
}

impl<'d> Role<'d> {
    fn new(database: &'d Database<'static>) -> Self {
        let name = format!("{}_role", database.name());
        database.sql(&format!(
            "CREATE ROLE {name} LOGIN PASSWORD 'first'; CREATE SCHEMA alkstore AUTHORIZATION {name}"
        ));
        Self { database, name }
    }

    fn url(&self, password: &str) -> String {
        let server = self.database.server();
        server.url_of_role(&self.name, password, self.database.name())
    }

    /// From now on only the second password is right, and nobody is logged in with the first.
    fn change_password(&self) {
        self.database
            .sql(&format!("ALTER ROLE {} PASSWORD 'second'", self.name));
        self.database
            .terminate(&format!("usename = '{}'", self.name));
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        let name = &self.name;
        let dropped = format!("DROP OWNED BY {name}; DROP ROLE {name}");
        self.database.try_sql(&dropped).ok();
    }
}

async fn all_go_on(store: &Store<Postgres>, wakes: &mut WakeReceiver) {
    heard_reconnect(wakes).await;
    let mut others = store.listen("other").await.unwrap();
    eventually(async || store.notify("other", &1).await.is_ok()).await;
    assert_eq!(soon(others.recv()).await.unwrap().channel(), "other");
    eventually(async || {
        let jobs = queue(store, "work");
        jobs.enqueue(&1, EnqueueOpts::default()).await.is_ok()
    })
    .await;
}

/// The listening session is made with the options that the application's pool has by then.
#[tokio::test]
async fn a_changed_password_of_the_pool_is_used() {
    let database = database();
    let role = Role::new(&database);
    let pool = PgPoolOptions::new()
        .connect(&role.url("first"))
        .await
        .unwrap();
    let engine = wakes_alone().over_pool(pool.clone()).await.unwrap();
    let store = Store::new(engine);
    let mut wakes = store.listen("channel").await.unwrap();
    role.change_password();
    let fresh: PgConnectOptions = role.url("second").parse().unwrap();
    pool.set_connect_options(fresh);
    all_go_on(&store, &mut wakes).await;
    store.close().await;
    pool.close().await;
}

/// By URL a hook gives fresh options, to the listening session and to all others.
#[tokio::test]
async fn a_hook_gives_fresh_options() {
    let database = database();
    let role = Role::new(&database);
    let password = Arc::new(Mutex::new("first"));
    let known = Arc::clone(&password);
    let options = wakes_alone().connect_options(move |options| {
        let password = *known.lock().unwrap();
        async move { Ok(options.password(password)) }
    });
    let engine = options.open(&role.url("wrong")).await.unwrap();
    assert!(
        !format!("{engine:?}").contains("wrong"),
        "a log must not have it"
    );
    let store = Store::new(engine);
    works(&store).await;
    let mut wakes = store.listen("channel").await.unwrap();
    *password.lock().unwrap() = "second";
    role.change_password();
    all_go_on(&store, &mut wakes).await;
    store.close().await;
}

/// A hook that fails is an error of the operation, which may pass.
#[tokio::test]
async fn a_hook_that_fails_may_not_next_time() {
    let options =
        PostgresOptions::new().connect_options(|_| async { Err("the vault is sealed".into()) });
    let error = options.open(&database().url()).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

/// On a server that is far away listening takes its time and works.
#[tokio::test]
async fn a_far_server_can_be_listened_to() {
    let Some(server) = PostgresServer::start_or_skip(&ServerOptions::new()) else {
        return;
    };
    let database = server.create_database();
    let proxy = Proxy::to(server.address());
    let far = format!(
        "postgres://postgres@127.0.0.1:{}/{}",
        proxy.port(),
        database.name()
    );
    let options = wakes_alone().listener_url(&far);
    let store = open_with(&database, options).await;
    proxy.set_delay(Duration::from_millis(450));
    let mut wakes = store.listen("channel").await.unwrap();
    store.notify("channel", &1).await.unwrap();
    assert_eq!(soon(wakes.recv()).await.unwrap().channel(), "channel");
}

/// A session that listened to very many channels comes back, and each receiver is told.
#[tokio::test(flavor = "multi_thread")]
async fn very_many_channels_are_listened_to_again() {
    const CHANNELS: usize = 20_000;
    let database = database();
    let store = open_with(&database, wakes_alone()).await;
    let mut receivers = Vec::new();
    let names: Vec<_> = (0..CHANNELS).map(|n| format!("channel {n}")).collect();
    for some in names.chunks(1000) {
        let listening = some.iter().map(|name| store.listen(name));
        for receiver in futures::future::join_all(listening).await {
            receivers.push(receiver.unwrap());
        }
    }
    let listener =
        "application_name = 'alkstore' AND (query LIKE 'LISTEN%' OR query LIKE 'SELECT 1%')";
    assert!(database.terminate(listener) >= 1);
    for wakes in &mut receivers {
        heard_reconnect(wakes).await;
    }
    open(&database)
        .await
        .notify("channel 19999", &1)
        .await
        .unwrap();
    let last = receivers.last_mut().unwrap();
    assert_eq!(soon(last.recv()).await.unwrap().channel(), "channel 19999");
}

/// Another session's flood of notifies holds up neither other tasks, nor who wants to listen.
#[tokio::test]
async fn a_flood_holds_up_nobody() {
    let database = Arc::new(database());
    let store = open_with(&database, wakes_alone()).await;
    let mut flooded = store.listen("flooded").await.unwrap();
    let late = Arc::new(Mutex::new(Duration::ZERO));
    let worst = Arc::clone(&late);
    let ticking = tokio::spawn(async move {
        loop {
            let began = Instant::now();
            sleep(Duration::from_millis(5)).await;
            let this = began.elapsed() - Duration::from_millis(5);
            let mut worst = worst.lock().unwrap();
            *worst = this.max(*worst);
        }
    });
    let flooding = Arc::clone(&database);
    let flood = tokio::task::spawn_blocking(move || {
        flooding
            .sql("SELECT count(pg_notify('flooded', n::text)) FROM generate_series(1, 200000) n")
    });
    let began = Instant::now();
    assert!(soon(flooded.recv()).await.is_some());
    // In the middle of it.
    sleep(Duration::from_millis(30)).await;
    let mut other = within(Duration::from_secs(10), store.listen("other"))
        .await
        .unwrap();
    assert_eq!(flood.await.unwrap(), "200000");
    open(&database).await.notify("other", &1).await.unwrap();
    while soon(other.recv()).await.unwrap().channel() != "other" {}
    ticking.abort();
    // Held up, a timer would be late by about all of the flood. On a machine with much else to do
    // it is late by a part of it.
    let (late, most) = (*late.lock().unwrap(), began.elapsed() / 4);
    let most = most.max(Duration::from_millis(250));
    assert!(late < most, "a timer was late by {late:?}");
}

/// A server whose queue of notifies is full, by a session that listens and stays in a
/// transaction; dropped, that session lets go.
async fn fill_notify_queue(server: &PostgresServer, database: &Database<'_>) -> PgConnection {
    // The queue is one for all databases; a session that is not in this one does not empty it.
    let mut stuck = PgConnection::connect(&server.url("postgres"))
        .await
        .unwrap();
    stuck.execute("LISTEN nothing").await.unwrap();
    stuck.execute("BEGIN; SELECT 1").await.unwrap();
    let fill = "SELECT count(pg_notify('filling', repeat('x', 7000) || n))
        FROM generate_series(1, 5) n";
    while database.try_sql(fill).is_ok() {}
    stuck
}

/// With a full queue of notifies all that is stored is stored. Its wakes go out once there is
/// room, and the log names the cause.
#[tokio::test]
async fn a_full_notify_queue_delays_wakes_alone() {
    // From that version on the queue can be made small.
    let options = ServerOptions::new()
        .oldest(17)
        .setting("max_notify_queue_pages", "64");
    let Some(server) = PostgresServer::start_or_skip(&options) else {
        return;
    };
    let database = server.create_database();
    let warnings = Warnings::capture();
    let (store, other) = (
        open_with(&database, wakes_alone()).await,
        open_with(&database, wakes_alone()).await,
    );
    let jobs = queue(&store, "work");
    let mut heard = [
        queue(&other, "work").listen().await.unwrap(),
        other.stream("stream").unwrap().listen().await.unwrap(),
        queue(&other, "in a transaction").listen().await.unwrap(),
        other.listen("channel").await.unwrap(),
    ];
    let stuck = fill_notify_queue(&server, &database).await;
    enqueue(&jobs, 1).await;
    jobs.enqueue_batch(&[1; 5], EnqueueOpts::default())
        .await
        .unwrap();
    store.stream("stream").unwrap().publish(&1).await.unwrap();
    let spec = ScheduleOpts::default();
    store
        .schedule("s", "@every 1h", "work", &1, spec)
        .await
        .unwrap();
    store
        .with_tx(async |tx| {
            tx.enqueue_tx("in a transaction", EnqueueOpts::default(), &1)
                .await?;
            tx.publish_tx("stream", &2).await?;
            tx.notify_tx("channel", &1).await
        })
        .await
        .unwrap();
    let mut own = PgConnection::connect(&database.url()).await.unwrap();
    let mut tx = own.begin().await.unwrap();
    store
        .join_tx(&mut tx)
        .publish_tx("stream", &3)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let error = store.notify("channel", &1).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    let counts = "SELECT (SELECT count(*) FROM alkstore.jobs), (SELECT head FROM alkstore.streams)";
    assert_eq!(database.sql(counts), "7|3");
    assert!((1..=2).contains(&warnings.count("NOTIFY queue is full")));

    drop(stuck);
    for wakes in &mut heard {
        assert!(soon(wakes.recv()).await.is_some());
    }
}

/// Every value of an option works or is refused at once.
#[tokio::test]
async fn options_at_their_limits() {
    let database = database();
    let endless = PostgresOptions::new()
        .pool(u32::MAX)
        .acquire_timeout(Duration::MAX)
        .operation_timeout(Duration::MAX)
        .reread_interval(Duration::MAX)
        .probe_interval(Duration::MAX)
        .wake_debounce(Duration::MAX);
    let store = open_with(&database, endless.clone()).await;
    works(&store).await;
    store.close().await;
    works(&open_with(&database, endless.clone().listen(false)).await).await;
    let days = Duration::from_secs(100 * 24 * 3600);
    let long = PostgresOptions::new()
        .acquire_timeout(days)
        .operation_timeout(days)
        .reread_interval(days)
        .probe_interval(days)
        .wake_debounce(days);
    works(&open_with(&database, long).await).await;
    let none = PostgresOptions::new()
        .pool(0)
        .reread_interval(Duration::ZERO)
        .probe_interval(Duration::ZERO)
        .wake_debounce(Duration::ZERO);
    works(&open_with(&database, none.clone()).await).await;
    works(&open_with(&database, none.listen(false)).await).await;
    for refused in [
        PostgresOptions::new().acquire_timeout(Duration::ZERO),
        PostgresOptions::new().operation_timeout(Duration::ZERO),
    ] {
        let error = refused.open(&database.url()).await.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    }
}

/// Without LISTEN and with no interval, waiting is not all that the process does.
#[tokio::test]
async fn no_interval_is_not_a_loop_without_end() {
    let database = database();
    let options = PostgresOptions::new()
        .listen(false)
        .reread_interval(Duration::ZERO);
    let store = open_with(&database, options).await;
    let mut wakes = store.listen("channel").await.unwrap();
    let began = Instant::now();
    for _ in 0..10 {
        assert!(soon(wakes.recv()).await.is_some());
    }
    assert!(
        began.elapsed() >= Duration::from_millis(40),
        "{:?}",
        began.elapsed()
    );
}

/// Outside of a runtime opening is an error like any other.
#[test]
fn opening_needs_a_runtime() {
    let opening = PostgresOptions::new().open("postgres://postgres@127.0.0.1:1/postgres");
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(opened) = std::pin::pin!(opening).poll(&mut context) else {
        panic!("it waits for what never comes");
    };
    let error = opened.unwrap_err();
    assert!(!error.is_transient(), "{error}");
}
