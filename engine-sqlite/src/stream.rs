//! Streams of events.

use std::sync::LazyLock;
use std::time::Instant;

use alkstore::engine::{After, At, MOST_PER_STEP, NewEvent, Results, Streams, Topic, TrimStep};
use alkstore::{Result, StreamEvent};
use sqlx::SqliteConnection;

use crate::Sqlite;
use crate::error::{Answer, Failure};
use crate::exec::{Awaiting, CHUNKS, Exec, Inline, Row, Value, chunk, chunked, ready};
use crate::queue::{fitting, let_others_pass};

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
                self.inner().write(DOING, append, touched).await
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

    async fn read_page(
        &self,
        stream: &str,
        offset: i64,
        limit: i64,
        bytes: i64,
    ) -> Result<Vec<StreamEvent>> {
        let page = |x: &mut Inline<'_>, _| {
            let values = [Value::Text(stream), Value::Int(offset), Value::Int(limit)];
            // Its rows are read as it steps to them: those after the last are never touched.
            let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
            x.rows_while(AFTER_OFFSET, &values, |row| {
                if left == 0 {
                    return Ok(None);
                }
                let event = event(stream, row)?;
                left = left.saturating_sub(event.size());
                Ok(Some(event))
            })
        };
        self.inner().read("reading events", page).await
    }

    async fn save_offset(
        &self,
        at: At<'_, SqliteConnection>,
        stream: &str,
        consumer: &str,
        offset: i64,
    ) -> Result<bool> {
        const DOING: &str = "saving an offset";
        // An unknown consumer is at 0 already.
        if offset < 1 {
            return Ok(false);
        }
        let values = [
            Value::Text(stream),
            Value::Text(consumer),
            Value::Int(offset),
        ];
        let saved = match at {
            At::Auto => {
                let save = |x: &mut Inline<'_>, _| ready(x.execute(SAVE, &values));
                self.inner().write(DOING, save, |_, _| {}).await?
            }
            At::In(conn) => {
                let save = async |x: &mut Awaiting<'_>, _| x.execute(SAVE, &values).await;
                self.inner().join(DOING, conn, save).await?
            }
        };
        Ok(saved.changes > 0)
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

    async fn trim_events(&self, stream: &str, after: i64, horizon: i64) -> Result<TrimStep> {
        let trim = |x: &mut Inline<'_>, _| ready(trim(x, stream, after, horizon));
        let begun = Instant::now();
        let step = self.inner().write("trimming", trim, |_, _| {}).await?;
        if step.next.is_some() {
            let_others_pass(begun).await;
        }
        Ok(step)
    }
}

/// What a stream's places are above: see the schema.
macro_rules! base {
    () => {
        "(SELECT id << 40 FROM __alkstore_streams WHERE name = ?1)"
    };
}
/// How far a stream has come: its last event says it, or the head once that was trimmed.
macro_rules! head {
    () => {
        "max(s.head, coalesce((SELECT max(e.place) FROM __alkstore_events e
             WHERE e.place > (s.id << 40) AND e.place < ((s.id + 1) << 40)) & 1099511627775, 0))"
    };
}
/// The greatest offset; also what takes one out of a place.
const MOST: i64 = (1 << 40) - 1;
/// The last offset that a stream gave.
pub(crate) const HEAD: &str = concat!(
    "SELECT ",
    head!(),
    " FROM __alkstore_streams s WHERE s.name = ?1"
);

