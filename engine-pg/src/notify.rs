//! Wakes in SQL: which `NOTIFY` goes out when.
//!
//! A commit with a `NOTIFY` takes a lock of the whole database, so many of them stand in line.
//! Outside of somebody's transaction a topic therefore has one at most per debounce time. The
//! first rides in the statement that made the change; those that come too early are made up for
//! by one more at the end of that time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use alkstore::engine::{At, Notify, Topic, TopicKind, Wakes};
use alkstore::{Error, Result, WakeReceiver};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use tokio::runtime::Handle;
use tokio::time::{sleep, sleep_until, timeout};

use crate::Postgres;
use crate::backend::{Arguments, Inner, Statement};
use crate::error;
use crate::outage::Outage;
use crate::schema::{LONGEST_NAME, Schema};

/// The first size of a payload in bytes that the server refuses.
const LIMIT: usize = 8000;
const NOTIFYING: &str = "notifying";

/// How many topics are remembered after their debounce time.
const MOST_REMEMBERED: usize = 1024;
/// How long a `NOTIFY` that failed waits for its next attempt, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long an operation waits for wakes that are owed and do not concern it.
const FLUSHING: Duration = Duration::from_secs(1);

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

/// Which topics were notified of when, and which still have to be.
#[derive(Debug)]
pub(crate) struct Notifier {
    /// Tells this engine's wakes from others': it wakes its own receivers without the server.
    pub(crate) sender: u32,
    debounce: Duration,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    last: HashMap<String, Instant>,
    owed: HashSet<String>,
    /// Whether a task is there to pay what is owed.
    paying: bool,
    /// When a wake last found no room in the server.
    without_room: Option<Instant>,
    outage: Outage,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            last: HashMap::new(),
            owed: HashSet::new(),
            paying: false,
            without_room: None,
            outage: Outage::new(RETRY.0, RETRY.1),
        }
    }
}

impl Notifier {
    pub(crate) fn new(debounce: Duration, sender: u32) -> Self {
        Self {
            sender,
            debounce,
            table: Mutex::default(),
        }
    }

    /// Whether a change of the topic takes its `NOTIFY` along.
    fn admit(&self, wake: &str) -> Ride {
        let now = Instant::now();
        let mut table = self.table();
        match table.last.get_mut(wake) {
            Some(last) if now.duration_since(*last) < self.debounce => return Ride::Later,
            Some(last) => *last = now,
            None => {
                if table.last.len() >= MOST_REMEMBERED {
                    table
                        .last
                        .retain(|_, last| now.duration_since(*last) < self.debounce);
                }
                table.last.insert(wake.to_owned(), now);
            }
        }
        // One that is still owed is for a commit before this one, which pays for both.
        Ride::Along {
            paid: table.owed.remove(wake),
        }
    }

    /// What is owed and due, or when something is.
    fn due(&self) -> Due {
        let now = Instant::now();
        let mut table = self.table();
        let due_at = |last: Option<&Instant>| last.map_or(now, |last| *last + self.debounce);
        let due: Vec<_> = {
            let Table { last, owed, .. } = &mut *table;
            owed.extract_if(|wake| due_at(last.get(wake)) <= now)
                .collect()
        };
        for wake in &due {
            table.last.insert(wake.clone(), now);
        }
        if !due.is_empty() {
            return Due::Now(due);
        }
        match table
            .owed
            .iter()
            .map(|wake| due_at(table.last.get(wake)))
            .min()
        {
            Some(next) => Due::At(next),
            None => {
                table.paying = false;
                Due::Nothing
            }
        }
    }

    /// A wake found no room in the server.
    fn has_no_room(&self) {
        let now = Instant::now();
        let mut table = self.table();
        table.without_room = Some(now);
        if table.outage.is_to_be_told(now) {
            drop(table);
            tracing::warn!("wakes wait: {}", error::NOTIFY_QUEUE_FULL);
        }
    }

