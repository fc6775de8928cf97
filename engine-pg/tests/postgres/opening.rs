//! Opening: names, rights, many at once, and refusals.

use std::error::Error as _;

use alkstore::{Error, Store};
use alkstore_contract_tests::postgres_server::Database;
use alkstore_postgres::PostgresOptions;
use futures::future::join_all;
use sqlx::PgPool;

use crate::support::{database, enqueue, open, open_with, queue, works};

async fn refused(database: &Database<'_>, url: &str) -> Error {
    let opened = PostgresOptions::new().open(url).await;
    let error = opened.expect_err("this must be refused");
    assert!(!format!("{error:#}").contains("secret"), "{error}");
    let tables = database.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'alkstore'");
    assert!(
        tables == "0" || tables == "8" || tables == "1",
        "{tables} tables"
    );
    error
}

/// Any name that the server takes for a schema will do.
#[tokio::test]
async fn a_schema_may_have_any_legal_name() {
    let database = database();
    let longest = "é".repeat(31) + "x";
    for name in [
        "My \"odd\" schema",
        "select",
        &longest,
        "public",
        "a;b--",
        "{schema}",
        "😀\n",
    ] {
        let store = open_with(&database, PostgresOptions::new().schema(name)).await;
        works(&store).await;
        store.close().await;
    }
    for name in ["", &"x".repeat(64), "a\0"] {
        let error = PostgresOptions::new()
            .schema(name)
            .open(&database.url())
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                Error::InvalidArgument {
                    argument: "schema",
                    ..
                }
            ),
            "{error}"
        );
    }
}

/// Two schemas of one database do not see each other.
#[tokio::test]
async fn schemas_are_apart() {
    let database = database();
    let one = open_with(&database, PostgresOptions::new().schema("one")).await;
    let two = open_with(&database, PostgresOptions::new().schema("two")).await;
    let mut wakes = queue(&two, "work").listen().await.unwrap();
    enqueue(&queue(&one, "work"), 1).await;
    assert!(queue(&two, "work").claim_one("w").await.unwrap().is_none());
    enqueue(&queue(&two, "other"), 1).await;
    assert_eq!(wakes.try_recv().unwrap(), None);
}

/// Many that open a fresh database at once all succeed, with one schema.
#[tokio::test(flavor = "multi_thread")]
async fn many_open_a_fresh_database_at_once() {
    let database = database();
    let stores = join_all((0..20).map(|_| open(&database))).await;
    for store in &stores {
        enqueue(&queue(store, "work"), 1).await;
    }
    assert_eq!(database.sql("SELECT count(*) FROM alkstore.jobs"), "20");
    assert_eq!(
        database.sql("SELECT version FROM alkstore.schema_version"),
        "1"
    );
}

/// A schema that is newer than the library is left as it is.
#[tokio::test]
async fn a_newer_schema_is_refused() {
    let database = database();
    open(&database).await.close().await;
    database.sql("UPDATE alkstore.schema_version SET version = 99");
    let error = refused(&database, &database.url()).await;
    assert!(!error.is_transient());
    assert!(format!("{error:#}").contains("newer"), "{error}");
    assert!(
        error.source().unwrap().to_string().contains("99"),
        "{error}"
    );
    assert_eq!(
        database.sql("SELECT version FROM alkstore.schema_version"),
        "99"
    );
}

/// Nothing depends on where a session looks for names or how it isolates transactions.
#[tokio::test]
async fn the_databases_defaults_do_not_matter() {
    let database = database();
    database.sql(&format!(
        "ALTER DATABASE {0} SET search_path = nowhere;
         ALTER DATABASE {0} SET default_transaction_isolation = 'serializable'",
        database.name()
    ));
    works(&open(&database).await).await;
    let uncached = PostgresOptions::new()
        .statement_cache(false)
        .schema("uncached");
    works(&open_with(&database, uncached).await).await;
    let pool = PgPool::connect(&database.url()).await.unwrap();
    let shared = PostgresOptions::new()
        .schema("shared")
        .over_pool(pool.clone())
        .await
        .unwrap();
    works(&Store::new(shared)).await;
}

/// An application's pool keeps working beside the engine over it, transactions included.
#[tokio::test]
async fn an_applications_pool_is_shared() {
    let database = database();
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1);
    let pool = pool.connect(&database.url()).await.unwrap();
    let store = Store::new(
        PostgresOptions::new()
            .over_pool(pool.clone())
            .await
            .unwrap(),
    );
    works(&store).await;
    for commit in [true, false] {
        let mut tx = store.begin_tx().await.unwrap();
        tx.publish_tx("stream", &1).await.unwrap();
        if commit {
            tx.commit().await.unwrap();
        } else {
            drop(tx);
        }
        let mut own = pool.begin().await.unwrap();
        store
            .join_tx(&mut own)
            .publish_tx("stream", &2)
            .await
            .unwrap();
        own.commit().await.unwrap();
    }
    let events = store
        .stream("stream")
        .unwrap()
        .read_since(0, 10)
        .await
        .unwrap();
    assert_eq!(events.len(), 3);
    store.close().await;
    let one: (i32,) = sqlx::query_as("SELECT 1").fetch_one(&pool).await.unwrap();
    assert_eq!(one.0, 1);
}

