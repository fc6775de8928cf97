//! Several processes on one database: this test binary, started again.

use std::process::{Child, Command, Stdio};

use alkstore::{EnqueueOpts, QueueOpts, Store};
use alkstore_contract_tests::postgres_server::Database;
use alkstore_postgres::Postgres;

use crate::support::{database, enqueue, open, queue};

const ROLE: &str = "ALKSTORE_POSTGRES_TEST_ROLE";
const DATABASE: &str = "ALKSTORE_POSTGRES_TEST_DATABASE";

/// Starts this binary again, to run [`child`] in a role.
fn start(role: &str, database: &Database<'_>) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::child", "--ignored"])
        .env(ROLE, role)
        .env(DATABASE, database.url())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn succeeded(children: Vec<Child>) {
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by the other tests of this module, in a process of its own"]
async fn child() {
    let url = std::env::var(DATABASE).unwrap();
    let store = Store::<Postgres>::open(&url).await.unwrap();
    match std::env::var(ROLE).unwrap().as_str() {
        "open" => drop(enqueue(&queue(&store, "work"), 1).await),
        "drain" => {
            let workers: Vec<_> = (0..8)
                .map(|n| tokio::spawn(drain(store.clone(), n)))
                .collect();
            for worker in workers {
                note(&store, &worker.await.unwrap()).await;
            }
        }
        other => panic!("no such role: {other}"),
    }
    store.close().await;
}

/// Does jobs until none is left, and returns which.
async fn drain(store: Store<Postgres>, worker: usize) -> Vec<i64> {
    let queue = store.queue("work", QueueOpts::default()).unwrap();
    let worker = format!("worker {worker} of process {}", std::process::id());
    let mut done = Vec::new();
    loop {
        let jobs = queue.claim_batch(&worker, 20).await.unwrap();
        if jobs.is_empty() {
            return done;
        }
        done.extend(jobs.iter().map(|job| job.payload_as::<i64>().unwrap()));
        assert_eq!(queue.ack_batch(&jobs).await.unwrap(), jobs.len());
    }
}

/// Writes down what was done, twice if it was done twice.
async fn note(store: &Store<Postgres>, done: &[i64]) {
    let mut tx = store.begin_tx().await.unwrap();
    sqlx::query("INSERT INTO done SELECT unnest($1::bigint[])")
        .bind(done)
        .execute(tx.connection())
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

/// Four processes with eight workers each do every one of 20,000 jobs once and leave none.
#[tokio::test(flavor = "multi_thread")]
async fn processes_drain_a_queue_without_a_double() {
    const JOBS: usize = 20_000;
    let database = database();
    database.sql("CREATE TABLE done (number bigint)");
    let store = open(&database).await;
    let payloads: Vec<_> = (0..JOBS).collect();
    queue(&store, "work")
        .enqueue_batch(&payloads, EnqueueOpts::default())
        .await
        .unwrap();
    succeeded((0..4).map(|_| start("drain", &database)).collect());
    let done = database.sql("SELECT count(*) || ' ' || count(DISTINCT number) FROM done");
    assert_eq!(done, format!("{JOBS} {JOBS}"));
    assert_eq!(database.sql("SELECT count(*) FROM alkstore.jobs"), "0");
}

/// Twenty processes that open a fresh database at once all succeed, with one schema.
#[tokio::test]
async fn processes_open_a_fresh_database_at_once() {
    let database = database();
    succeeded((0..20).map(|_| start("open", &database)).collect());
    assert_eq!(database.sql("SELECT count(*) FROM alkstore.jobs"), "20");
    assert_eq!(
        database.sql("SELECT version FROM alkstore.schema_version"),
        "1"
    );
}
