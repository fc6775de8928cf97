//! Streams in SQL.

use alkstore::engine::{After, At, MOST_PER_STEP, NewEvent, Results, Streams, Topic, TrimStep};
use alkstore::{Result, StreamEvent};
use sqlx::PgConnection;
use sqlx::postgres::PgRow;

use crate::Postgres;
use crate::backend::{Arguments, Statement, patience};
use crate::notify::{Waking, wake_all, wake_one};
use crate::queue::{MOST_BYTES_PER_STEP, count, get};
use crate::schema::{CLOCK, literal};

const DOING: &str = "publishing";

/// The statements of this mechanism.
#[derive(Debug)]
pub(crate) struct Statements {
    append_to_one: Statement,
    append_to_new: Statement,
    append: Statement,
    read: Statement,
    read_saved: Statement,
    read_held: Statement,
    read_page: Statement,
    save: Statement,
    find: Statement,
    find_held: Statement,
    trim: Statement,
}

impl Statements {
    pub(crate) fn new(schema: &str, channel: &str) -> Self {
        let id = format!("(SELECT id FROM {schema}.streams WHERE name = $1)");
        let events = format!(
            "SELECT \"offset\", key, payload, created_at FROM {schema}.events WHERE stream = {id}"
        );
        let order = "ORDER BY \"offset\" LIMIT $3";
        let saved =
            format!("SELECT \"offset\" FROM {schema}.offsets WHERE stream = $1 AND consumer = $2");
        let save = format!(
            "INSERT INTO {schema}.offsets AS saved (stream, consumer, \"offset\")
             SELECT $1::text, $2::text, $3::bigint WHERE {patience}
             ON CONFLICT (stream, consumer) DO UPDATE SET \"offset\" = excluded.\"offset\"
             WHERE saved.\"offset\" < excluded.\"offset\"
             RETURNING true",
            patience = patience(4)
        );
        // In a transaction the consumer's row is locked, made if there is none, and what is read
        // of it is its newest version: whoever waited for the lock sees what the holder saved.
        let held = format!(
            "WITH known AS MATERIALIZED ({saved} FOR NO KEY UPDATE),
             made AS (
                 INSERT INTO {schema}.offsets AS other (stream, consumer, \"offset\")
                 SELECT $1, $2, 0 WHERE NOT EXISTS (SELECT FROM known)
                 ON CONFLICT (stream, consumer) DO UPDATE SET \"offset\" = other.\"offset\"
                 RETURNING \"offset\"
             ),
             held AS MATERIALIZED (SELECT * FROM known UNION ALL SELECT * FROM made)"
        );
        // The lengths are known without the values, which are not fetched for what is left out.
        let page = format!(
            "SELECT \"offset\", key, payload, created_at FROM (
                 SELECT *, coalesce(sum(octet_length(payload) + coalesce(octet_length(key), 0))
                     OVER (ORDER BY \"offset\" ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)
                     AS before
                 FROM ({events} AND \"offset\" > $2 {order}) AS next
             ) AS next WHERE before < $4 ORDER BY \"offset\""
        );
        let reading = "reading a stream";
        Self {
            append_to_one: append_to_one(schema, channel),
            append_to_new: append_to_new(schema, channel),
            append: append(schema, channel),
            read: Statement::reading(reading, format!("{events} AND \"offset\" > $2 {order}")),
            read_saved: Statement::reading(
                reading,
                format!("{events} AND \"offset\" > coalesce(({saved}), 0) {order}"),
            ),
            read_held: Statement::new(
                reading,
                format!("{held} {events} AND \"offset\" > (SELECT \"offset\" FROM held) {order}"),
            ),
            read_page: Statement::reading(reading, page),
            save: Statement::waiting("saving an offset", save),
            find: Statement::reading("reading an offset", saved),
            find_held: Statement::new(
                "reading an offset",
                format!("{held} SELECT \"offset\" FROM held"),
            ),
            trim: trim(schema),
        }
    }
}

/// Deletes events of the stream `$1` after the offset `$2` and up to `$3`, as many as one step
/// takes, and returns how many, the last one's offset, and whether there may be more.
fn trim(schema: &str) -> Statement {
    let text = format!(
        "WITH sized AS MATERIALIZED (
             SELECT \"offset\", pg_column_size(payload)::bigint AS size FROM {schema}.events
             WHERE stream = (SELECT id FROM {schema}.streams WHERE name = $1)
                 AND \"offset\" > $2 AND \"offset\" <= $3
             ORDER BY \"offset\" LIMIT {MOST_PER_STEP}
         ),
         summed AS (
             SELECT \"offset\", sum(size) OVER (
                 ORDER BY \"offset\" ROWS UNBOUNDED PRECEDING
             ) - size AS before FROM sized
         ),
         step AS MATERIALIZED (
             SELECT max(\"offset\") AS last, count(*) AS rows FROM summed
             WHERE before < {MOST_BYTES_PER_STEP}
         ),
         trimmed AS (
             DELETE FROM {schema}.events
             WHERE stream = (SELECT id FROM {schema}.streams WHERE name = $1)
                 AND \"offset\" > $2 AND \"offset\" <= (SELECT last FROM step)
             RETURNING \"offset\"
         )
         SELECT (SELECT count(*) FROM trimmed), last,
             rows = {MOST_PER_STEP} OR rows < (SELECT count(*) FROM sized)
         FROM step"
    );
    Statement::new("trimming a stream", text)
}

/// Appends to the stream `$2` events with the keys `$3` and payloads `$4`, and returns the offset
/// of the last; nothing if the stream is new, which takes [`append_to_new`]. See [`append`].
fn append_to_one(schema: &str, channel: &str) -> Statement {
    let head = format!(
        "UPDATE {schema}.streams SET head = head + cardinality($4) WHERE name = $2 AND {patience}
         RETURNING id, head",
        patience = patience(6)
    );
    append_at(schema, channel, &head)
}

/// The same to a stream that nobody has published to, or hardly has: an insert draws an id, even
/// where it then finds the stream.
fn append_to_new(schema: &str, channel: &str) -> Statement {
    let head = format!(
        "INSERT INTO {schema}.streams AS known (name, head) SELECT $2::text, cardinality($4) WHERE {patience}
         ON CONFLICT (name) DO UPDATE SET head = known.head + excluded.head
         RETURNING id, head",
        patience = patience(6)
    );
    append_at(schema, channel, &head)
}

fn append_at(schema: &str, channel: &str, head: &str) -> Statement {
    let wake = wake_one(channel, "$5");
    let text = format!(
        "WITH locked AS ({head}),
         -- Read when the stream is locked, so that time runs in the order of offsets.
         clock AS MATERIALIZED (SELECT {CLOCK} AS now FROM locked),
         appended AS (
             INSERT INTO {schema}.events (stream, \"offset\", key, payload, created_at)
             SELECT (SELECT id FROM locked), (SELECT head FROM locked) - remaining, key, payload,
                 (SELECT now FROM clock)
             FROM (
                 SELECT unnest($3::text[]) AS key, unnest($4::bytea[]) AS payload,
                     generate_series(cardinality($4) - 1, 0, -1) AS remaining
             ) AS given
             WHERE EXISTS (SELECT FROM locked)
         )
         SELECT head, {wake} FROM locked"
    );
    Statement::waiting(DOING, text)
}

/// SQL for the id of a stream, a new one if there is no stream of the name. Streams are never
/// deleted: where there is one it is the name that conflicts, and for ever.
fn id_of(schema: &str, name: &str) -> String {
    let sequence = literal(&format!("{schema}.streams_id_seq"));
    format!(
        "coalesce((SELECT id FROM {schema}.streams WHERE streams.name = {name}),
             nextval({sequence}))"
    )
}

/// Appends to the streams `$2` events with the keys `$3` and payloads `$4`.
///
/// The row of a stream hands out its offsets, and whoever took some holds it until the commit:
/// offsets are dense and in the order of commits, and nobody reads past one that is still to
/// come. Several streams are locked in the order of their names.
fn append(schema: &str, channel: &str) -> Statement {
    let (id, wake) = (id_of(schema, "stream"), wake_all(channel, "$5::text[]"));
    let patience = patience(6);
    let text = format!(
        "WITH given AS MATERIALIZED (
             SELECT *, row_number() OVER (PARTITION BY stream ORDER BY ordinal) AS nth,
                 count(*) OVER (PARTITION BY stream) AS size
             FROM unnest($2::text[], $3::text[], $4::bytea[])
                 WITH ORDINALITY AS given (stream, key, payload, ordinal)
         ),
         heads AS (
             INSERT INTO {schema}.streams AS known (id, name, head) OVERRIDING SYSTEM VALUE
             SELECT {id}, stream, size
             FROM (
                 SELECT stream, count(*) AS size FROM given WHERE {patience}
                 GROUP BY stream ORDER BY stream COLLATE \"C\"
             ) AS sizes
             ON CONFLICT (name) DO UPDATE SET head = known.head + excluded.head
             RETURNING id, name, head
         ),
         -- Read when the streams are locked, so that time runs in the order of offsets.
         clock AS MATERIALIZED (SELECT {CLOCK} AS now FROM (SELECT count(*) FROM heads) AS locked),
         placed AS MATERIALIZED (
             SELECT ordinal, id, key, payload, head - size + nth AS \"offset\"
             FROM heads JOIN given ON given.stream = name
         ),
         appended AS (
             INSERT INTO {schema}.events (stream, \"offset\", key, payload, created_at)
             SELECT id, \"offset\", key, payload, now FROM placed CROSS JOIN clock
         )
         SELECT \"offset\", {wake} FROM placed ORDER BY ordinal"
    );
    Statement::waiting(DOING, text)
}

impl Streams for Postgres {
    async fn append_events(
        &self,
        at: At<'_, PgConnection>,
        events: &[NewEvent<'_>],
    ) -> Result<Results<i64>> {
        self.append(at, events).await
    }

    async fn read_events(
        &self,
        at: At<'_, PgConnection>,
        stream: &str,
        after: After<'_>,
        limit: i64,
    ) -> Result<Vec<StreamEvent>> {
        let (inner, statements) = (self.inner(), &self.inner().statements.stream);
        let statement = match (after, &at) {
            (After::Offset(_), _) => &statements.read,
            (After::SavedBy(_), At::Auto) => &statements.read_saved,
            (After::SavedBy(_), At::In(_)) => &statements.read_held,
        };
        let arguments = || {
            let arguments = Arguments::default().add(stream);
            let arguments = match after {
                After::Offset(offset) => arguments.add(offset),
                After::SavedBy(consumer) => arguments.add(consumer),
            };
            arguments.add(limit)
        };
        let rows = inner.run(at, statement, arguments).await?;
        rows.iter().map(|row| event(stream, row)).collect()
    }

    async fn read_page(
        &self,
        stream: &str,
        offset: i64,
        limit: i64,
        bytes: i64,
    ) -> Result<Vec<StreamEvent>> {
        let inner = self.inner();
        let arguments = || {
            let arguments = Arguments::default().add(stream).add(offset);
            arguments.add(limit).add(bytes)
        };
        let statement = &inner.statements.stream.read_page;
        let rows = inner.run(At::Auto, statement, arguments).await?;
        rows.iter().map(|row| event(stream, row)).collect()
    }

    async fn save_offset(
        &self,
        at: At<'_, PgConnection>,
        stream: &str,
        consumer: &str,
        offset: i64,
    ) -> Result<bool> {
        let inner = self.inner();
        if offset < 1 {
            return inner.live().map(|()| false);
        }
        let arguments = || Arguments::default().add(stream).add(consumer).add(offset);
        let rows = inner
            .run(at, &inner.statements.stream.save, arguments)
            .await?;
        Ok(!rows.is_empty())
    }

    async fn find_offset(
        &self,
        at: At<'_, PgConnection>,
        stream: &str,
        consumer: &str,
    ) -> Result<i64> {
        let (inner, statements) = (self.inner(), &self.inner().statements.stream);
        let statement = match at {
            At::Auto => &statements.find,
            At::In(_) => &statements.find_held,
        };
        let arguments = || Arguments::default().add(stream).add(consumer);
        let rows = inner.run(at, statement, arguments).await?;
        rows.first().map_or(Ok(0), |row| get(row, 0))
    }

    async fn trim_events(&self, stream: &str, after: i64, horizon: i64) -> Result<TrimStep> {
        let inner = self.inner();
        let arguments = || Arguments::default().add(stream).add(after).add(horizon);
        let rows = inner
            .run(At::Auto, &inner.statements.stream.trim, arguments)
            .await?;
        let Some(row) = rows.first() else {
            return Ok(TrimStep::default());
        };
        let (last, more): (Option<i64>, bool) = (get(row, 1)?, get(row, 2)?);
        Ok(TrimStep {
            trimmed: count(Some(row), 0)?,
            next: last.filter(|_| more),
        })
    }
}

fn event(stream: &str, row: &PgRow) -> Result<StreamEvent> {
    let mut event = StreamEvent::new(stream, get(row, 0)?, get(row, 2)?, get(row, 3)?);
    event.key = get(row, 1)?;
    Ok(event)
}

impl Postgres {
    pub(crate) async fn append(
        &self,
        at: At<'_, PgConnection>,
        events: &[NewEvent<'_>],
    ) -> Result<Results<i64>> {
        let Some(NewEvent { stream, .. }) = events.first() else {
            return Ok(Results::new());
        };
        let inner = self.inner();
        let statements = &inner.statements.stream;
        let one = events.iter().all(|event| event.stream == *stream);
        let topics = if one { &events[..1] } else { events };
        let topics = topics.iter().map(|event| Topic::stream(event.stream));
        let waking = Waking::new(inner, &at, topics);
        let keys: Vec<_> = events.iter().map(|event| event.key).collect();
        let payloads: Vec<_> = events.iter().map(|event| event.payload).collect();
        if one {
            let arguments = |along: &[String]| {
                let wake = along.first().map_or("", String::as_str);
                let arguments = inner.arguments().add(*stream);
                arguments.add(&keys[..]).add(&payloads[..]).add(wake)
            };
            let one_or_new = [&statements.append_to_one, &statements.append_to_new];
            let rows = waking.run(at, &one_or_new, arguments).await?;
            let head: i64 = rows.first().map_or(Ok(0), |row| get(row, 0))?;
            let before = head - i64::try_from(events.len()).unwrap_or(i64::MAX);
            return Ok((before + 1..=head).collect());
        }
        let arguments = |along: &[String]| {
            let streams: Vec<_> = events.iter().map(|event| event.stream).collect();
            let arguments = inner.arguments().add(streams);
            let arguments = arguments.add(&keys[..]).add(&payloads[..]);
            arguments.add(along)
        };
        let rows = waking.run(at, &[&statements.append], arguments).await?;
        rows.iter().map(|row| get(row, 0)).collect()
    }
}
