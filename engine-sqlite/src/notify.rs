//! Wake-ups: who listens to what, and which change they have heard of.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use alkstore::engine::{At, Notify, Topic, TopicKind, WakeHub};
use alkstore::{Result, WakeReceiver};
use rusqlite::Connection;
use sqlx::SqliteConnection;

use crate::Sqlite;
use crate::error::Answer;
use crate::exec::{Exec, Inline, Row, Value, ready};
use crate::stream::HEAD;

const BUMP: &str = "INSERT INTO __alkstore_topics (kind, name, version) VALUES (?1, ?2, ?3)
     ON CONFLICT (kind, name) DO UPDATE SET version = max(version + 1, excluded.version)";
const VERSION: &str = "SELECT version FROM __alkstore_topics WHERE kind = ?1 AND name = ?2";
/// The id of the newest job, of any queue.
const NEWEST: &str = "SELECT coalesce(max(id), 0) FROM __alkstore_jobs";
/// The greatest id that any job ever had.
const EVER: &str = "SELECT max((SELECT coalesce(max(id), 0) FROM __alkstore_jobs),
     (SELECT coalesce(max(id), 0) FROM __alkstore_last_job))";
/// Jobs that are newer than one.
const NEWER: &str = "SELECT id, queue FROM __alkstore_jobs WHERE id > ?1 ORDER BY id LIMIT ?2";
/// So many jobs are looked at in one go.
const LOOK: usize = 1000;
const PRUNE: &str = "DELETE FROM __alkstore_topics WHERE version < ?1";
const PRUNABLE: &str = "SELECT 1 FROM __alkstore_topics WHERE version < ?1 LIMIT 1";

impl Notify for Sqlite {
    async fn send_notify(
        &self,
        at: At<'_, SqliteConnection>,
        channel: &str,
        _payload: &[u8],
    ) -> Result<()> {
        const DOING: &str = "sending a notify";
        let topic = Topic::channel(channel);
        match at {
            At::Auto => {
                let send = |x: &mut Inline<'_>, _| ready(bump(x, topic));
                self.inner()
                    .write(DOING, send, |(), wake| wake(topic))
                    .await
            }
            At::In(conn) => {
                self.inner()
                    .join(DOING, conn, async |x, _| bump(x, topic).await)
                    .await
            }
        }
    }

    async fn listen(&self, topic: Topic<'_>) -> Result<WakeReceiver> {
        let inner = self.inner();
        inner.start_watching()?;
        let hearing = &inner.hearing;
        inner
            .read("listening", |x, _| hearing.attach(x.0, topic))
            .await
    }

    fn notify_limit(&self) -> Option<usize> {
        None
    }
}

/// Tells other processes that the topic changed, once this commits.
pub(crate) async fn bump<X: Exec>(x: &mut X, topic: Topic<'_>) -> Answer<()> {
    let values = [
        Value::Int(kind(topic.kind)),
        Value::Text(topic.name),
        Value::Int(micros()),
    ];
    x.execute(BUMP, &values).await.map(|_| ())
}

/// Deletes the versions of topics that have not changed for a day. A topic that changes later
/// starts above its old version, because versions follow the clock.
pub(crate) fn prune(connection: &mut Connection) -> Answer<()> {
    const DAY: i64 = 24 * 60 * 60 * 1_000_000;
    let before = [Value::Int(micros().saturating_sub(DAY))];
    let mut x = Inline(connection);
    if !ready(x.rows(PRUNABLE, &before, |_| Ok(())))?.is_empty() {
        ready(x.execute(PRUNE, &before))?;
    }
    Ok(())
}

fn kind(kind: TopicKind) -> i64 {
    match kind {
        TopicKind::Channel => 1,
        TopicKind::Queue => 2,
        TopicKind::Schedules => 3,
        TopicKind::Stream => 4,
    }
}

/// The host's clock in microseconds, never offset: versions are no times of the contract.
fn micros() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    })
}

