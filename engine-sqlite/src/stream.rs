//! Streams of events.

use std::pin::pin;
use std::sync::LazyLock;

use alkstore::engine::coalesce::{OwnedEvent, together};
use alkstore::engine::{After, At, NewEvent, Results, Streams, Topic};
use alkstore::{Result, StreamEvent};
use sqlx::SqliteConnection;

use crate::Sqlite;
use crate::coalesce::{Write, Wrote, all};
use crate::error::{Answer, Failure};
use crate::exec::{Awaiting, CHUNKS, Exec, Inline, Value, chunk, chunked, ready};

impl Streams for Sqlite {
    async fn append_events(
        &self,
        at: At<'_, SqliteConnection>,
        events: &[NewEvent<'_>],
    ) -> Result<Results<i64>> {
        const DOING: &str = "publishing";
        match (at, events) {
            (_, []) => Ok(Results::new()),
            (At::Auto, events) => {
                let append = |x: &mut Inline<'_>, now| ready(append(x, now, events));
                let touched = |_: &Results<i64>, wake: &mut dyn FnMut(Topic<'_>)| {
                    runs(events).for_each(|(stream, _)| wake(Topic::stream(stream)));
                };
                let alone = self.inner().write(DOING, append, touched);
                let items = || {
                    let events = events.iter().map(OwnedEvent::from);
                    events.map(Write::Append).collect()
                };
                let offsets = |wrote| all(wrote, Wrote::number);
                together(self, "", events.len(), items, pin!(alone), offsets).await
            }
            // One statement is whole by itself, and a stream without events is no trace.
            (At::In(conn), [_]) => {
                self.inner()
                    .join(DOING, conn, async |x, now| append(x, now, events).await)
                    .await
            }
            (At::In(conn), events) => {
                let append = async |x: &mut Awaiting<'_>, now| append(x, now, events).await;
                self.inner().join_whole(DOING, conn, append).await
            }
        }
    }

    async fn read_events(
        &self,
        at: At<'_, SqliteConnection>,
        stream: &str,
        after: After<'_>,
        limit: i64,
    ) -> Result<Vec<StreamEvent>> {
        const DOING: &str = "reading events";
        match at {
            At::Auto => {
                let read = |x: &mut Inline<'_>, _| ready(read(x, stream, after, limit));
                self.inner().read(DOING, read).await
            }
            At::In(conn) => {
                let read = async |x: &mut Awaiting<'_>, _| read(x, stream, after, limit).await;
                self.inner().join(DOING, conn, read).await
            }
        }
    }

    async fn save_offset(
        &self,
        at: At<'_, SqliteConnection>,
        stream: &str,
        consumer: &str,
        offset: i64,
    ) -> Result<()> {
        const DOING: &str = "saving an offset";
        // An unknown consumer is at 0 already.
        if offset < 1 {
            return Ok(());
        }
        let values = [
            Value::Text(stream),
            Value::Text(consumer),
            Value::Int(offset),
        ];
        match at {
            At::Auto => {
                let save = |x: &mut Inline<'_>, _| ready(x.execute(SAVE, &values));
                self.inner().write(DOING, save, |_, _| {}).await?;
            }
            At::In(conn) => {
                let save = async |x: &mut Awaiting<'_>, _| x.execute(SAVE, &values).await;
                self.inner().join(DOING, conn, save).await?;
            }
        }
        Ok(())
    }

    async fn find_offset(
        &self,
        at: At<'_, SqliteConnection>,
        stream: &str,
        consumer: &str,
    ) -> Result<i64> {
        const DOING: &str = "reading an offset";
        let values = [Value::Text(stream), Value::Text(consumer)];
        let found = match at {
            At::Auto => {
                let find = |x: &mut Inline<'_>, _| ready(x.rows(SAVED, &values, |row| row.int(0)));
                self.inner().read(DOING, find).await?
            }
            At::In(conn) => {
                let find =
                    async |x: &mut Awaiting<'_>, _| x.rows(SAVED, &values, |row| row.int(0)).await;
                self.inner().join(DOING, conn, find).await?
            }
        };
        Ok(found.first().copied().unwrap_or(0))
    }

    async fn trim_events(&self, stream: &str, horizon: i64) -> Result<u64> {
        let values = [Value::Text(stream), Value::Int(horizon)];
        let trim = |x: &mut Inline<'_>, _| {
            ready(x.execute(KEEP_HEAD, &values[..1]))?;
            ready(x.execute(TRIM, &values))
        };
        Ok(self
            .inner()
            .write("trimming", trim, |_, _| {})
            .await?
            .changes)
    }
}

/// How far a stream has come: its last event says it, or the head once that was trimmed.
macro_rules! head {
    () => {
        "max(s.head, coalesce((SELECT max(e.\"offset\") FROM __alkstore_events e
                               WHERE e.stream = s.id), 0))"
    };
}
/// The last offset that a stream gave.
pub(crate) const HEAD: &str = concat!(
    "SELECT ",
    head!(),
    " FROM __alkstore_streams s WHERE s.name = ?1"
);

