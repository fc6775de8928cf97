//! A claim's cost: which indexes its statements walk, and how many rows they touch.

use rusqlite::Connection;
use rusqlite::StatementStatus;

use super::claim::{BURY_LAPSED, CLAIM, JOB, LOOK, MANY_EXPIRED, RECLAIM};
use super::finish::{ACK, AGAIN};
use super::line::{
    DELAYED_HEAD, DELAYED_LEVEL, DUE, GROUP, GROUP_HEAD, NEXT_GROUP, READY, READY_HEAD,
    READY_LEVEL, UNEXPIRED,
};
use super::sweep::{BURY_EXPIRED, EXPIRED_SIZES, PURGE, PURGE_SIZES, sweep};
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
        ("look", LOOK, "__alkstore_jobs_expiring"),
        ("look", LOOK, "__alkstore_jobs_claimed"),
        ("look", LOOK, "__alkstore_jobs_due"),
        ("many", MANY_EXPIRED, "__alkstore_jobs_expiring"),
        ("ready", READY, "__alkstore_jobs_ready"),
        ("ready level", READY_LEVEL, "__alkstore_jobs_ready"),
        ("ready head", READY_HEAD, "__alkstore_jobs_ready"),
        ("delayed level", DELAYED_LEVEL, "__alkstore_jobs_delayed"),
        ("delayed head", DELAYED_HEAD, "__alkstore_jobs_delayed"),
        ("due", DUE, "__alkstore_jobs_due"),
        ("group", GROUP, "__alkstore_jobs_lifetime"),
        ("next group", NEXT_GROUP, "__alkstore_jobs_lifetime"),
        ("group head", GROUP_HEAD, "__alkstore_jobs_lifetime"),
        ("unexpired", UNEXPIRED, "__alkstore_jobs_expiring"),
        ("job", JOB, "INTEGER PRIMARY KEY"),
        ("expired sizes", EXPIRED_SIZES, "__alkstore_jobs_expiring"),
        ("purge sizes", PURGE_SIZES, "__alkstore_dead_jobs_purging"),
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

/// The steps that claims of one job take, for each of several claims that must find a job of
/// this priority, or none.
fn steps(connection: &mut Connection, now: i64, found: Option<i64>) -> i32 {
    const CLAIMS: i32 = 3;
    let request = ClaimRequest {
        queue: "q",
        worker: "w",
        limit: 1,
    };
    let all = [
        LOOK,
        MANY_EXPIRED,
        READY,
        READY_LEVEL,
        READY_HEAD,
        DELAYED_LEVEL,
        DELAYED_HEAD,
        DUE,
        GROUP,
        NEXT_GROUP,
        GROUP_HEAD,
        UNEXPIRED,
        JOB,
        CLAIM,
        BURY_EXPIRED,
        EXPIRED_SIZES,
    ];
    let count = |connection: &Connection, what| {
        let statements = all
            .iter()
            .map(|sql| connection.prepare_cached(sql).expect("cached"));
        statements
            .map(|statement| statement.get_status(what))
            .sum::<i32>()
    };
    let before = count(connection, StatementStatus::VmStep);
    for _ in 0..CLAIMS {
        let claimed = ready(claim(&mut Inline(connection), now, &[request])).expect("claimed");
        let claimed = claimed.concat();
        assert_eq!(claimed.first().map(|job| job.priority), found);
    }
    for what in [
        StatementStatus::FullscanStep,
        StatementStatus::Sort,
        StatementStatus::RePrepare,
    ] {
        assert_eq!(count(connection, what), 0);
    }
    (count(connection, StatementStatus::VmStep) - before) / CLAIMS
}

/// The steps of a claim beside so many jobs of each of several kinds.
fn steps_beside(kinds: &[&str], found: Option<i64>) -> i32 {
    const JOBS: i64 = 20_000;
    let connection = &mut database();
    for columns in kinds {
        fill(connection, JOBS, columns);
    }
    // An application may do this: the plans have to stay.
    connection.execute_batch("ANALYZE").expect("analyzed");
    steps(connection, 1_000_000, found)
}