/// A role that owns the schema, or may use what another role made, needs no other right.
#[tokio::test]
async fn a_plain_role_needs_its_schema_only() {
    let database = database();
    let name = database.name();
    let (owner, user) = (format!("{name}_owner"), format!("{name}_user"));
    for role in [&owner, &user] {
        database.sql(&format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'"));
    }
    let url = |role: &str| database.server().url_of_role(role, "secret", name);
    let error = refused(&database, &url(&owner)).await;
    assert!(format!("{error:#}").contains("rights"), "{error}");

    database.sql(&format!("CREATE SCHEMA alkstore AUTHORIZATION {owner}"));
    let store = Store::new(PostgresOptions::new().open(&url(&owner)).await.unwrap());
    works(&store).await;
    let error = refused(&database, &url(&user)).await;
    assert!(format!("{error:#}").contains("rights"), "{error}");
    assert!(!error.is_transient());

    database.sql(&format!(
        "GRANT USAGE ON SCHEMA alkstore TO {user};
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA alkstore TO {user};
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA alkstore TO {user}"
    ));
    let store = Store::new(PostgresOptions::new().open(&url(&user)).await.unwrap());
    works(&store).await;
    database.sql(&format!(
        "REVOKE INSERT ON ALL TABLES IN SCHEMA alkstore FROM {user}"
    ));
    let error = store
        .stream("events")
        .unwrap()
        .publish(&1)
        .await
        .unwrap_err();
    assert!(
        format!("{error:#}").contains("rights") && !error.is_transient(),
        "{error}"
    );
    assert!(
        store
            .stream("events")
            .unwrap()
            .read_since(0, 9)
            .await
            .is_ok()
    );

    // A server that is given may trust everybody.
    if database.server().is_own() {
        let wrong = database.server().url_of_role(&user, "secrets", name);
        let error = refused(&database, &wrong).await;
        assert!(format!("{error:#}").contains("does not let"), "{error}");
    }
    store.close().await;
    database.sql(&format!(
        "DROP OWNED BY {owner}, {user}; DROP ROLE {owner}, {user}"
    ));
}

/// What cannot be opened says why.
#[tokio::test]
async fn refusals_say_why() {
    let database = database();
    let missing = refused(&database, &database.server().url("no_such_database")).await;
    assert!(
        missing.to_string().contains("no such database")
            && missing.to_string().contains("/no_such_database"),
        "{missing}"
    );
    let nobody = refused(&database, "postgres://postgres:secret@127.0.0.1:1/postgres").await;
    assert!(nobody.is_transient(), "{nobody}");
    assert!(
        nobody
            .to_string()
            .starts_with("connecting to postgres@127.0.0.1:1/postgres failed"),
        "{nobody}"
    );
    let garbage = PostgresOptions::new()
        .open("mysql://me:secret@host/db")
        .await;
    assert!(garbage.is_err());
    let read_only = |on: &str| {
        let name = database.name();
        let set = format!("ALTER DATABASE {name} SET default_transaction_read_only = {on}");
        database.server().sql("postgres", &set);
    };
    read_only("on");
    let error = refused(&database, &database.url()).await;
    assert!(
        format!("{error:#}").contains("read-only") && error.is_transient(),
        "{error}"
    );
    read_only("off");
    works(&open(&database).await).await;
    read_only("on");
    let store = open(&database).await;
    let stream = store.stream("events").unwrap();
    let error = stream.publish(&1).await.unwrap_err();
    assert!(
        format!("{error:#}").contains("read-only") && error.is_transient(),
        "{error}"
    );
    assert_eq!(stream.read_since(0, 9).await.unwrap().len(), 1);
}

/// A database of the same version with the former index of pending jobs gets today's.
#[tokio::test]
async fn the_former_index_of_pending_jobs_is_replaced() {
    let database = database();
    open(&database).await.close().await;
    database.sql(
        "DROP INDEX alkstore.jobs_ready; DROP INDEX alkstore.jobs_due;
         CREATE INDEX jobs_pending ON alkstore.jobs (queue)",
    );
    for _ in 0..2 {
        open(&database).await.close().await;
        let indexes = "SELECT string_agg(indexname, ' ' ORDER BY indexname) FROM pg_indexes
             WHERE tablename = 'jobs' AND indexname SIMILAR TO 'jobs_(pending|ready|due)'";
        assert_eq!(database.sql(indexes), "jobs_due jobs_ready");
    }
}
