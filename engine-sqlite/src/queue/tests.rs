//! A claim's cost: which indexes its statements walk, and how many rows they touch.

use rusqlite::Connection;
use rusqlite::StatementStatus;

use super::claim::{BURY_EXPIRED, BURY_LAPSED, CLAIM, HEAD, LEVEL, OVERDUE, RECLAIM};
use super::finish::{ACK, AGAIN};
use super::*;
use crate::place::{Place, Role};
use crate::schema::{self, Schema};

/// The most steps of SQLite's machine that a claim of one job may take: some hundreds for the
/// statements themselves, nothing for the jobs that it passes by.
const MOST_STEPS: i32 = 600;

fn database() -> Connection {
    let place = Place::parse(":memory:").expect("a place");
    let mut connection = place.connect(Role::Writer).expect("it opens");
    let schema = schema::bring_up(&mut connection).expect("the schema");
    assert_eq!(schema, Schema::Current);
    connection
}

/// The plan of a statement, one line for each step.
fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .expect("a plan");
    statement
        .raw_query()
        .mapped(|row| row.get("detail"))
        .collect::<Result<_, _>>()
        .expect("the steps")
}

#[test]
fn the_statements_of_a_claim_search_and_never_scan_or_sort() {
    let connection = database();
    for (name, sql, index) in [
        ("overdue", OVERDUE, "__alkstore_jobs_expiring"),
        ("overdue", OVERDUE, "__alkstore_jobs_claimed"),
        ("level", LEVEL, "__alkstore_jobs_pending"),
        ("head", HEAD, "__alkstore_jobs_pending"),
        ("expired", BURY_EXPIRED, "__alkstore_jobs_expiring"),
        ("lapsed", BURY_LAPSED, "__alkstore_jobs_claimed"),
        ("reclaim", RECLAIM, "__alkstore_jobs_claimed"),
        ("claim", CLAIM, "INTEGER PRIMARY KEY"),
        ("ack", ACK, "INTEGER PRIMARY KEY"),
        ("again", AGAIN, "INTEGER PRIMARY KEY"),
        ("extend", EXTEND, "INTEGER PRIMARY KEY"),
        ("purge", PURGE, "__alkstore_dead_jobs_purging"),
    ] {
        let plan = plan(&connection, sql);
        assert!(
            plan.iter().any(|step| step.contains(index)),
            "{name}: {plan:#?}"
        );
        for step in &plan {
            // The bounded list that an outer statement walks is no table.
            let harmless = !step.starts_with("SCAN") || step.contains("subquery");
            assert!(harmless || step == "SCAN CONSTANT ROW", "{name}: {plan:#?}");
            assert!(!step.contains("TEMP B-TREE"), "{name}: {plan:#?}");
        }
    }
}

/// Fills the table, with a statement that makes so many jobs of one kind.
fn fill(connection: &Connection, jobs: i64, columns: &str) {
    let sql = format!(
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1)
         INSERT INTO __alkstore_jobs (queue, priority, run_at, max_attempts, created_at,
             visibility_timeout_s, backoff_base_s, payload, claim_expires_at, expires_at)
         SELECT 'q', {columns} FROM n"
    );
    connection.execute(&sql, [jobs]).expect("filled");
}

#[test]
fn a_claim_costs_the_same_whatever_stands_around() {
    const JOBS: i64 = 20_000;
    const NOW: i64 = 1_000_000;
    let connection = &mut database();
    // Ready at a low priority, delayed at a high one, and processing.
    fill(connection, JOBS, "0, n, 3, 0, 30, 5, x'00', NULL, NULL");
    fill(
        connection,
        JOBS,
        "9, 2000000 + n, 3, 0, 30, 5, x'00', NULL, NULL",
    );
    fill(
        connection,
        JOBS,
        "9, n, 3, 0, 30, 5, x'00', 2000000 + n, NULL",
    );
    // An application may do this: the plans have to stay.
    connection.execute_batch("ANALYZE").expect("analyzed");
    let request = ClaimRequest {
        queue: "q",
        worker: "w",
        limit: 1,
    };
    for _ in 0..3 {
        let claimed = ready(claim(&mut Inline(connection), NOW, &[request])).expect("claimed");
        let claimed = claimed.concat();
        assert_eq!(claimed.len(), 1);
        assert_eq!(claimed[0].priority, 0);
    }
    let mut steps = 0;
    for sql in [OVERDUE, LEVEL, HEAD, CLAIM] {
        let statement = connection.prepare_cached(sql).expect("it is cached");
        steps += statement.get_status(StatementStatus::VmStep);
        let scanned = statement.get_status(StatementStatus::FullscanStep);
        let sorted = statement.get_status(StatementStatus::Sort);
        let prepared_again = statement.get_status(StatementStatus::RePrepare);
        assert_eq!((scanned, sorted, prepared_again), (0, 0, 0), "{sql}");
    }
    assert!(steps / 3 < MOST_STEPS, "{steps} steps for three claims");
}
