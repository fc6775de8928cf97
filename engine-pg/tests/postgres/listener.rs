//! Listening through everything that can happen to a session.

use std::time::{Duration, Instant};

use alkstore::{LISTENER_RECONNECTED, Store, WakeReceiver};
use alkstore_contract_tests::postgres_server::{Mode, PostgresServer, Proxy, ServerOptions, Stop};
use alkstore_postgres::{Postgres, PostgresOptions};

use crate::support::{database, enqueue, eventually, open, open_with, queue, soon, within};

/// Without the fallback: what is heard is heard by wakes alone.
fn wakes_alone() -> PostgresOptions {
    PostgresOptions::new()
        .reread_interval(Duration::from_secs(100_000))
        .probe_interval(Duration::from_millis(200))
}

/// The sessions that listen. What they run last is either of these.
const LISTENERS: &str = "query LIKE 'LISTEN%' OR query LIKE 'SELECT 1%'";

async fn heard_reconnect(wakes: &mut WakeReceiver) {
    while soon(wakes.recv()).await.unwrap().channel() != LISTENER_RECONNECTED {}
}

/// However much is waited for, the process has one listening session, beside the pool.
#[tokio::test]
async fn one_session_listens_for_everything() {
    let database = database();
    let store = open_with(&database, PostgresOptions::new().pool(3)).await;
    let mut receivers = Vec::new();
    for n in 0..300 {
        let name = format!("name {n}");
        receivers.push(store.listen(&name).await.unwrap());
        receivers.push(queue(&store, &name).listen().await.unwrap());
        receivers.push(store.stream(&name).unwrap().listen().await.unwrap());
    }
    let sessions = "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'alkstore'";
    assert!(database.sql(sessions).parse::<u32>().unwrap() <= 1 + 1);
    store.notify("name 7", &1).await.unwrap();
    assert_eq!(
        soon(receivers[7 * 3].recv()).await.unwrap().channel(),
        "name 7"
    );
    assert_eq!(receivers[8 * 3].try_recv().unwrap(), None);
    store.close().await;
    eventually(async || database.sql(sessions) == "0").await;
}

/// A session that is cut is made anew; every receiver is told, and nothing after is missed.
#[tokio::test]
async fn receivers_live_through_a_cut_session() {
    let database = database();
    let store = open_with(&database, wakes_alone()).await;
    let other = open(&database).await;
    let mut channel = store.listen("channel").await.unwrap();
    let mut events = store
        .stream("stream")
        .unwrap()
        .subscribe("c")
        .await
        .unwrap();
    for round in 0..3 {
        assert_eq!(database.terminate(LISTENERS), 1);
        // In the gap: nobody listens.
        other
            .stream("stream")
            .unwrap()
            .publish(&round)
            .await
            .unwrap();
        heard_reconnect(&mut channel).await;
        let event = soon(events.recv()).await.unwrap().unwrap();
        assert_eq!(event.payload_as::<i32>().unwrap(), round);
        other.notify("channel", &1).await.unwrap();
        assert_eq!(soon(channel.recv()).await.unwrap().channel(), "channel");
    }
}