// Columns: priority, run_at, max_attempts, created_at, visibility, back-off, payload, the
// claim's deadline, the expiry.
const READY_LOW: &str = "0, n, 3, n, 30, 5, x'00', NULL, NULL";
const DELAYED: &str = "9, 2000000 + n, 3, 0, 30, 5, x'00', NULL, NULL";
const DELAYED_LEVELS: &str = "n, 2000000 + n, 3, 0, 30, 5, x'00', NULL, NULL";

#[test]
fn a_claim_costs_the_same_whatever_stands_around() {
    let held = "9, n, 3, n, 30, 5, x'00', 2000000 + n, NULL";
    let kinds = [READY_LOW, DELAYED, DELAYED_LEVELS, held];
    let steps = steps_beside(&kinds, Some(0));
    assert!(steps < MOST_STEPS, "{steps} steps");
}

#[test]
fn a_claim_costs_the_same_beside_delayed_jobs_of_many_priorities() {
    for (others, found) in [(None, None), (Some(READY_LOW), Some(0))] {
        let beside = |delayed| {
            let kinds: Vec<_> = others.into_iter().chain([delayed]).collect();
            steps_beside(&kinds, found)
        };
        let (one, many) = (beside(DELAYED), beside(DELAYED_LEVELS));
        assert!(many <= one * 3 / 2, "{one} beside one priority, {many}");
    }
}

#[test]
fn a_claim_of_a_delayed_job_does_not_look_at_each_priority() {
    // A few of many are due, and none of the first hundreds of levels.
    let due = "n, CASE WHEN n % 1000 = 1 THEN n ELSE 2000000 END, 3, 0, 30, 5, x'00', NULL, NULL";
    let connection = &mut database();
    fill(connection, 20_000, due);
    let request = ClaimRequest {
        queue: "q",
        worker: "w",
        limit: 3,
    };
    let claimed = ready(claim(&mut Inline(connection), 1_000_000, &[request])).expect("claimed");
    let priorities: Vec<_> = claimed.concat().iter().map(|job| job.priority).collect();
    assert_eq!(priorities, [19_001, 18_001, 17_001]);
    for sql in [DELAYED_LEVEL, DELAYED_HEAD] {
        let statement = connection.prepare_cached(sql).expect("cached");
        assert_eq!(statement.get_status(StatementStatus::Run), 0);
    }
}

#[test]
fn a_claim_costs_the_same_beside_expired_jobs() {
    let expired = "9, n, 3, n, 30, 5, x'00', NULL, n + 100";
    let alone = steps_beside(&[READY_LOW], Some(0));
    let beside = steps_beside(&[READY_LOW, expired], Some(0));
    assert!(
        beside <= alone * 3 / 2,
        "{alone} alone, {beside} beside expired"
    );
    // Jobs that live as long as those that have expired in front of them.
    let same = "9, 999900 + n, 3, 999900 + n, 30, 5, x'00', NULL, 999900 + n + 100";
    let steps = steps_beside(&[READY_LOW, expired, same], Some(9));
    assert!(steps < 2 * MOST_STEPS, "{steps} steps");
}

#[test]
fn a_step_of_a_sweep_is_bounded() {
    let connection = &mut database();
    fill(connection, 1000, "9, n, 3, n, 30, 5, x'00', NULL, n");
    let large = "9, n, 3, n, 30, 5, zeroblob(1 << 19), NULL, 2000";
    fill(connection, 5, large);
    let mut done = Vec::new();
    loop {
        let step = ready(sweep(&mut Inline(connection), "q", 5000)).expect("swept");
        done.push(step.swept.expired);
        if !step.more {
            break;
        }
    }
    assert_eq!(done, [200, 200, 200, 200, 200, 2, 2, 1]);
}

#[test]
fn a_database_with_the_former_index_of_pending_jobs_is_brought_up_to_date() {
    let connection = &mut database();
    fill(connection, 3, READY_LOW);
    let former = "DROP INDEX __alkstore_jobs_ready; DROP INDEX __alkstore_jobs_due;
         CREATE INDEX __alkstore_jobs_pending ON __alkstore_jobs (queue)";
    connection.execute_batch(former).expect("as it was");
    assert_eq!(schema::look(connection).expect("seen"), Schema::Older);
    for _ in 0..2 {
        let schema = schema::bring_up(connection).expect("brought up");
        assert_eq!(schema, Schema::Current);
    }
    assert_eq!(schema::look(connection).expect("seen"), Schema::Current);
    steps(connection, 1_000_000, Some(0));
}
