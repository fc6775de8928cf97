//! What the database is and has besides: what is in the way, and what other sessions decided.

use std::error::Error as _;

use alkstore_contract_tests::postgres_server::Database;
use alkstore_postgres::PostgresOptions;

use crate::support::{database, open, open_with, works};

/// The reason for which a schema of this database is refused.
async fn refused(database: &Database<'_>, schema: &str) -> String {
    let opened = PostgresOptions::new()
        .schema(schema)
        .open(&database.url())
        .await;
    let error = opened.expect_err("this must be refused");
    assert!(!error.is_transient(), "{error}");
    format!("{error}: {}", error.source().unwrap())
}

/// What an application has under a name of this library's is left as it is, and named.
#[tokio::test]
async fn what_an_application_made_is_not_touched() {
    for (name, made) in [
        ("schema_version", "TABLE schema_version (version bigint)"),
        ("jobs", "TABLE jobs (id int)"),
        ("locks", "VIEW locks AS SELECT 1 AS name"),
        ("jobs_id_seq", "SEQUENCE jobs_id_seq"),
    ] {
        let database = database();
        database.sql(&format!("CREATE {made}"));
        let filled = database.try_sql(&format!("INSERT INTO {name} VALUES (7)"));
        let before = database.sql(&format!("SELECT * FROM {name}"));
        let reason = refused(&database, "public").await;
        assert!(
            reason.contains(name) && reason.contains("schema of its own"),
            "{reason}"
        );
        assert_eq!(database.sql(&format!("SELECT * FROM {name}")), before);
        assert!(filled.is_err() || before == "7");
        let relations = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace
             AND relkind IN ('r', 'v', 'S')";
        assert_eq!(database.sql(relations), "1");
        works(&open(&database).await).await;
    }
}

/// The tables that rows cannot be changed of where all tables are published.
const WITHOUT_KEY: &str = "SELECT relname FROM pg_class
     WHERE relnamespace = 'alkstore'::regnamespace AND relkind = 'r' AND NOT EXISTS (
         SELECT FROM pg_constraint WHERE conrelid = pg_class.oid AND contype = 'p'
     )";

/// Where all tables are published the schema is made and works: each table has a primary key.
#[tokio::test]
async fn every_table_may_be_published() {
    let database = database();
    database.sql("CREATE PUBLICATION everything FOR ALL TABLES");
    works(&open(&database).await).await;
    assert_eq!(database.sql(WITHOUT_KEY), "");
}

/// A schema from before the version had a primary key gets one when its owner opens it, and is
/// not waited for. A role that only uses it opens it as it is.
#[tokio::test]
async fn an_older_schema_gets_its_primary_key() {
    let database = database();
    works(&open(&database).await).await;
    database.sql(
        "ALTER TABLE alkstore.schema_version DROP CONSTRAINT schema_version_pkey;
         COMMENT ON TABLE alkstore.schema_version IS NULL",
    );
    let role = format!("{}_user", database.name());
    database.sql(&format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'secret';
         GRANT USAGE ON SCHEMA alkstore TO {role};
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA alkstore TO {role};
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA alkstore TO {role}"
    ));
    let url = database
        .server()
        .url_of_role(&role, "secret", database.name());
    let store = alkstore::Store::new(PostgresOptions::new().open(&url).await.unwrap());
    works(&store).await;
    store.close().await;
    database.sql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
    assert_eq!(database.sql(WITHOUT_KEY), "schema_version");

    let mut reader = <sqlx::PgConnection as sqlx::Connection>::connect(&database.url())
        .await
        .unwrap();
    let read = "BEGIN; SELECT * FROM alkstore.schema_version";
    sqlx::Executor::execute(&mut reader, read).await.unwrap();
    works(&open(&database).await).await;
    assert_eq!(database.sql(WITHOUT_KEY), "schema_version");
    sqlx::Connection::close(reader).await.unwrap();
    works(&open(&database).await).await;
    assert_eq!(database.sql(WITHOUT_KEY), "");
    assert_eq!(database.sql("SELECT * FROM alkstore.schema_version"), "1");
}

/// How a session reads its string literals does not matter, whatever the schema is called.
#[tokio::test]
async fn literals_may_have_backslashes() {
    let database = database();
    database.sql(&format!(
        "ALTER DATABASE {} SET standard_conforming_strings = off",
        database.name()
    ));
    for name in ["back\\slash", "it's", "\\'; --", "\"\\\"\\\\\"'"] {
        let store = open_with(&database, PostgresOptions::new().schema(name)).await;
        works(&store).await;
        store.close().await;
    }
}

/// An encoding that has no room for every text is refused, by name.
#[tokio::test]
async fn encodings_without_room_for_every_text_are_refused() {
    let server = database();
    let server = server.server();
    for (encoding, fits) in [
        ("LATIN1", false),
        ("EUC_JP", false),
        ("SQL_ASCII", true),
        ("UTF8", true),
    ] {
        let database = server.create_database_with(&format!("ENCODING '{encoding}' LOCALE 'C'"));
        if fits {
            works(&open(&database).await).await;
            continue;
        }
        let reason = refused(&database, "alkstore").await;
        assert!(
            reason.contains(encoding) && reason.contains("UTF8"),
            "{reason}"
        );
        let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'alkstore'";
        assert_eq!(database.sql(schemas), "0");
    }
}

/// A publish to a stream that is there draws no number for a new one; streams that are created
/// at once, by many and in every order, are created once.
#[tokio::test(flavor = "multi_thread")]
async fn a_publish_burns_no_number() {
    let database = database();
    let store = open(&database).await;
    let drawn =
        "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM alkstore.streams_id_seq";
    let streams: Vec<_> = ["b", "a", "c"]
        .map(|name| store.stream(name).unwrap())
        .into();
    for round in 0..5 {
        for stream in &streams {
            stream.publish(&round).await.unwrap();
        }
        let published: alkstore::Result<()> = store
            .with_tx(async |tx| {
                for name in ["c", "a", "b"] {
                    tx.publish_tx(name, &round).await?;
                }
                Ok(())
            })
            .await;
        published.unwrap();
    }
    assert_eq!(database.sql(drawn), "3");
    assert_eq!(database.sql("SELECT max(id) FROM alkstore.streams"), "3");

    let others = [open(&database).await, open(&database).await];
    let tasks = (0..24).map(|n| {
        let stream = others[n % 2].stream(&format!("new {}", n % 4)).unwrap();
        tokio::spawn(async move { stream.publish(&n).await.unwrap() })
    });
    let mut offsets = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        offsets.push(task.await.unwrap());
    }
    offsets.sort_unstable();
    let expected: Vec<i64> = (1..=6).flat_map(|offset| [offset; 4]).collect();
    assert_eq!(offsets, expected);
}