/// What is known of a topic: it changed if one of the numbers is greater than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    /// Grows with each commit that touches the topic, 0 before the first. Of a queue, with each
    /// that gives a job back to it.
    number: i64,
    /// Of a queue, the newest job that was there; another that is newer is a change if it is in
    /// this queue. So an enqueue writes nothing but its job.
    newest: i64,
}

impl Version {
    fn read(connection: &mut Connection, topic: Topic<'_>) -> Answer<Self> {
        let number = number(connection, topic)?;
        let newest = match topic.kind {
            TopicKind::Queue => newest(connection)?,
            _ => 0,
        };
        Ok(Self { number, newest })
    }

    /// Moves on to what was read, and says whether that is a change.
    fn advance(&mut self, read: Self) -> bool {
        let changed = read.number > self.number || read.newest > self.newest;
        self.number = self.number.max(read.number);
        self.newest = self.newest.max(read.newest);
        changed
    }
}

fn number(connection: &mut Connection, topic: Topic<'_>) -> Answer<i64> {
    let mut x = Inline(connection);
    let found = match topic.kind {
        TopicKind::Stream => ready(x.rows(HEAD, &[Value::Text(topic.name)], |row| row.int(0))),
        other => {
            let values = [Value::Int(kind(other)), Value::Text(topic.name)];
            ready(x.rows(VERSION, &values, |row| row.int(0)))
        }
    };
    Ok(found?.first().copied().unwrap_or(0))
}

fn newest(connection: &mut Connection) -> Answer<i64> {
    one(connection, NEWEST)
}

fn one(connection: &mut Connection, sql: &'static str) -> Answer<i64> {
    let found = ready(Inline(connection).rows(sql, &[], |row| row.int(0)))?;
    Ok(found.first().copied().unwrap_or(0))
}

/// The receivers of this process, and what they have heard of.
#[derive(Debug, Default)]
pub(crate) struct Hearing {
    hub: WakeHub,
    heard: Mutex<Heard>,
}

/// The last version that each topic's receivers were woken for. Whoever finds a greater one
/// wakes them, be it the commit itself or the watcher, so that a change wakes once.
#[derive(Debug, Default)]
struct Heard {
    versions: HashMap<TopicKind, HashMap<Arc<str>, Version>>,
    /// The newest job that was looked at.
    newest: i64,
    topics: usize,
    /// With so many topics those that nobody waits for any more are forgotten.
    most: usize,
}

