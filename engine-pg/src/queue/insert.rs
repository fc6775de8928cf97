//! Enqueue.

use alkstore::Result;
use alkstore::engine::{At, NewJob, Ready, Results, Topic};
use sqlx::PgConnection;

use crate::Postgres;
use crate::backend::{Arguments, Statement};
use crate::notify::{Waking, wake_all, wake_one};
use crate::queue::get;
use crate::schema::{NOW, literal, sum};

const DOING: &str = "enqueueing";

/// What an enqueue sets, in the order of the arguments after the clock's.
const COLUMNS: &str = "queue, payload, run_at, priority, created_at, expires_at, \
     visibility_timeout_s, max_attempts, backoff_base_s, dead_letter_retention_s";

/// How many ids the server draws at once: the step of the identity column in the schema. Those
/// that follow a drawn one are its statement's, used or not.
const BLOCK: usize = 1000;

/// A duration in seconds that no sum of some of them, and of the time, overflows with: 34 thousand
/// years.
const PLAIN: i64 = 1 << 40;

/// The values of [`COLUMNS`] for a payload, at the time `now`. `$4` says whether `$5` counts from
/// now on. No sum is looked after: durations are [`PLAIN`] ones.
fn values(now: &str, payload: &str) -> String {
    format!(
        "$2::text, {payload}, CASE WHEN $4::bool THEN {now} + $5::bigint ELSE $5 END, $6::bigint,
         {now}, {now} + $7::bigint, $8::bigint, $9::bigint, $10::bigint, $11::bigint"
    )
}

/// The time for [`values`].
const PLAIN_NOW: &str = "(floor(date_part('epoch', statement_timestamp()))::bigint + $1::bigint)";

/// One job, its payload `$3`: the shortest way for what happens most.
pub(super) fn insert_one(schema: &str, channel: &str) -> Statement {
    let (values, wake) = (values(PLAIN_NOW, "$3::bytea"), wake_one(channel, "$12"));
    let text =
        format!("INSERT INTO {schema}.jobs ({COLUMNS}) VALUES ({values}) RETURNING id, {wake}");
    Statement::new(DOING, text)
}

/// Jobs that differ in their payloads `$3` alone. Returns the first id of each block of them.
///
/// Only the first job of a block draws an id. Without that, and without columns that say the same
/// thousand times, the row and its index entries are all that a job costs. The payloads come one
/// by one from a target list, in their order and past no intermediate store.
pub(super) fn insert_alike(schema: &str, channel: &str) -> Statement {
    // Worked out once.
    let values = values(&format!("(SELECT {PLAIN_NOW})"), "payload");
    let (wake, sequence) = (
        wake_one(channel, "$12"),
        literal(&format!("{schema}.jobs_id_seq")),
    );
    let text = format!(
        "WITH heads AS MATERIALIZED (
             SELECT nextval({sequence}) AS id
             FROM generate_series(0, (cardinality($3) - 1) / {BLOCK})
         ),
         inserted AS (
             INSERT INTO {schema}.jobs (id, {COLUMNS}) OVERRIDING SYSTEM VALUE
             SELECT (ARRAY(SELECT id FROM heads))[1 + nth / {BLOCK}] + nth % {BLOCK}, {values}
             FROM (
                 SELECT unnest($3::bytea[]) AS payload,
                     generate_series(0, cardinality($3) - 1) AS nth
             ) AS given
         )
         SELECT id, {wake} FROM heads"
    );
    Statement::new(DOING, text)
}

/// Any jobs: `$2` to `$11` are a column each.
pub(super) fn insert(schema: &str, channel: &str) -> Statement {
    let from_now = sum("now", "ready");
    let expires_at = sum("now", "expires");
    let wake = wake_all(channel, "$12::text[]");
    // Ids are drawn in the order of the rows that the sort below them hands up.
    let text = format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now),
         given AS (
             SELECT * FROM unnest(
                 $2::text[], $3::bytea[], $4::bool[], $5::bigint[], $6::bigint[],
                 $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[]
             ) WITH ORDINALITY AS given (
                 queue, payload, relative, ready, priority,
                 expires, visibility, attempts, backoff, retention, ordinal
             )
         ),
         inserted AS (
             INSERT INTO {schema}.jobs ({COLUMNS})
             SELECT queue, payload, CASE WHEN relative THEN {from_now} ELSE ready END, priority,
                 now, {expires_at}, visibility, attempts, backoff, retention
             FROM given CROSS JOIN clock
             ORDER BY ordinal
             RETURNING id
         )
         SELECT id, {wake} FROM inserted ORDER BY id"
    );
    Statement::new(DOING, text)
}