/// Appends an event; nothing where there is no such stream yet, since no event is at place 0.
const APPEND_FIRST: &str = concat!(
    "INSERT OR IGNORE INTO __alkstore_events (place, created_at, key, payload)
     VALUES (coalesce((SELECT (s.id << 40) + ",
    head!(),
    " + 1 FROM __alkstore_streams s WHERE s.name = ?1), 0), ?2, ?3, ?4)"
);
/// Appends those that come after it.
static APPEND_MORE: LazyLock<[String; CHUNKS.len()]> = LazyLock::new(|| {
    let head = "INSERT INTO __alkstore_events (place, created_at, key, payload) VALUES ";
    // Numbered: the first two values are shared by all rows.
    let row = |row: usize| format!("(?1 + {row}, ?2, ?{}, ?{})", 2 * row + 3, 2 * row + 4);
    chunked(head, row, "")
});
const CREATE: &str = "INSERT INTO __alkstore_streams (name) VALUES (?1) ON CONFLICT DO NOTHING";
macro_rules! after {
    ($offset:literal) => {
        concat!(
            "SELECT e.place & 1099511627775, e.key, e.payload, e.created_at
             FROM __alkstore_events e WHERE e.place > ",
            base!(),
            " + max(",
            $offset,
            ", 0) AND e.place <= ",
            base!(),
            " + 1099511627775 ORDER BY e.place LIMIT ?3"
        )
    };
}
const AFTER_OFFSET: &str = after!("?2");
const AFTER_SAVED: &str = after!(
    "coalesce((SELECT \"offset\" FROM __alkstore_offsets WHERE stream = ?1 AND consumer = ?2), 0)"
);
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
const TRIM: &str = concat!(
    "DELETE FROM __alkstore_events WHERE place > ",
    base!(),
    " AND place <= ",
    base!(),
    " + min(?2, 1099511627775)"
);

/// The offsets and sizes of the events that a step of a trim could delete.
const TRIM_SIZES: &str = concat!(
    "SELECT place & 1099511627775, length(payload) FROM __alkstore_events WHERE place > ",
    base!(),
    " + max(?2, 0) AND place <= ",
    base!(),
    " + min(?3, 1099511627775) ORDER BY place LIMIT ?4"
);

/// Does one step of a trim.
async fn trim<X: Exec>(x: &mut X, stream: &str, after: i64, horizon: i64) -> Answer<TrimStep> {
    let [name, most] = [Value::Text(stream), Value::Int(MOST_PER_STEP)];
    let range = [name, Value::Int(after), Value::Int(horizon), most];
    let sized = |row: &Row<'_>| Ok((row.int(0)?, row.int(1)?));
    let (offsets, sizes): (Vec<_>, Vec<_>) =
        x.rows(TRIM_SIZES, &range, sized).await?.into_iter().unzip();
    let (rows, whole) = fitting(&sizes);
    let last = usize::try_from(rows - 1)
        .ok()
        .and_then(|row| offsets.get(row));
    let Some(&last) = last else {
        return Ok(TrimStep::default());
    };
    x.execute(KEEP_HEAD, &[name]).await?;
    let trimmed = x.execute(TRIM, &[name, Value::Int(last)]).await?.changes;
    let more = !whole || rows == MOST_PER_STEP;
    let next = more.then_some(last);
    Ok(TrimStep { trimmed, next })
}

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
        let mut place = append_first(x, now, name, first).await?;
        offsets.push(place & MOST);
        if MOST - (place & MOST) <= i64::try_from(rest.len()).unwrap_or(i64::MAX) {
            return Err(Failure::internal("the stream has given all its offsets"));
        }
        while !rest.is_empty() {
            let (sql, size) = chunk(&APPEND_MORE, rest.len());
            let (these, later) = rest.split_at(size);
            let mut values = vec![Value::Int(place + 1), Value::Int(now)];
            for event in these {
                values.extend([Value::maybe_text(event.key), Value::Blob(event.payload)]);
            }
            x.execute(sql, &values).await?;
            for _ in these {
                place += 1;
                offsets.push(place & MOST);
            }
            rest = later;
        }
    }
    Ok(offsets)
}

/// Appends one event to a stream that need not be there yet, and returns its place.
async fn append_first<X: Exec>(
    x: &mut X,
    now: i64,
    name: &str,
    event: &NewEvent<'_>,
) -> Answer<i64> {
    let values = [
        Value::Text(name),
        Value::Int(now),
        Value::maybe_text(event.key),
        Value::Blob(event.payload),
    ];
    let mut placed = x.execute(APPEND_FIRST, &values).await?;
    if placed.changes == 0 {
        x.execute(CREATE, &[Value::Text(name)]).await?;
        placed = x.execute(APPEND_FIRST, &values).await?;
    }
    if placed.changes == 0 {
        return Err(Failure::internal(
            "the database has as many streams as it can",
        ));
    }
    Ok(placed.last_id)
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
    x.rows(sql, &values, |row| event(stream, row)).await
}

fn event(stream: &str, row: &Row<'_>) -> Answer<StreamEvent> {
    let mut event = StreamEvent::new(stream, row.int(0)?, row.blob(2)?, row.int(3)?);
    event.key = row.maybe_text(1)?;
    Ok(event)
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::place::{Place, Role};
    use crate::schema;

    const EVENTS: i64 = 20_000;

    fn database() -> rusqlite::Connection {
        let place = Place::parse(":memory:").expect("a place");
        let mut connection = place.connect(Role::Writer).expect("it opens");
        schema::bring_up(&mut connection).expect("the schema");
        connection
    }

    fn new_event(stream: &str) -> NewEvent<'_> {
        NewEvent {
            stream,
            key: None,
            payload: b"1",
        }
    }

    #[test]
    fn what_stands_around_costs_nothing() {
        let connection = &mut database();
        for stream in ["before", "here", "behind"] {
            let events = vec![new_event(stream); usize::try_from(EVENTS).expect("few")];
            ready(append(&mut Inline(connection), 0, &events)).expect("appended");
        }
        connection.execute_batch("ANALYZE").expect("analyzed");
        let x = &mut Inline(connection);
        let offsets = ready(append(x, 0, &[new_event("here")])).expect("appended");
        assert_eq!(offsets[..], [EVENTS + 1]);
        for after in [After::Offset(EVENTS / 2), After::SavedBy("nobody")] {
            let read = ready(read(x, "here", after, 10)).expect("read");
            assert_eq!(read.len(), 10);
        }
        for sql in [APPEND_FIRST, AFTER_OFFSET, AFTER_SAVED] {
            let statement = connection.prepare_cached(sql).expect("it is cached");
            let steps = statement.get_status(StatementStatus::VmStep);
            let scanned = statement.get_status(StatementStatus::FullscanStep);
            assert!(
                steps < 600 && scanned == 0,
                "{steps} steps, {scanned} scanned: {sql}"
            );
        }
    }

    #[test]
    fn offsets_of_any_size_stay_within_their_stream() {
        let connection = &mut database();
        let x = &mut Inline(connection);
        for stream in ["before", "here", "behind"] {
            ready(append(x, 0, &[new_event(stream)])).expect("appended");
        }
        for (offset, found) in [
            (i64::MIN, 1),
            (-1, 1),
            (0, 1),
            (1, 0),
            (MOST, 0),
            (i64::MAX, 0),
        ] {
            let read = ready(read(x, "here", After::Offset(offset), i64::MAX)).expect("read");
            assert_eq!(read.len(), found, "after {offset}");
        }
        for (horizon, gone) in [(i64::MIN, 0), (0, 0), (i64::MAX, 1)] {
            let values = [Value::Text("here"), Value::Int(horizon)];
            let trimmed = ready(x.execute(TRIM, &values)).expect("trimmed");
            assert_eq!(trimmed.changes, gone, "up to {horizon}");
        }
        let left = ready(read(x, "behind", After::Offset(0), 9)).expect("read");
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn a_stream_that_has_given_all_its_offsets_says_so() {
        let connection = &mut database();
        ready(append(&mut Inline(connection), 0, &[new_event("old")])).expect("appended");
        let near = format!("UPDATE __alkstore_streams SET head = {}", MOST - 2);
        connection.execute_batch(&near).expect("far on");
        let x = &mut Inline(connection);
        let last = ready(append(x, 0, &[new_event("old")])).expect("one is left");
        assert_eq!(last[..], [MOST - 1]);
        ready(append(x, 0, &[new_event("old")])).expect_err("none is left");
    }

    #[test]
    fn a_database_with_too_many_streams_says_so() {
        let connection = &mut database();
        let full = "INSERT INTO __alkstore_streams (id, name) VALUES ((1 << 23) - 1, 'last')";
        connection.execute_batch(full).expect("many");
        let x = &mut Inline(connection);
        ready(append(x, 0, &[new_event("last")])).expect("appended");
        ready(append(x, 0, &[new_event("one more")])).expect_err("too many");
    }
}