/// Cutting every connection of the process ends no receiver and loses no event.
#[tokio::test]
async fn receivers_live_through_the_loss_of_all_connections() {
    let database = database();
    let store = open_with(&database, wakes_alone()).await;
    let mut events = store
        .stream("stream")
        .unwrap()
        .subscribe("c")
        .await
        .unwrap();
    let stream = store.stream("stream").unwrap();
    for round in 1..=5 {
        stream.publish(&round).await.unwrap();
        database.terminate("true");
        // What was in the middle of something may say so; it is for the caller to try again.
        let mut offset = None;
        eventually(async || {
            offset = stream.publish(&-round).await.ok();
            offset.is_some()
        })
        .await;
        let mut last = 0;
        while last < offset.unwrap() {
            match soon(events.recv()).await.unwrap() {
                Ok(event) => {
                    assert_eq!(event.offset, events.offset());
                    last = event.offset;
                }
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    }
    let all = stream.read_since(0, 100).await.unwrap();
    assert!(all.len() >= 10);
}

/// After a restart of the server, in whatever way it went down, all goes on within two seconds.
#[tokio::test]
async fn all_goes_on_after_a_restart() {
    let Some(server) = PostgresServer::start_or_skip(&ServerOptions::new()) else {
        return;
    };
    let database = server.create_database();
    let store = open_with(&database, wakes_alone()).await;
    let mut wakes = store.listen("channel").await.unwrap();
    let mut events = store
        .stream("stream")
        .unwrap()
        .subscribe("c")
        .await
        .unwrap();
    for (round, how) in (1..).zip([Stop::Fast, Stop::Immediate, Stop::Kill]) {
        server.stop(how);
        let error = store
            .stream("stream")
            .unwrap()
            .publish(&0)
            .await
            .unwrap_err();
        assert!(error.is_transient(), "{error}");
        server.restart();
        let back = Instant::now();
        heard_reconnect(&mut wakes).await;
        assert!(
            back.elapsed() < Duration::from_secs(2),
            "it took {:?}",
            back.elapsed()
        );
        store
            .stream("stream")
            .unwrap()
            .publish(&round)
            .await
            .unwrap();
        let event = loop {
            match soon(events.recv()).await.unwrap() {
                Ok(event) => break event,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        };
        assert_eq!(event.payload_as::<i64>().unwrap(), round);
        within(
            Duration::from_secs(2),
            store.with_tx(async |tx| tx.notify_tx("channel", &1).await),
        )
        .await
        .unwrap();
        assert_eq!(soon(wakes.recv()).await.unwrap().channel(), "channel");
    }
}

/// A store whose listening session alone goes through a network that fails.
async fn behind(proxy: &Proxy, database: &str, url: &str) -> Store<Postgres> {
    let through = format!("postgres://postgres@127.0.0.1:{}/{database}", proxy.port());
    let options = wakes_alone().listener_url(&through);
    Store::new(options.open(url).await.unwrap())
}

/// A network that is silent, refuses, or cuts is noticed, and once it is well the receivers are
/// told within two seconds.
#[tokio::test]
async fn a_network_that_fails_is_noticed() {
    let Some(server) = PostgresServer::start_or_skip(&ServerOptions::new()) else {
        return;
    };
    let database = server.create_database();
    let proxy = Proxy::to(server.address());
    let store = behind(&proxy, database.name(), &database.url()).await;
    let mut wakes = store.listen("channel").await.unwrap();
    let mut events = store
        .stream("stream")
        .unwrap()
        .subscribe("c")
        .await
        .unwrap();
    for (round, mode) in (1..).zip([Mode::Silent, Mode::Cut, Mode::Silent]) {
        let served = proxy.served();
        proxy.set(mode);
        // Noticed: there are attempts at a new session, and they fail.
        eventually(async || proxy.served() > served + 1).await;
        store
            .stream("stream")
            .unwrap()
            .publish(&round)
            .await
            .unwrap();
        proxy.set(Mode::Pass);
        let back = Instant::now();
        heard_reconnect(&mut wakes).await;
        assert!(
            back.elapsed() < Duration::from_secs(2),
            "{mode:?}: {:?}",
            back.elapsed()
        );
        let event = soon(events.recv()).await.unwrap().unwrap();
        assert_eq!(event.payload_as::<i64>().unwrap(), round);
        store.notify("channel", &1).await.unwrap();
        assert_eq!(soon(wakes.recv()).await.unwrap().channel(), "channel");
    }
}

/// `close` ends in time, whatever becomes of the session.
#[tokio::test]
async fn close_does_not_wait_for_a_silent_network() {
    let Some(server) = PostgresServer::start_or_skip(&ServerOptions::new()) else {
        return;
    };
    let database = server.create_database();
    let proxy = Proxy::to(server.address());
    let store = behind(&proxy, database.name(), &database.url()).await;
    let mut wakes = store.listen("channel").await.unwrap();
    proxy.set(Mode::Silent);
    within(Duration::from_secs(3), store.close()).await;
    assert!(soon(wakes.recv()).await.is_none());
    assert!(store.listen("channel").await.is_err());
}

/// Who wants to listen while there is no server is told so, and can later.
#[tokio::test]
async fn listening_fails_while_there_is_no_server() {
    let Some(server) = PostgresServer::start_or_skip(&ServerOptions::new()) else {
        return;
    };
    let database = server.create_database();
    let options = wakes_alone().acquire_timeout(Duration::from_millis(300));
    let store = open_with(&database, options).await;
    server.stop(Stop::Fast);
    let error = soon(store.listen("channel")).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    server.restart();
    eventually(async || store.listen("channel").await.is_ok()).await;
}

/// Dropping the last handle ends the session, unless a receiver is left to wake.
#[tokio::test]
async fn the_session_lives_as_long_as_someone_listens() {
    let database = database();
    let sessions = "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'alkstore'";
    let store = open_with(&database, wakes_alone()).await;
    let mut wakes = store.listen("channel").await.unwrap();
    drop(store);
    open(&database).await.notify("channel", &1).await.unwrap();
    assert_eq!(soon(wakes.recv()).await.unwrap().channel(), "channel");
    drop(wakes);
    eventually(async || database.sql(sessions) == "0").await;
}

/// A job that is enqueued while the server takes the session away is claimed without the help
/// of the fallback.
#[tokio::test]
async fn a_worker_misses_no_job() {
    let database = database();
    let store = open_with(&database, wakes_alone()).await;
    let other = open(&database).await;
    let jobs = queue(&store, "work");
    let mut wakes = jobs.listen().await.unwrap();
    for round in 0..40 {
        if round % 4 == 0 {
            database.terminate(LISTENERS);
        }
        enqueue(&queue(&other, "work"), round).await;
        let job = loop {
            if let Some(job) = jobs.claim_one("w").await.unwrap() {
                break job;
            }
            soon(wakes.recv()).await.unwrap();
        };
        assert_eq!(job.payload_as::<i64>().unwrap(), round);
        assert!(job.ack().await.unwrap());
    }
}