/// Appends an event, and says to which stream and where; nothing where there is no such stream
/// yet, since its id is missing then.
const APPEND_FIRST: &str = concat!(
    "INSERT OR IGNORE INTO __alkstore_events (stream, \"offset\", created_at, key, payload)
     VALUES ((SELECT id FROM __alkstore_streams WHERE name = ?1),
             (SELECT ",
    head!(),
    " + 1 FROM __alkstore_streams s WHERE s.name = ?1),
             ?2, ?3, ?4)
     RETURNING stream, \"offset\""
);
/// Appends those that come after it.
static APPEND_MORE: LazyLock<[String; CHUNKS.len()]> = LazyLock::new(|| {
    let head =
        "INSERT INTO __alkstore_events (stream, created_at, \"offset\", key, payload) VALUES ";
    // Numbered: the first three values are shared by all rows.
    let row = |row: usize| format!("(?1, ?2, ?3 + {row}, ?{}, ?{})", 2 * row + 4, 2 * row + 5);
    chunked(head, row, "")
});
const CREATE: &str = "INSERT INTO __alkstore_streams (name) VALUES (?1) ON CONFLICT DO NOTHING";
const AFTER_OFFSET: &str = "SELECT e.\"offset\", e.key, e.payload, e.created_at
     FROM __alkstore_events e
     WHERE e.stream = (SELECT id FROM __alkstore_streams WHERE name = ?1) AND e.\"offset\" > ?2
     ORDER BY e.\"offset\" LIMIT ?3";
const AFTER_SAVED: &str = "SELECT e.\"offset\", e.key, e.payload, e.created_at
     FROM __alkstore_events e
     WHERE e.stream = (SELECT id FROM __alkstore_streams WHERE name = ?1)
       AND e.\"offset\" > coalesce(
           (SELECT \"offset\" FROM __alkstore_offsets WHERE stream = ?1 AND consumer = ?2), 0)
     ORDER BY e.\"offset\" LIMIT ?3";
const SAVE: &str = "INSERT INTO __alkstore_offsets (stream, consumer, \"offset\")
     VALUES (?1, ?2, ?3)
     ON CONFLICT (stream, consumer) DO UPDATE SET \"offset\" = excluded.\"offset\"
     WHERE excluded.\"offset\" > \"offset\"";
const SAVED: &str = "SELECT \"offset\" FROM __alkstore_offsets WHERE stream = ?1 AND consumer = ?2";
/// So that no offset comes twice, whatever is trimmed.
const KEEP_HEAD: &str = concat!(
    "UPDATE __alkstore_streams AS s SET head = ",
    head!(),
    " WHERE s.name = ?1"
);
const TRIM: &str = "DELETE FROM __alkstore_events
     WHERE stream = (SELECT id FROM __alkstore_streams WHERE name = ?1) AND \"offset\" <= ?2";

pub(crate) async fn append<X: Exec>(
    x: &mut X,
    now: i64,
    events: &[NewEvent<'_>],
) -> Answer<Results<i64>> {
    let mut offsets = Results::with_capacity(events.len());
    for (name, run) in runs(events) {
        let Some((first, mut rest)) = run.split_first() else {
            continue;
        };
        let (stream, mut offset) = append_first(x, now, name, first).await?;
        offsets.push(offset);
        while !rest.is_empty() {
            let (sql, size) = chunk(&APPEND_MORE, rest.len());
            let (these, later) = rest.split_at(size);
            let mut values = vec![Value::Int(stream), Value::Int(now), Value::Int(offset + 1)];
            for event in these {
                values.extend([Value::maybe_text(event.key), Value::Blob(event.payload)]);
            }
            x.execute(sql, &values).await?;
            for _ in these {
                offset += 1;
                offsets.push(offset);
            }
            rest = later;
        }
    }
    Ok(offsets)
}

/// Appends one event to a stream that need not be there yet, and returns both their numbers.
async fn append_first<X: Exec>(
    x: &mut X,
    now: i64,
    name: &str,
    event: &NewEvent<'_>,
) -> Answer<(i64, i64)> {
    let values = [
        Value::Text(name),
        Value::Int(now),
        Value::maybe_text(event.key),
        Value::Blob(event.payload),
    ];
    let place = |row: &crate::exec::Row<'_>| Ok((row.int(0)?, row.int(1)?));
    let mut placed = x.rows(APPEND_FIRST, &values, place).await?;
    if placed.is_empty() {
        x.execute(CREATE, &[Value::Text(name)]).await?;
        placed = x.rows(APPEND_FIRST, &values, place).await?;
    }
    let place = placed.first().copied();
    place.ok_or_else(|| Failure::internal("an event got no offset"))
}

/// The events in runs of one stream.
fn runs<'s, 'e>(events: &'s [NewEvent<'e>]) -> impl Iterator<Item = (&'e str, &'s [NewEvent<'e>])> {
    events
        .chunk_by(|one, next| one.stream == next.stream)
        .filter_map(|run| Some((run.first()?.stream, run)))
}

async fn read<X: Exec>(
    x: &mut X,
    stream: &str,
    after: After<'_>,
    limit: i64,
) -> Answer<Vec<StreamEvent>> {
    let (sql, after) = match after {
        After::Offset(offset) => (AFTER_OFFSET, Value::Int(offset)),
        After::SavedBy(consumer) => (AFTER_SAVED, Value::Text(consumer)),
    };
    let values = [Value::Text(stream), after, Value::Int(limit)];
    let event = |row: &crate::exec::Row<'_>| {
        Ok(StreamEvent {
            offset: row.int(0)?,
            stream: stream.to_owned(),
            key: row.maybe_text(1)?,
            payload: row.blob(2)?,
            created_at: row.int(3)?,
        })
    };
    x.rows(sql, &values, event).await
}