impl Hearing {
    pub(crate) fn hub(&self) -> &WakeHub {
        &self.hub
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        // A version that was not written down is read again.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A receiver of what commits from now on.
    fn attach(&self, connection: &mut Connection, topic: Topic<'_>) -> Answer<WakeReceiver> {
        // Nobody wakes anybody while this is held: a commit is either in the version that is
        // read here, and not for the new receiver, or wakes after it is attached.
        if topic.kind == TopicKind::Queue {
            while self.look_at_jobs(connection)? {}
        }
        let mut heard = self.lock();
        let version = Version::read(connection, topic)?;
        match heard.get_mut(topic) {
            Some(known) => {
                let newest = known.newest;
                if known.advance(Version { newest, ..version }) {
                    self.hub.wake(topic);
                }
            }
            None => heard.insert(topic, version, &self.hub),
        }
        Ok(self.hub.attach(topic))
    }

    /// Wakes who listens to a topic that was just committed, unless the watcher was faster.
    pub(crate) fn committed(&self, connection: &mut Connection, topic: Topic<'_>) {
        let mut heard = self.lock();
        let Some(known) = heard.get_mut(topic) else {
            return;
        };
        // Where it cannot be read, a wake too many does no harm.
        if Version::read(connection, topic).map_or(true, |version| known.advance(version)) {
            self.hub.wake(topic);
        }
    }

    /// Looks at each topic that someone waits for, and wakes those that changed. Commits of
    /// this process wait at most for one topic of it.
    pub(crate) fn look(&self, connection: &mut Connection) -> Answer<()> {
        for (kind, name, known) in self.known() {
            let topic = Topic { kind, name: &name };
            if number(connection, topic)? != known.number {
                self.look_at(connection, topic)?;
            }
        }
        while self.look_at_jobs(connection)? {}
        self.look_for_lower_ids(connection)
    }

    /// What is known of each topic.
    fn known(&self) -> Vec<(TopicKind, Arc<str>, Version)> {
        let heard = self.lock();
        let mut all = Vec::with_capacity(heard.topics);
        for (kind, names) in &heard.versions {
            all.extend(
                names
                    .iter()
                    .map(|(name, known)| (*kind, Arc::clone(name), *known)),
            );
        }
        all
    }

    /// Wakes a topic unless its commit has done so already.
    fn look_at(&self, connection: &mut Connection, topic: Topic<'_>) -> Answer<()> {
        let mut heard = self.lock();
        let Some(known) = heard.get_mut(topic) else {
            return Ok(());
        };
        // Read again: no commit of this process is between this and what is known of it.
        let number = number(connection, topic)?;
        if number < known.number {
            // The database was put back to an earlier state.
            known.number = number;
            self.hub.wake(topic);
        } else if known.advance(Version { number, ..*known }) {
            self.hub.wake(topic);
        }
        Ok(())
    }

    /// Looks at some of the jobs that came since the last look; `false` if those were all.
    fn look_at_jobs(&self, connection: &mut Connection) -> Answer<bool> {
        let Some(newest) = self.newest_job() else {
            return Ok(false);
        };
        let most = i64::try_from(LOOK).unwrap_or(i64::MAX);
        let after = [Value::Int(newest), Value::Int(most)];
        let job = |row: &Row<'_>| Ok((row.int(0)?, row.text(1)?));
        let jobs = ready(Inline(connection).rows(NEWER, &after, job))?;
        let mut heard = self.lock();
        for (id, queue) in &jobs {
            if let Some(known) = heard.get_mut(Topic::queue(queue))
                && known.advance(Version {
                    newest: *id,
                    ..*known
                })
            {
                self.hub.wake(Topic::queue(queue));
            }
        }
        if let Some((id, _)) = jobs.last() {
            heard.newest = heard.newest.max(*id);
        }
        Ok(jobs.len() == LOOK)
    }

    /// Begins anew with the jobs where ids have gone down, because the database was put back
    /// to an earlier state: each queue may have new jobs below the newest that was looked at.
    fn look_for_lower_ids(&self, connection: &mut Connection) -> Answer<()> {
        let Some(newest) = self.newest_job() else {
            return Ok(());
        };
        if one(connection, EVER)? >= newest {
            return Ok(());
        }
        let mut heard = self.lock();
        let newest = one(connection, EVER)?;
        heard.newest = newest;
        for (queue, known) in heard.versions.entry(TopicKind::Queue).or_default() {
            known.newest = newest;
            self.hub.wake(Topic::queue(queue));
        }
        Ok(())
    }

    /// The newest job that was looked at, if anybody waits for one.
    fn newest_job(&self) -> Option<i64> {
        let heard = self.lock();
        heard.versions.get(&TopicKind::Queue).map(|_| heard.newest)
    }
}

impl Heard {
    /// Fewer topics than this are not worth forgetting.
    const FEW: usize = 64;

    fn get_mut(&mut self, topic: Topic<'_>) -> Option<&mut Version> {
        self.versions.get_mut(&topic.kind)?.get_mut(topic.name)
    }

    fn insert(&mut self, topic: Topic<'_>, version: Version, hub: &WakeHub) {
        if self.topics >= self.most.max(Self::FEW) {
            let waiting: HashSet<_> = hub.topics().into_iter().collect();
            self.topics = 0;
            for (kind, names) in &mut self.versions {
                names.retain(|name, _| waiting.contains(&(*kind, Arc::clone(name))));
                self.topics += names.len();
            }
            // Each forgetting is paid for by as many topics as it looks at.
            self.most = self.topics.saturating_mul(2);
        }
        let names = self.versions.entry(topic.kind).or_default();
        if topic.kind == TopicKind::Queue && names.is_empty() {
            // Nobody was there to look at what is older.
            self.newest = version.newest;
        }
        if names.insert(topic.name.into(), version).is_none() {
            self.topics += 1;
        }
    }
}