impl Postgres {
    pub(crate) async fn insert(
        &self,
        at: At<'_, PgConnection>,
        jobs: &[NewJob<'_>],
    ) -> Result<Results<i64>> {
        let Some(first) = jobs.first() else {
            return Ok(Results::new());
        };
        let inner = self.inner();
        let statements = &inner.statements.queue;
        let offset = inner.settings.clock_offset();
        let alike = is_plain(first, offset) && jobs.iter().all(|job| are_alike(job, first));
        let topics = if alike { &jobs[..1] } else { jobs };
        let topics = topics.iter().map(|job| Topic::queue(job.queue));
        let waking = Waking::new(inner, &at, topics);
        let arguments = |along: &[String]| {
            let arguments = Arguments::default().add(offset);
            if alike {
                let wake = along.first().map_or("", String::as_str);
                add_alike(arguments, first, jobs).add(wake)
            } else {
                add_columns(arguments, jobs).add(along)
            }
        };
        let statement = match jobs {
            [_] if alike => &statements.insert_one,
            _ if alike => &statements.insert_alike,
            _ => &statements.insert,
        };
        let rows = waking.run(at, &[statement], arguments).await?;
        let ids = rows.iter().map(|row| get(row, 0));
        if !alike {
            return ids.collect();
        }
        let heads = ids.collect::<Result<Results<i64>>>()?;
        let blocks = std::iter::zip(heads, jobs.chunks(BLOCK));
        Ok(blocks
            .flat_map(|(head, block)| std::iter::zip(head.., block))
            .map(|(id, _)| id)
            .collect())
    }
}

/// Whether two jobs differ in their payloads at most.
fn are_alike(a: &NewJob<'_>, b: &NewJob<'_>) -> bool {
    a.queue == b.queue
        && a.ready == b.ready
        && a.priority == b.priority
        && a.expires == b.expires
        && a.stamps == b.stamps
}

/// Whether no sum can overflow.
fn is_plain(job: &NewJob<'_>, offset: i64) -> bool {
    let plain = |seconds: i64| (-PLAIN..=PLAIN).contains(&seconds);
    let (relative, time) = ready(job);
    plain(offset) && (!relative || plain(time)) && job.expires.is_none_or(plain)
}

/// What [`values`] take.
fn add_alike(arguments: Arguments, first: &NewJob<'_>, jobs: &[NewJob<'_>]) -> Arguments {
    let (relative, time) = ready(first);
    let arguments = arguments.add(first.queue);
    let arguments = match jobs {
        [job] => arguments.add(job.payload),
        _ => arguments.add(jobs.iter().map(|job| job.payload).collect::<Vec<_>>()),
    };
    arguments
        .add(relative)
        .add(time)
        .add(first.priority)
        .add(first.expires)
        .add(first.stamps.visibility_timeout_s)
        .add(first.stamps.max_attempts)
        .add(first.stamps.backoff_base_s)
        .add(first.stamps.dead_letter_retention_s)
}

fn add_columns(arguments: Arguments, jobs: &[NewJob<'_>]) -> Arguments {
    let column = |of: fn(&NewJob<'_>) -> i64| jobs.iter().map(of).collect::<Vec<_>>();
    let optional = |of: fn(&NewJob<'_>) -> Option<i64>| jobs.iter().map(of).collect::<Vec<_>>();
    arguments
        .add(jobs.iter().map(|job| job.queue).collect::<Vec<_>>())
        .add(jobs.iter().map(|job| job.payload).collect::<Vec<_>>())
        .add(jobs.iter().map(|job| ready(job).0).collect::<Vec<_>>())
        .add(column(|job| ready(job).1))
        .add(column(|job| job.priority))
        .add(optional(|job| job.expires))
        .add(column(|job| job.stamps.visibility_timeout_s))
        .add(column(|job| job.stamps.max_attempts))
        .add(column(|job| job.stamps.backoff_base_s))
        .add(optional(|job| job.stamps.dead_letter_retention_s))
}

/// Whether the time counts from now on, and the time.
fn ready(job: &NewJob<'_>) -> (bool, i64) {
    match job.ready {
        Ready::Now => (true, 0),
        Ready::In(delay) => (true, delay),
        Ready::At(run_at) => (false, run_at),
    }
}
