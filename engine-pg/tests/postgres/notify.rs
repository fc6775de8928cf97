//! What other Postgres clients see of notifies, and how many there are.

use std::time::Duration;

use alkstore::{EnqueueOpts, QueueOpts};
use alkstore_postgres::PostgresOptions;
use sqlx::postgres::PgListener;

use crate::support::{database, enqueue, eventually, open, open_with, queue, soon};

/// Any client hears a channel of up to 63 bytes by its own name, with the encoded payload.
#[tokio::test]
async fn any_client_hears_a_channel_by_its_name() {
    let database = database();
    let store = open(&database).await;
    let mut client = PgListener::connect(&database.url()).await.unwrap();
    for name in ["a", "Odd \"name\"\n", &"é".repeat(31), &"x".repeat(63)] {
        client.listen(name).await.unwrap();
        store.notify(name, &"päyload").await.unwrap();
        let heard = soon(client.recv()).await.unwrap();
        assert_eq!((heard.channel(), heard.payload()), (name, "\"päyload\""));
        store
            .with_tx(async |tx| tx.notify_tx(name, &1).await)
            .await
            .unwrap();
        assert_eq!(soon(client.recv()).await.unwrap().payload(), "1");
    }
}

/// Names that the server would cut are told apart to their last byte.
#[tokio::test]
async fn long_names_are_told_apart() {
    let database = database();
    let (store, other) = (open(&database).await, open(&database).await);
    for length in [57, 58, 63, 64, 255] {
        let stem = "n".repeat(length - 1);
        let (right, wrong) = (format!("{stem}a"), format!("{stem}b"));
        let mut heard = other.listen(&right).await.unwrap();
        let mut silent = other.listen(&wrong).await.unwrap();
        store.notify(&right, &1).await.unwrap();
        assert_eq!(soon(heard.recv()).await.unwrap().channel(), right);
        assert_eq!(silent.try_recv().unwrap(), None);
    }
}

/// A burst of changes outside of transactions has few notifies, and one after the last change.
#[tokio::test]
async fn a_burst_has_few_notifies() {
    let database = database();
    let options = PostgresOptions::new().wake_debounce(Duration::from_millis(100));
    let store = open_with(&database, options).await;
    let mut client = PgListener::connect(&database.url()).await.unwrap();
    client.listen(INTERNAL).await.unwrap();
    let (jobs, began) = (queue(&store, "work"), std::time::Instant::now());
    for number in 0..200 {
        enqueue(&jobs, number).await;
    }
    let most = 2 + began.elapsed().as_millis() / 100;
    let mut heard = 0;
    while let Ok(notified) = tokio::time::timeout(Duration::from_millis(400), client.recv()).await {
        assert!(notified.unwrap().payload().ends_with("qwork"));
        heard += 1;
    }
    assert!(
        heard >= 1 && heard <= most,
        "{heard} notifies, {most} at most"
    );
    assert_eq!(database.sql("SELECT count(*) FROM alkstore.jobs"), "200");
}

/// The channel of the default schema. Processes of all versions have to agree on it.
const INTERNAL: &str = "__alkstore_91f7c61493b8c34a";

/// A wake that is still owed when the store closes goes out.
#[tokio::test]
async fn a_wake_that_is_owed_survives_close() {
    let database = database();
    let options = PostgresOptions::new().wake_debounce(Duration::from_secs(1000));
    let (store, other) = (open_with(&database, options).await, open(&database).await);
    let mut wakes = queue(&other, "work").listen().await.unwrap();
    enqueue(&queue(&store, "work"), 1).await;
    assert!(soon(wakes.recv()).await.is_some());
    enqueue(&queue(&store, "work"), 2).await;
    store.close().await;
    assert!(soon(wakes.recv()).await.is_some());
}

/// Without LISTEN other processes are heard at the interval, and this one at once.
#[tokio::test]
async fn without_listen_the_interval_wakes() {
    let database = database();
    let options = || PostgresOptions::new().listen(false);
    let slow = options().reread_interval(Duration::from_secs(1000));
    let (slow, quick) = (
        open_with(&database, slow).await,
        open_with(
            &database,
            options().reread_interval(Duration::from_millis(20)),
        )
        .await,
    );
    let mut own = queue(&slow, "work").listen().await.unwrap();
    let mut theirs = queue(&quick, "work").listen().await.unwrap();
    let opts = EnqueueOpts::default;
    slow.with_tx(async |tx| tx.enqueue_tx("work", opts(), &1).await)
        .await
        .unwrap();
    assert!(soon(own.recv()).await.is_some());
    let jobs = quick.queue("work", QueueOpts::default()).unwrap();
    eventually(async || {
        soon(theirs.recv()).await.unwrap();
        jobs.claim_one("w").await.unwrap().is_some()
    })
    .await;
    slow.notify("channel", &1).await.unwrap();
}
