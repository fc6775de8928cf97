//! Behind a pooler that gives a session to each transaction.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use alkstore::{EnqueueOpts, Store};
use alkstore_contract_tests::postgres_server::{Database, PostgresServer, ServerOptions};
use alkstore_postgres::PostgresOptions;
use futures::future::join_all;

use crate::support::{database, enqueue, eventually, open_with, queue, soon};

fn options() -> PostgresOptions {
    PostgresOptions::new()
        .listen(false)
        .statement_cache(false)
        .reread_interval(Duration::from_millis(50))
}

/// Everything at once, by several processes, with nothing that a session keeps.
async fn all_works(stores: &[Store<alkstore_postgres::Postgres>]) {
    let mut events = stores[0]
        .stream("stream")
        .unwrap()
        .subscribe("c")
        .await
        .unwrap();
    let tasks = stores.iter().enumerate().flat_map(|(n, store)| {
        (0..4).map(move |m| {
            let (store, number) = (store.clone(), i64::try_from(n * 4 + m).unwrap());
            tokio::spawn(async move {
                for _ in 0..10 {
                    enqueue(&queue(&store, "work"), number).await;
                    store
                        .stream("stream")
                        .unwrap()
                        .publish(&number)
                        .await
                        .unwrap();
                    let claim = queue(&store, "work").claim_one("w").await.unwrap();
                    let mut tx = store.begin_tx().await.unwrap();
                    tx.publish_tx("stream", &number).await.unwrap();
                    tx.enqueue_tx("other", EnqueueOpts::default(), &number)
                        .await
                        .unwrap();
                    assert!(tx.ack_tx(&claim.unwrap()).await.unwrap());
                    tx.commit().await.unwrap();
                }
            })
        })
    });
    for task in join_all(tasks.collect::<Vec<_>>()).await {
        task.unwrap();
    }
    for offset in 1..=i64::try_from(stores.len()).unwrap() * 4 * 10 * 2 {
        assert_eq!(soon(events.recv()).await.unwrap().unwrap().offset, offset);
    }
    let lock = stores[0].try_lock("lock", "me", 10).await.unwrap().unwrap();
    assert!(
        stores[1]
            .try_lock("lock", "you", 10)
            .await
            .unwrap()
            .is_none()
    );
    assert!(lock.release().await.unwrap());
}

/// Without kept statements and without LISTEN all works.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_in_the_session() {
    let database = database();
    let stores = [
        open_with(&database, options()).await,
        open_with(&database, options()).await,
    ];
    all_works(&stores).await;
    assert_eq!(
        database.sql("SELECT count(*) FROM alkstore.jobs WHERE queue = 'work'"),
        "0"
    );
}

/// Through pgbouncer, with fewer sessions than there are callers; and with a listening session
/// that goes past it, wakes are heard at once.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs pgbouncer: apt-get install -y pgbouncer, then run with --ignored"]
async fn all_works_through_pgbouncer() {
    let Some(server) = PostgresServer::start_or_skip(&ServerOptions::new()) else {
        return;
    };
    let database = server.create_database();
    let bouncer = Bouncer::before(&server, &database, "transaction");
    let open = || async { Store::new(options().open(&bouncer.url).await.unwrap()) };
    let stores = [open().await, open().await];
    all_works(&stores).await;
    let past = PostgresOptions::new()
        .statement_cache(false)
        .listener_url(&database.url())
        .reread_interval(Duration::from_secs(1000));
    let store = Store::new(past.open(&bouncer.url).await.unwrap());
    let mut wakes = queue(&store, "heard").listen().await.unwrap();
    enqueue(&queue(&stores[0], "heard"), 1).await;
    assert!(soon(wakes.recv()).await.is_some());
}

/// Through a pooler that gives each client a session, and takes no settings at its start, all
/// works; settings in the URL are refused for good.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs pgbouncer: apt-get install -y pgbouncer, then run with --ignored"]
async fn sessions_of_a_pooler_are_set_up_later() {
    let server = PostgresServer::start(&ServerOptions::new());
    let database = server.create_database();
    let bouncer = Bouncer::before(&server, &database, "session");
    let options = || PostgresOptions::new().listen(false).pool(2);
    let store = Store::new(options().open(&bouncer.url).await.unwrap());
    let work = queue(&store, "work");
    enqueue(&work, 1).await;
    let mut tx = store.begin_tx().await.unwrap();
    tx.enqueue_tx("work", EnqueueOpts::default(), &2)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(work.claim_batch("w", 3).await.unwrap().len(), 2);
    let url = format!("{}&options[jit]=off", bouncer.url);
    let error = options().open(&url).await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(
        format!("{error:#}").contains("a pooler is in between"),
        "{error}"
    );
}

/// A pgbouncer with two sessions.
struct Bouncer {
    process: Child,
    folder: std::path::PathBuf,
    url: String,
}

impl Bouncer {
    fn before(server: &PostgresServer, database: &Database<'_>, mode: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let folder = std::env::temp_dir().join(format!("alkpgb-{}-{port}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (_, server_port) = server.address();
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={server_port} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n\
             pool_mode = {mode}\ndefault_pool_size = 2\nunix_socket_dir =\n"
        );
        let path = folder.join("pgbouncer.ini");
        fs::write(&path, config).unwrap();
        let process = Self::run(&path);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let name = database.name();
        let url = format!("postgres://postgres@127.0.0.1:{port}/{name}?sslmode=disable");
        Self {
            process,
            folder,
            url,
        }
    }

    fn run(config: &Path) -> Child {
        let mut bouncer = Command::new("/usr/sbin/pgbouncer");
        bouncer
            .arg("-q")
            .arg(config)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // It does not run as root; any other user will do.
        if fs::metadata("/proc/self")
            .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
        {
            bouncer.uid(65_534).gid(65_534);
        }
        bouncer.spawn().expect("pgbouncer is installed")
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// A wake that nobody sends is no loss: with all of them gone, all still goes on.
#[tokio::test]
async fn all_goes_on_without_wakes() {
    let database = database();
    let store = open_with(&database, options()).await;
    let mut events = store
        .stream("stream")
        .unwrap()
        .subscribe("c")
        .await
        .unwrap();
    let mut wakes = queue(&store, "work").listen().await.unwrap();
    database.sql(
        "INSERT INTO alkstore.streams (name, head) VALUES ('stream', 1);
         INSERT INTO alkstore.events SELECT id, 1, 0, NULL, '1' FROM alkstore.streams;
         INSERT INTO alkstore.jobs (queue, priority, run_at, max_attempts, created_at,
             visibility_timeout_s, backoff_base_s, payload)
         VALUES ('work', 0, 0, 1, 0, 300, 5, '1')",
    );
    assert_eq!(soon(events.recv()).await.unwrap().unwrap().offset, 1);
    eventually(async || {
        soon(wakes.recv()).await.unwrap();
        queue(&store, "work")
            .claim_one("w")
            .await
            .unwrap()
            .is_some()
    })
    .await;
}