    /// Whether a wake found no room in the server since then.
    fn had_no_room_since(&self, began: Instant) -> bool {
        self.table().without_room.is_some_and(|at| at >= began)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here can be left half done by a panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ride {
    /// In the statement; `paid` if it stands for an earlier one as well.
    Along { paid: bool },
    /// After the debounce time.
    Later,
}

enum Due {
    Now(Vec<String>),
    At(Instant),
    Nothing,
}

/// The topics that one operation changes, from before its statement to after its commit.
pub(crate) struct Waking<'a> {
    inner: &'a Arc<Inner>,
    /// Empty in somebody's transaction: the server wakes everybody at its commit.
    topics: Vec<(Topic<'a>, String, Ride)>,
    /// What the statement notifies the internal channel of.
    pub(crate) along: Vec<String>,
}

impl<'a> Waking<'a> {
    pub(crate) fn new(
        inner: &'a Arc<Inner>,
        at: &At<'_, PgConnection>,
        topics: impl IntoIterator<Item = Topic<'a>>,
    ) -> Self {
        let mut waking = Self {
            inner,
            topics: Vec::new(),
            along: Vec::new(),
        };
        for topic in topics {
            match at {
                At::In(_) => {
                    let wake = for_anyone(topic);
                    if !waking.along.contains(&wake) {
                        waking.along.push(wake);
                    }
                }
                At::Auto if waking.topics.iter().any(|(known, ..)| *known == topic) => {}
                At::Auto => {
                    let wake = encode(inner.notifier.sender, topic);
                    let ride = inner.notifier.admit(&wake);
                    if ride != Ride::Later {
                        waking.along.push(wake.clone());
                    }
                    waking.topics.push((topic, wake, ride));
                }
            }
        }
        waking
    }

    /// Runs the statement that makes the change: the first of these that returns a row. Its
    /// `arguments` are made with the wakes that ride along, and the second column of its rows says
    /// whether there was room for them; those without go out once there is.
    pub(crate) async fn run(
        mut self,
        mut at: At<'_, PgConnection>,
        statements: &[&Statement],
        arguments: impl Fn(&[String]) -> Arguments + Send + Sync,
    ) -> Result<Vec<PgRow>> {
        let along = std::mem::take(&mut self.along);
        let (inner, auto) = (self.inner, matches!(at, At::Auto));
        let mut rows = Ok(Vec::new());
        for statement in statements {
            rows = inner
                .run(again(&mut at), statement, || arguments(&along))
                .await;
            match &rows {
                // Somebody was quicker to use up the room.
                Err(error) if auto && is_without_room(error) => {
                    self.found_no_room(&along);
                    rows = inner.run(At::Auto, statement, || arguments(&[])).await;
                }
                Ok(rows) if !had_room(rows) => self.found_no_room(&along),
                _ => {}
            }
            if rows.as_ref().map_or(true, |rows| !rows.is_empty()) {
                break;
            }
        }
        self.ended(rows)
    }

    fn found_no_room(&mut self, along: &[String]) {
        // In somebody's transaction there is nothing else that tells of them.
        let only = if self.topics.is_empty() { along } else { &[] };
        wake_with_room(self.inner, only.iter().cloned());
        for (.., ride) in &mut self.topics {
            *ride = Ride::Later;
        }
    }

    /// Tells who has to hear it how the operation ended.
    fn ended<T>(mut self, result: Result<T>) -> Result<T> {
        let topics = std::mem::take(&mut self.topics);
        let owed = |ride| match &result {
            Ok(_) => ride == Ride::Later,
            Err(error) if error.is_transient() => true,
            Err(_) => ride == Ride::Along { paid: true },
        };
        if result.is_ok() {
            topics
                .iter()
                .for_each(|(topic, ..)| self.inner.hub.wake(*topic));
        }
        let owed = topics
            .into_iter()
            .filter(|(.., ride)| owed(*ride))
            .map(|(_, wake, _)| wake);
        owe(self.inner, owed);
        result
    }
}

impl Drop for Waking<'_> {
    fn drop(&mut self) {
        // The future was dropped, and the commit may land all the same.
        let topics = std::mem::take(&mut self.topics);
        topics
            .iter()
            .for_each(|(topic, ..)| self.inner.hub.wake(*topic));
        owe(self.inner, topics.into_iter().map(|(_, wake, _)| wake));
    }
}

/// The same place once more.
fn again<'c>(at: &'c mut At<'_, PgConnection>) -> At<'c, PgConnection> {
    match at {
        At::Auto => At::Auto,
        At::In(connection) => At::In(connection),
    }
}

/// Whether the server had no room for a notify.
fn is_without_room(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    source
        .and_then(<dyn std::error::Error>::downcast_ref::<sqlx::Error>)
        .is_some_and(error::is_notify_queue_full)
}

/// Wakes that found no room in the server go out once it has some.
pub(crate) fn wake_with_room(inner: &Arc<Inner>, wakes: impl IntoIterator<Item = String>) {
    inner.notifier.has_no_room();
    owe(inner, wakes);
}

/// Makes up for the wakes of a transaction that began then, if some found no room.
pub(crate) fn wake_after_commit(inner: &Arc<Inner>, began: Instant, wakes: &Wakes) {
    if inner.notifier.had_no_room_since(began) {
        owe(inner, wakes.iter().map(for_anyone));
    }
}

/// Wakes who waits for a topic that was changed by a commit without a `NOTIFY`.
pub(crate) fn wake_later(inner: &Arc<Inner>, topic: Topic<'_>) {
    inner.hub.wake(topic);
    owe(inner, [encode(inner.notifier.sender, topic)]);
}

fn owe(inner: &Arc<Inner>, wakes: impl IntoIterator<Item = String>) {
    let mut table = inner.notifier.table();
    table.owed.extend(wakes);
    if table.owed.is_empty() || table.paying {
        return;
    }
    if let Ok(runtime) = Handle::try_current() {
        table.paying = true;
        drop(table);
        runtime.spawn(pay(Paying {
            inner: Arc::clone(inner),
            sending: Vec::new(),
        }));
    }
}

/// The task that pays. If its runtime ends first, the next change that owes a wake starts another,
/// which sends as well what this one had not sent.
struct Paying {
    inner: Arc<Inner>,
    sending: Vec<String>,
}

impl Drop for Paying {
    fn drop(&mut self) {
        let mut table = self.inner.notifier.table();
        table.owed.extend(self.sending.drain(..));
        table.paying = false;
    }
}

/// Sends what is owed when it is due, until nothing is.
async fn pay(mut paying: Paying) {
    /// The references that this task itself has.
    const MINE: usize = 2;
    let inner = &Arc::clone(&paying.inner);
    loop {
        match inner.notifier.due() {
            Due::Nothing => return,
            Due::At(next) => sleep_until(next.into()).await,
            Due::Now(wakes) => {
                paying.sending = wakes;
                let sent = send(inner, &paying.sending).await;
                let wakes = std::mem::take(&mut paying.sending);
                let Err(error) = sent else {
                    inner.notifier.table().outage.is_over(Instant::now());
                    continue;
                };
                inner.notifier.table().owed.extend(wakes);
                // Closed, or dropped by all but this task: there is no more to come.
                if inner.live().is_err() || Arc::strong_count(inner) == MINE {
                    return;
                }
                let (pause, told) = {
                    let outage = &mut inner.notifier.table().outage;
                    (outage.pause(), outage.is_to_be_told(Instant::now()))
                };
                if told {
                    tracing::warn!(%error, "wakes wait for the server");
                }
                sleep(pause).await;
            }
        }
    }
}

async fn send(inner: &Inner, wakes: &[String]) -> Result<()> {
    let arguments = || Arguments::default().add(wakes);
    let rows = inner
        .run(At::Auto, &inner.statements.notify.wake, arguments)
        .await?;
    if had_room(&rows) {
        Ok(())
    } else {
        Err(no_room())
    }
}

fn no_room() -> Error {
    Error::transient("notifying failed", error::NOTIFY_QUEUE_FULL)
}

impl Postgres {
    /// Sends what is owed at once.
    pub(crate) async fn flush_wakes(&self) {
        let inner = self.inner();
        let owed: Vec<_> = inner.notifier.table().owed.drain().collect();
        if owed.is_empty() {
            return;
        }
        if !matches!(timeout(FLUSHING, send(inner, &owed)).await, Ok(Ok(()))) {
            owe(inner, owed);
        }
    }
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

    #[test]
    fn a_burst_has_one_notify_and_one_more_is_owed() {
        let notifier = Notifier::new(Duration::from_secs(60), 1);
        assert_eq!(notifier.admit("a"), Ride::Along { paid: false });
        assert_eq!(notifier.admit("a"), Ride::Later);
        assert_eq!(notifier.admit("b"), Ride::Along { paid: false });
        notifier.table().owed.insert("a".into());
        assert!(matches!(notifier.due(), Due::At(_)));
        let at_once = Notifier::new(Duration::ZERO, 1);
        at_once.table().owed.insert("a".into());
        assert_eq!(at_once.admit("a"), Ride::Along { paid: true });
        assert!(matches!(at_once.due(), Due::Nothing));
    }
}
