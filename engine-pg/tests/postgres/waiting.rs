//! What waits for others: with a limit, without the pool's connections, and not for ever in the
//! server.

use std::time::{Duration, Instant};

use alkstore::{EnqueueOpts, Store};
use alkstore_contract_tests::postgres_server::Database;
use alkstore_postgres::{Postgres, PostgresOptions};
use futures::future::join_all;
use sqlx::{Connection as _, Executor as _, PgConnection, PgPool};
use tokio::time::timeout;

use crate::support::{
    database, enqueue, eventually, open, open_transactions, open_with, queue, soon, within,
};

/// Another process that holds streams or claims.
struct Holder(PgConnection);

impl Holder {
    async fn of(database: &Database<'_>, sql: &'static str) -> Self {
        let mut connection = PgConnection::connect(&database.url()).await.unwrap();
        connection.execute("BEGIN").await.unwrap();
        connection.execute(sql).await.unwrap();
        Self(connection)
    }

    async fn of_streams(database: &Database<'_>) -> Self {
        Self::of(database, "UPDATE alkstore.streams SET head = head").await
    }

    async fn release(mut self) {
        self.0.execute("ROLLBACK").await.unwrap();
    }
}

/// How many sessions of the engine wait for a lock.
fn waiting(database: &Database<'_>) -> String {
    database.sql(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
         AND application_name = 'alkstore' AND wait_event_type = 'Lock'",
    )
}

fn sessions(database: &Database<'_>) -> usize {
    let sessions = database.sql(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
         AND application_name = 'alkstore'",
    );
    sessions.parse().unwrap()
}

fn impatient(most: u64) -> PostgresOptions {
    let options = PostgresOptions::new().listen(false);
    options.operation_timeout(Duration::from_millis(most))
}

