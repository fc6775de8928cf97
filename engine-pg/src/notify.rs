//! Wakes in SQL: which `NOTIFY` goes out when.
//!
//! A commit with a `NOTIFY` takes a lock of the whole database, so many of them stand in line.
//! Outside of somebody's transaction a topic therefore has one at most per debounce time. The
//! first rides in the statement that made the change; those that come too early are made up for
//! by one more at the end of that time.

mod debounce;
mod owed;
mod waking;

use alkstore::engine::{At, Notify, Topic, TopicKind};
use alkstore::{Error, Result, WakeReceiver};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use crate::Postgres;
use crate::backend::{Arguments, Statement};
use crate::schema::{LONGEST_NAME, Schema};

pub(crate) use debounce::Notifier;
pub(crate) use owed::{wake_after_commit, wake_later, wake_with_room};
pub(crate) use waking::Waking;

use owed::no_room;

/// The first size of a payload in bytes that the server refuses.
const LIMIT: usize = 8000;
const NOTIFYING: &str = "notifying";

/// The statements of this mechanism.
#[derive(Debug)]
pub(crate) struct Statements {
    send: Statement,
    wake: Statement,
}

impl Statements {
    pub(crate) fn new(channel: &str) -> Self {
        let send = format!(
            "SELECT true, CASE WHEN {HAS_ROOM} THEN pg_notify($1, $2)::text IS NOT NULL ELSE false END"
        );
        let wake = format!("SELECT true, {}", wake_all(channel, "$1::text[]"));
        Self {
            send: Statement::new(NOTIFYING, send),
            wake: Statement::new("waking", wake),
        }
    }
}

/// SQL for whether the server's queue of notifies has room. A commit with a notify that finds none
/// fails as a whole.
const HAS_ROOM: &str = "pg_notification_queue_usage() < 0.9";

/// SQL that notifies the internal channel of each element of an array of texts; false if there
/// are some and the server has no room for them.
pub(crate) fn wake_all(channel: &str, wakes: &str) -> String {
    format!(
        "(SELECT CASE WHEN cardinality(wakes) = 0 THEN true WHEN {HAS_ROOM} THEN
             (SELECT count(pg_notify('{channel}', wake)) FROM unnest(wakes) AS wake) > 0
         ELSE false END FROM (SELECT {wakes} AS wakes) AS given)"
    )
}

/// The same of one text, of nothing if it is empty.
pub(crate) fn wake_one(channel: &str, wake: &str) -> String {
    format!(
        "CASE WHEN {wake}::text = '' THEN true WHEN {HAS_ROOM} THEN
             pg_notify('{channel}', {wake})::text IS NOT NULL
         ELSE false END"
    )
}

/// Whether there was room, as the second column of a statement's rows says.
pub(crate) fn had_room(rows: &[PgRow]) -> bool {
    let had = rows.first().map(|row| row.try_get(1));
    !matches!(had, Some(Ok(false)))
}

/// The one channel for all topics of a schema that are not a channel of their own.
pub(crate) fn internal_channel(schema: &Schema) -> String {
    format!("__alkstore_{:016x}", schema.number())
}

/// The channel that a topic has for itself: a user's, if its name is not longer than the server
/// keeps it.
pub(crate) fn own_channel<'a>(topic: &Topic<'a>) -> Option<&'a str> {
    let own = topic.kind == TopicKind::Channel && topic.name.len() <= LONGEST_NAME;
    own.then_some(topic.name)
}

impl Notify for Postgres {
    async fn send_notify(
        &self,
        at: At<'_, PgConnection>,
        channel: &str,
        payload: &[u8],
    ) -> Result<()> {
        let inner = self.inner();
        let auto = matches!(at, At::Auto);
        let topic = Topic::channel(channel);
        let rows = match own_channel(&topic) {
            Some(own) => {
                let payload = std::str::from_utf8(payload)
                    .map_err(|error| Error::database("a payload must be text", error))?;
                let arguments = || Arguments::default().add(own).add(payload);
                let send = &inner.statements.notify.send;
                inner.run(at, send, arguments).await?
            }
            None => {
                let wake = [for_anyone(topic)];
                let arguments = || Arguments::default().add(&wake[..]);
                let wake = &inner.statements.notify.wake;
                inner.run(at, wake, arguments).await?
            }
        };
        if !had_room(&rows) {
            // The transaction is worth more than its notify.
            if auto {
                return Err(no_room());
            }
            wake_with_room(inner, [for_anyone(topic)]);
        }
        if auto && !inner.listener.is_enabled() {
            inner.hub.wake(topic);
        }
        Ok(())
    }

    async fn listen(&self, topic: Topic<'_>) -> Result<WakeReceiver> {
        let inner = self.inner();
        inner.live()?;
        // What was changed before this call must not be heard by who listens after it.
        self.flush_wakes().await;
        // Attached while the server is told, so that the channel counts as wanted.
        let wanted = inner.hub.attach(topic);
        inner.listener.listen(topic).await?;
        inner.live()?;
        let receiver = inner.hub.attach(topic);
        drop(wanted);
        Ok(receiver)
    }

    fn notify_limit(&self) -> Option<usize> {
        Some(LIMIT)
    }
}

/// No sender: everyone is to hear it, the process that it comes from as well.
const ANYONE: u32 = 0;

/// A topic as the payload of the internal channel.
fn encode(sender: u32, topic: Topic<'_>) -> String {
    let kind = match topic.kind {
        TopicKind::Channel => 'c',
        TopicKind::Stream => 's',
        TopicKind::Queue => 'q',
        TopicKind::Schedules => 't',
    };
    format!("{sender:08x}{kind}{}", topic.name)
}

/// A topic as the payload of the internal channel, for every process.
pub(crate) fn for_anyone(topic: Topic<'_>) -> String {
    encode(ANYONE, topic)
}

/// The topic in a payload of the internal channel, and who sent it.
pub(crate) fn decode(payload: &str) -> Option<(u32, Topic<'_>)> {
    let (sender, topic) = payload.split_at_checked(8)?;
    let sender = u32::from_str_radix(sender, 16).ok()?;
    let (kind, name) = topic.split_at_checked(1)?;
    let kind = match kind {
        "c" => TopicKind::Channel,
        "s" => TopicKind::Stream,
        "q" => TopicKind::Queue,
        "t" => TopicKind::Schedules,
        _ => return None,
    };
    Some((sender, Topic { kind, name }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_survives_the_wire() {
        for topic in [
            Topic::channel("a: b"),
            Topic::stream("sé"),
            Topic::queue(""),
            Topic::SCHEDULES,
        ] {
            assert_eq!(decode(&encode(7, topic)), Some((7, topic)));
        }
        for garbage in [
            "",
            "0000000",
            "00000000",
            "00000000x",
            "zzzzzzzzq",
            "0000000éq",
        ] {
            assert_eq!(decode(garbage), None);
        }
    }

    #[test]
    fn long_names_have_no_channel_of_their_own() {
        assert!(own_channel(&Topic::channel(&"a".repeat(63))).is_some());
        assert!(own_channel(&Topic::channel(&"a".repeat(64))).is_none());
        assert!(own_channel(&Topic::queue("a")).is_none());
    }
}
