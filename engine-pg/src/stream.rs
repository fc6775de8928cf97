//! Streams in SQL.

use std::pin::pin;

use alkstore::engine::coalesce::{OwnedEvent, together};
use alkstore::engine::{After, At, MOST_PER_STEP, NewEvent, Results, Streams, Topic, TrimStep};
use alkstore::{Result, StreamEvent};
use sqlx::PgConnection;
use sqlx::postgres::PgRow;

use crate::Postgres;
use crate::backend::{Arguments, Statement};

use crate::notify::{Waking, wake_all};
use crate::queue::{MOST_BYTES_PER_STEP, count, get};
use crate::schema::CLOCK;

const DOING: &str = "publishing";

/// The statements of this mechanism.
#[derive(Debug)]
pub(crate) struct Statements {
    append_to_one: Statement,
    append: Statement,
    read: Statement,
    read_saved: Statement,
    save: Statement,
    find: Statement,
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
             VALUES ($1, $2, $3)
             ON CONFLICT (stream, consumer) DO UPDATE SET \"offset\" = excluded.\"offset\"
             WHERE saved.\"offset\" < excluded.\"offset\""
        );
        let reading = "reading a stream";
        Self {
            append_to_one: append_to_one(schema, channel),
            append: append(schema, channel),
            read: Statement::reading(reading, format!("{events} AND \"offset\" > $2 {order}")),
            read_saved: Statement::reading(
                reading,
                format!("{events} AND \"offset\" > coalesce(({saved}), 0) {order}"),
            ),
            save: Statement::new("saving an offset", save),
            find: Statement::reading("reading an offset", saved),
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
/// of the last. See [`append`].
fn append_to_one(schema: &str, channel: &str) -> Statement {
    let text = format!(
        "WITH locked AS (
             INSERT INTO {schema}.streams AS known (name, head) VALUES ($2, cardinality($4))
             ON CONFLICT (name) DO UPDATE SET head = known.head + excluded.head
             RETURNING id, head
         ),
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
         )
         SELECT head, CASE WHEN $5::text <> '' THEN pg_notify('{channel}', $5)::text END
         FROM locked"
    );
    Statement::new(DOING, text)
}

/// Appends to the streams `$2` events with the keys `$3` and payloads `$4`.
///
/// The row of a stream hands out its offsets, and whoever took some holds it until the commit:
/// offsets are dense and in the order of commits, and nobody reads past one that is still to
/// come. Several streams are locked in the order of their names.
fn append(schema: &str, channel: &str) -> Statement {
    let wake = wake_all(channel, "$5::text[]");
    let text = format!(
        "WITH given AS MATERIALIZED (
             SELECT *, row_number() OVER (PARTITION BY stream ORDER BY ordinal) AS nth,
                 count(*) OVER (PARTITION BY stream) AS size
             FROM unnest($2::text[], $3::text[], $4::bytea[])
                 WITH ORDINALITY AS given (stream, key, payload, ordinal)
         ),
         heads AS (
             INSERT INTO {schema}.streams AS known (name, head)
             SELECT stream, count(*) FROM given GROUP BY stream ORDER BY stream COLLATE \"C\"
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
    Statement::new(DOING, text)
}

impl Streams for Postgres {
    async fn append_events(
        &self,
        at: At<'_, PgConnection>,
        events: &[NewEvent<'_>],
    ) -> Result<Results<i64>> {
        let first = events.first().map_or("", |event| event.stream);
        let one_stream = events.iter().all(|event| event.stream == first);
        match at {
            At::Auto if one_stream => {
                // Whoever waits for a transaction that publishes to the stream waits with all
                // that publish to it, and with nobody else.
                let alone = pin!(self.append(At::Auto, events));
                let items = || events.iter().map(OwnedEvent::from).collect();
                together(self, first, events.len(), items, alone, Results::from).await
            }
            at => self.append(at, events).await,
        }
    }

    async fn read_events(
        &self,
        at: At<'_, PgConnection>,
        stream: &str,
        after: After<'_>,
        limit: i64,
    ) -> Result<Vec<StreamEvent>> {
        let (inner, statements) = (self.inner(), &self.inner().statements.stream);
        let statement = match after {
            After::Offset(_) => &statements.read,
            After::SavedBy(_) => &statements.read_saved,
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

    async fn save_offset(
        &self,
        at: At<'_, PgConnection>,
        stream: &str,
        consumer: &str,
        offset: i64,
    ) -> Result<()> {
        let inner = self.inner();
        if offset < 1 {
            return inner.live();
        }
        let arguments = || Arguments::default().add(stream).add(consumer).add(offset);
        inner
            .run(at, &inner.statements.stream.save, arguments)
            .await
            .map(drop)
    }

    async fn find_offset(
        &self,
        at: At<'_, PgConnection>,
        stream: &str,
        consumer: &str,
    ) -> Result<i64> {
        let inner = self.inner();
        let arguments = || Arguments::default().add(stream).add(consumer);
        let rows = inner
            .run(at, &inner.statements.stream.find, arguments)
            .await?;
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
    Ok(StreamEvent {
        offset: get(row, 0)?,
        stream: stream.to_owned(),
        key: get(row, 1)?,
        payload: get(row, 2)?,
        created_at: get(row, 3)?,
    })
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
            let wake = waking.along.first().map_or("", String::as_str);
            let arguments = || {
                let arguments = inner.arguments().add(*stream);
                arguments.add(&keys[..]).add(&payloads[..]).add(wake)
            };
            let rows = inner.run(at, &statements.append_to_one, arguments).await;
            let rows = waking.ended(rows)?;
            let head: i64 = rows.first().map_or(Ok(0), |row| get(row, 0))?;
            let before = head - i64::try_from(events.len()).unwrap_or(i64::MAX);
            return Ok((before + 1..=head).collect());
        }
        let arguments = || {
            let streams: Vec<_> = events.iter().map(|event| event.stream).collect();
            let arguments = inner.arguments().add(streams);
            let arguments = arguments.add(&keys[..]).add(&payloads[..]);
            arguments.add(&waking.along[..])
        };
        let rows = inner.run(at, &statements.append, arguments).await;
        let rows = waking.ended(rows)?;
        rows.iter().map(|row| get(row, 0)).collect()
    }
}
