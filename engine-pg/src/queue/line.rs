//! The lines that pending jobs stand in, and what of them can be claimed.
//!
//! See the indexes in `schema/lines.sql`. The order of claims goes by priority first, so a level
//! has to be looked at to learn that nothing of it is ready, and there may be as many levels as
//! jobs. Where the first of them do not suffice, another index tells which jobs are ready at all,
//! and they are sorted.

use crate::queue::NEAR_QUEUE;
use crate::schema::NOW;

/// The levels, or jobs, that are looked at before the other way is tried.
const BOUND: i64 = 256;
/// The jobs that are looked at beyond those that are wanted: others may lock some meanwhile.
const SPARE: i64 = 64;
/// What lifetimes are counted from, see the schema.
const EARLIEST: &str = "(-2305843009213693952)";
/// How long a job is ready for, as the index has it.
const LIFETIME: &str = "(least(greatest(expires_at, -2305843009213693952), 2305843009213693952) \
     - least(greatest(run_at, -2305843009213693952), 2305843009213693952))";

const READY: &str = "claim_expires_at IS NULL AND expires_at IS NULL AND run_at <= created_at";
const DELAYED: &str = "claim_expires_at IS NULL AND expires_at IS NULL AND run_at > created_at";
const EXPIRING: &str = "claim_expires_at IS NULL AND expires_at IS NOT NULL";

fn line(schema: &str, condition: &str) -> String {
    format!("{schema}.jobs WHERE {NEAR_QUEUE} AND {condition}")
}

/// The jobs of queue `$2`, and of queues whose number in the indexes is the same, that were ready
/// from the start.
pub(super) fn ready(schema: &str) -> String {
    line(schema, READY)
}

/// Whether other jobs can be claimed, too.
pub(super) fn others(schema: &str) -> String {
    let delayed = line(schema, DELAYED);
    format!(
        "EXISTS (SELECT FROM {delayed} AND run_at <= {NOW}) OR EXISTS (
             SELECT FROM {schema}.jobs
             WHERE {NEAR_QUEUE} AND expires_at IS NOT NULL AND expires_at > {NOW}
         )"
    )
}

/// The subqueries of a recursive `WITH` that lead to `candidates (priority, run_at, id)`: jobs that
/// can be claimed, in the order of claims, some more than `wanted`.
pub(super) fn candidates(schema: &str, wanted: &str) -> String {
    let (ready, delayed, expiring) = (
        line(schema, READY),
        line(schema, DELAYED),
        line(schema, EXPIRING),
    );
    let most = format!("least({wanted}, 1000000) + {SPARE}");
    let key = "priority, run_at, id";
    let levels = |name: &str, line: &str, start: &str| {
        format!(
            "{name} AS (
                 (SELECT priority FROM {line} {start} ORDER BY priority DESC, run_at, id LIMIT 1)
                 UNION ALL
                 SELECT below.priority FROM {name} CROSS JOIN LATERAL (
                     SELECT priority FROM {line} AND priority < {name}.priority
                     ORDER BY priority DESC, run_at, id LIMIT 1
                 ) AS below
             )"
        )
    };
    let head = |name: &str, line: &str| {
        format!(
            "SELECT {key} FROM {line} AND queue = $2 AND priority = {name}.priority
                 AND run_at <= {NOW} ORDER BY run_at, id LIMIT {most}"
        )
    };
    let ready_levels = levels("ready_levels", &ready, "");
    let delayed_levels = levels(
        "delayed_levels",
        &delayed,
        &format!("AND (SELECT count(*) FROM due) > {BOUND}"),
    );
    let (ready_head, delayed_head) = (
        head("ready_levels", &ready),
        head("delayed_levels", &delayed),
    );
    let group = |condition: &str| {
        format!(
            "SELECT priority, {LIFETIME} AS lifetime FROM {expiring} AND {condition}
             ORDER BY priority DESC, {LIFETIME} DESC, run_at, id LIMIT 1"
        )
    };
    let (first_group, next_group, lower_group) = (
        group("true"),
        group(&format!(
            "priority = groups.priority AND {LIFETIME} < groups.lifetime"
        )),
        group("priority < groups.priority"),
    );
    // What was ready at this time or before has expired; kept within a number's range.
    let expired = format!(
        "(greatest(least({NOW}, 4611686018427387903), -4611686018427387904) \
         - first_groups.lifetime)"
    );
    format!(
        "{ready_levels},
         from_ready AS MATERIALIZED (
             SELECT head.* FROM ready_levels CROSS JOIN LATERAL ({ready_head}) AS head
             LIMIT {most}
         ),
         due AS MATERIALIZED (
             SELECT {key} FROM {delayed} AND run_at <= {NOW}
             ORDER BY run_at, priority, id LIMIT {BOUND} + 1
         ),
         {delayed_levels},
         first_delayed AS MATERIALIZED (
             SELECT head.* FROM (SELECT priority FROM delayed_levels LIMIT {BOUND}) AS delayed_levels
             CROSS JOIN LATERAL ({delayed_head}) AS head LIMIT {most}
         ),
         from_delayed AS MATERIALIZED (
             SELECT {key} FROM due WHERE (SELECT count(*) FROM due) <= {BOUND}
             UNION ALL
             SELECT {key} FROM first_delayed WHERE (SELECT count(*) FROM first_delayed) >= {most}
             UNION ALL
             (SELECT {key} FROM {delayed} AND queue = $2 AND run_at <= {NOW}
                  AND (SELECT count(*) FROM due) > {BOUND}
                  AND (SELECT count(*) FROM first_delayed) < {most}
              ORDER BY priority DESC, run_at, id LIMIT {most})
         ),
         groups AS (
             ({first_group})
             UNION ALL
             SELECT below.* FROM groups CROSS JOIN LATERAL (
                 SELECT * FROM (({next_group}) UNION ALL ({lower_group})) AS either
                 ORDER BY priority DESC LIMIT 1
             ) AS below
         ),
         first_groups AS MATERIALIZED (SELECT * FROM groups LIMIT {BOUND} + 1),
         from_expiring AS MATERIALIZED (
             SELECT head.* FROM first_groups CROSS JOIN LATERAL (
                 SELECT {key} FROM {expiring} AND queue = $2
                     AND priority = first_groups.priority AND {LIFETIME} = first_groups.lifetime
                     AND run_at > CASE WHEN {expired} < {EARLIEST}
                         THEN (-9223372036854775808)::bigint ELSE {expired} END
                     AND run_at <= {NOW} AND expires_at > {NOW}
                 ORDER BY run_at, id LIMIT {most}
             ) AS head
             WHERE (SELECT count(*) FROM first_groups) <= {BOUND}
             UNION ALL
             (SELECT {key} FROM {schema}.jobs
              WHERE {NEAR_QUEUE} AND queue = $2 AND expires_at IS NOT NULL AND expires_at > {NOW}
                  AND claim_expires_at IS NULL AND run_at <= {NOW}
                  AND (SELECT count(*) FROM first_groups) > {BOUND}
              ORDER BY priority DESC, run_at, id LIMIT {most})
         ),
         candidates AS MATERIALIZED (
             SELECT * FROM from_ready
             UNION ALL SELECT * FROM from_delayed
             UNION ALL SELECT * FROM from_expiring
             ORDER BY priority DESC, run_at, id
         )"
    )
}
