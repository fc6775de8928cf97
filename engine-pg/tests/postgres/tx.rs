//! Transactions, where Postgres has ways of its own.

use alkstore::EnqueueOpts;
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::support::{database, open, queue, soon};

/// A transaction that has failed and is committed all the same says that it was not.
#[tokio::test]
async fn a_failed_transaction_does_not_commit() {
    let database = database();
    let store = open(&database).await;
    for _ in 0..3 {
        let mut tx = store.begin_tx().await.unwrap();
        tx.enqueue_tx("work", EnqueueOpts::default(), &1)
            .await
            .unwrap();
        assert!(tx.connection().execute("SELECT 1 / 0").await.is_err());
        let error = tx.commit().await.unwrap_err();
        assert!(format!("{error:#}").contains("has failed"), "{error}");
        assert!(!error.is_transient());
    }
    assert!(
        queue(&store, "work")
            .claim_one("w")
            .await
            .unwrap()
            .is_none()
    );
}

/// An application's nested transactions are savepoints, on every connection of the pool.
#[tokio::test]
async fn nested_transactions_are_savepoints() {
    let database = database();
    let store = open(&database).await;
    for commit in [true, false, true] {
        let mut tx = store.begin_tx().await.unwrap();
        tx.publish_tx("stream", &"outer").await.unwrap();
        let mut nested = tx.connection().begin().await.unwrap();
        store
            .join_tx(&mut nested)
            .publish_tx("stream", &"inner")
            .await
            .unwrap();
        nested.rollback().await.unwrap();
        let mut nested = tx.connection().begin().await.unwrap();
        store
            .join_tx(&mut nested)
            .publish_tx("stream", &"kept")
            .await
            .unwrap();
        nested.commit().await.unwrap();
        // Left open: it is rolled back with what it is in, or before that commits.
        drop(tx.connection().begin().await.unwrap());
        if commit {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
    }
    let events = store
        .stream("stream")
        .unwrap()
        .read_since(0, 10)
        .await
        .unwrap();
    let texts: Vec<String> = events
        .iter()
        .map(|event| event.payload_as().unwrap())
        .collect();
    assert_eq!(texts, ["outer", "kept", "outer", "kept"]);
}

/// A constraint that is checked at the commit fails the commit, and everything with it.
#[tokio::test]
async fn a_commit_that_is_refused_is_an_error() {
    let database = database();
    database.sql("CREATE TABLE t (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)");
    let store = open(&database).await;
    let mut tx = store.begin_tx().await.unwrap();
    tx.enqueue_tx("work", EnqueueOpts::default(), &1)
        .await
        .unwrap();
    tx.connection()
        .execute("INSERT INTO t VALUES (1), (1)")
        .await
        .unwrap();
    tx.commit().await.unwrap_err();
    assert!(
        queue(&store, "work")
            .claim_one("w")
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(database.sql("SELECT count(*) FROM t"), "0");
}

/// Business statements are planned as the server plans, not as the engine's own are.
#[tokio::test]
async fn business_statements_have_the_servers_planner() {
    let database = database();
    let store = open(&database).await;
    for _ in 0..2 {
        let mut tx = store.begin_tx().await.unwrap();
        let planner: (String, String, String) = sqlx::query_as(
            "SELECT current_setting('enable_seqscan'), current_setting('plan_cache_mode'),
                 current_setting('transaction_isolation')",
        )
        .fetch_one(&mut *tx.connection())
        .await
        .unwrap();
        assert_eq!(
            planner,
            ("on".into(), "auto".into(), "read committed".into())
        );
        tx.commit().await.unwrap();
    }
}

/// In a transaction of the application's that cannot be serialized the error is transient.
#[tokio::test]
async fn a_conflict_in_an_applications_transaction_is_transient() {
    let database = database();
    let store = open(&database).await;
    let stream = store.stream("stream").unwrap();
    stream.publish(&0).await.unwrap();
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    let mut own = connection
        .begin_with("BEGIN ISOLATION LEVEL SERIALIZABLE")
        .await
        .unwrap();
    own.execute("SELECT * FROM alkstore.streams").await.unwrap();
    stream.publish(&1).await.unwrap();
    let error = soon(store.join_tx(&mut own).publish_tx("stream", &2))
        .await
        .unwrap_err();
    assert!(error.is_transient(), "{error}");
    own.rollback().await.unwrap();
}

/// What text columns cannot hold is either payload, which is bytes, or refused.
#[tokio::test]
async fn odd_text_is_kept() {
    let database = database();
    let store = open(&database).await;
    let odd = [
        "\u{0}",
        "\"quoted\"",
        "line\nbreak",
        "😀",
        "\\",
        "'; DROP TABLE jobs; --",
    ];
    for text in odd {
        let jobs = queue(&store, "work");
        let id = jobs.enqueue(&text, EnqueueOpts::default()).await.unwrap();
        let job = jobs.claim_one("w").await.unwrap().unwrap();
        assert_eq!(job.payload_as::<String>().unwrap(), text);
        assert!(job.fail(Some(text)).await.unwrap());
        let error = jobs.get_job(id).await.unwrap().unwrap().last_error.unwrap();
        assert_eq!(error, text.replace('\0', "\u{fffd}"));
        if text != "\0" {
            let stream = store.stream(text).unwrap();
            stream.publish_with_key(Some(text), &text).await.unwrap();
            let events = stream.read_since(0, 9).await.unwrap();
            assert_eq!(events[0].key.as_deref(), Some(text));
        }
    }
}