/// An enqueue into `held` waits in the server for an advisory lock of this connection.
async fn hold_enqueues(database: &Database<'_>) -> PgConnection {
    database.sql(
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF NEW.queue = 'held' THEN PERFORM pg_advisory_xact_lock(1); END IF;
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
    connection
}

/// Publishers that gave up, in whatever way, neither wait in the server nor land later.
#[tokio::test]
async fn a_publish_that_is_given_up_is_gone() {
    let database = database();
    open(&database).await;
    let store = open_with(&database, impatient(500).pool(2)).await;
    let stream = store.stream("stream").unwrap();
    stream.publish(&0).await.unwrap();
    let holder = Holder::of_streams(&database).await;
    for n in 0..4 {
        if n % 2 == 0 {
            let started = Instant::now();
            let error = soon(stream.publish(&n)).await.unwrap_err();
            assert!(error.is_transient(), "{error}");
            assert!(
                format!("{error:#}").contains("another transaction"),
                "{error}"
            );
            assert!(started.elapsed() < Duration::from_millis(1500));
        } else {
            timeout(Duration::from_millis(20), stream.publish(&n))
                .await
                .unwrap_err();
        }
        assert!(sessions(&database) <= 2);
    }
    eventually(async || waiting(&database) == "0").await;
    holder.release().await;
    assert_eq!(stream.publish(&9).await.unwrap(), 2);
}

/// What waits in the server for another reason is cancelled there, and its connection counts
/// until it is.
#[tokio::test]
async fn a_statement_that_is_given_up_is_cancelled() {
    for pool in [1, 2] {
        let database = database();
        open(&database).await;
        let store = open_with(&database, impatient(500).pool(pool)).await;
        let _holder = hold_enqueues(&database).await;
        let held = queue(&store, "held");
        for n in 0..2 {
            let opts = EnqueueOpts::default;
            let error = soon(held.enqueue(&n, opts())).await.unwrap_err();
            assert!(error.is_transient(), "{error}");
            timeout(Duration::from_millis(30), held.enqueue(&n, opts()))
                .await
                .unwrap_err();
            // One more for a moment, which cancels.
            assert!(sessions(&database) <= pool as usize + 1);
        }
        within(Duration::from_secs(4), async {
            while waiting(&database) != "0" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert_eq!(database.sql("SELECT count(*) FROM alkstore.jobs"), "0");
        enqueue(&queue(&store, "free"), 1).await;
    }
}

/// A transaction that is dropped with a statement on its way lets go of what it holds, on the
/// engine's own connections and on an application's.
#[tokio::test]
async fn a_transaction_that_is_dropped_in_a_statement_holds_nothing() {
    let database = database();
    let pool = PgPool::connect(&database.url()).await.unwrap();
    let stores = [
        open_with(&database, PostgresOptions::new().pool(1).listen(false)).await,
        Store::new(PostgresOptions::new().over_pool(pool).await.unwrap()),
        open_with(
            &database,
            PostgresOptions::new().listen(false).statement_cache(false),
        )
        .await,
    ];
    let other = open(&database).await;
    let stream = |name| other.stream(name).unwrap();
    stream("held").publish(&0).await.unwrap();
    let holder = Holder::of_streams(&database).await;
    for store in stores {
        let mut tx = store.begin_tx().await.unwrap();
        tx.publish_tx("own", &1).await.unwrap();
        let publish = tx.publish_tx("held", &1);
        timeout(Duration::from_millis(50), publish)
            .await
            .unwrap_err();
        drop(tx);
        within(Duration::from_secs(1), stream("own").publish(&2))
            .await
            .unwrap();
        eventually(async || open_transactions(&database) == "1").await;
    }
    holder.release().await;
    assert_eq!(stream("held").publish(&9).await.unwrap(), 2);
}

/// Two transactions of one task that publish to one stream: the second ends, in time, with an
/// error that says why, and the first goes on.
#[tokio::test]
async fn transactions_of_one_task_do_not_wait_for_each_other_for_ever() {
    let database = database();
    open(&database).await;
    let pool = PgPool::connect(&database.url()).await.unwrap();
    let stores = [
        open_with(&database, impatient(500)).await,
        open_with(&database, impatient(500).statement_cache(false)).await,
        Store::new(impatient(500).over_pool(pool).await.unwrap()),
    ];
    for store in stores {
        let mut first = store.begin_tx().await.unwrap();
        let mut second = store.begin_tx().await.unwrap();
        first.publish_tx("stream", &1).await.unwrap();
        let started = Instant::now();
        let error = soon(second.publish_tx("stream", &2)).await.unwrap_err();
        assert!(started.elapsed() < Duration::from_millis(1500));
        assert!(error.is_transient(), "{error}");
        assert!(
            format!("{error:#}").contains("another transaction"),
            "{error}"
        );
        second.rollback().await.unwrap();
        first.commit().await.unwrap();
    }
}

/// The same in transactions that the application began.
#[tokio::test]
async fn an_applications_transactions_do_not_wait_for_each_other_for_ever() {
    let database = database();
    open(&database).await;
    let store = open_with(&database, impatient(500)).await;
    let pool = PgPool::connect(&database.url()).await.unwrap();
    let mut first = pool.begin().await.unwrap();
    let mut second = pool.begin().await.unwrap();
    let publish = store.join_tx(&mut first).publish_tx("stream", &1).await;
    publish.unwrap();
    let error = soon(store.join_tx(&mut second).publish_tx("stream", &2))
        .await
        .unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(
        format!("{error:#}").contains("another transaction"),
        "{error}"
    );
    drop(second);
    first.commit().await.unwrap();
    assert_eq!(
        store.stream("stream").unwrap().publish(&3).await.unwrap(),
        2
    );
}

/// Those who wait for held streams do not use up the connections.
#[tokio::test]
async fn who_waits_for_a_stream_leaves_the_pool_to_others() {
    let database = database();
    let options = PostgresOptions::new().pool(4).listen(false);
    let store = open_with(&database, options).await;
    let streams: Vec<_> = (0..12)
        .map(|n| store.stream(&format!("stream {n}")).unwrap())
        .collect();
    for stream in &streams {
        stream.publish(&0).await.unwrap();
    }
    let holder = Holder::of_streams(&database).await;
    let publish = |stream: alkstore::Stream<Postgres>| {
        tokio::spawn(async move { stream.publish(&1).await.unwrap() })
    };
    let publishers: Vec<_> = streams.into_iter().map(publish).collect();
    eventually(async || waiting(&database) != "0").await;
    let work = queue(&store, "work");
    let started = Instant::now();
    for n in 0..20 {
        enqueue(&work, n).await;
        assert!(
            work.claim_one("w")
                .await
                .unwrap()
                .unwrap()
                .ack()
                .await
                .unwrap()
        );
        store.stream("free").unwrap().publish(&n).await.unwrap();
    }
    let took = started.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    holder.release().await;
    for offset in soon(join_all(publishers)).await {
        assert_eq!(offset.unwrap(), 2);
    }
}

/// What the server's own limit ends is transient, and ends alone.
#[tokio::test]
async fn a_statement_that_the_server_cancels_may_be_tried_again() {
    let database = database();
    let name = database.name();
    database.sql(&format!(
        "ALTER DATABASE \"{name}\" SET statement_timeout = 200"
    ));
    let store = open_with(&database, impatient(3000)).await;
    let _holder = hold_enqueues(&database).await;
    let held = queue(&store, "held");
    let enqueues = (0..6).map(|n| {
        let held = held.clone();
        async move { held.enqueue(&n, EnqueueOpts::default()).await }
    });
    let started = Instant::now();
    for error in soon(join_all(enqueues)).await {
        let error = error.unwrap_err();
        assert!(error.is_transient(), "{error}");
        assert!(
            format!("{error:#}").contains("statement_timeout"),
            "{error}"
        );
    }
    assert!(started.elapsed() < Duration::from_secs(2));
}

/// A lease counts from when its row was had.
#[tokio::test]
async fn a_lease_does_not_begin_while_it_waits() {
    let database = database();
    let store = open(&database).await;
    let work = queue(&store, "work");
    enqueue(&work, 1).await;
    let job = work.claim_one("w").await.unwrap().unwrap();
    let lock = store.try_lock("renewed", "me", 30).await.unwrap().unwrap();
    let acquired = store.try_lock("acquired", "me", 30).await.unwrap().unwrap();
    acquired.release().await.unwrap();
    let holder = Holder::of(
        &database,
        "SELECT FROM alkstore.jobs, alkstore.locks FOR UPDATE",
    )
    .await;
    let waiting = tokio::spawn(async move {
        tokio::join!(
            async { job.heartbeat(1).await.unwrap() },
            async { lock.renew(1).await.unwrap() },
            async { store.try_lock("acquired", "me", 1).await.unwrap().is_some() },
        )
    });
    tokio::time::sleep(Duration::from_millis(2100)).await;
    holder.release().await;
    assert_eq!(soon(waiting).await.unwrap(), (true, true, true));
    let holds = database.sql(
        "SELECT bool_and(deadline >= floor(date_part('epoch', clock_timestamp())))
         FROM (SELECT claim_expires_at FROM alkstore.jobs
             UNION ALL SELECT expires_at FROM alkstore.locks) AS leases (deadline)",
    );
    assert_eq!(holds, "t");
}
