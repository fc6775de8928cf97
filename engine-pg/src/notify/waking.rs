//! The wakes of one operation.

use std::sync::Arc;

use alkstore::Result;
use alkstore::engine::{At, Topic};
use sqlx::PgConnection;
use sqlx::postgres::PgRow;

use super::debounce::Ride;
use super::owed::{owe, wake_with_room};
use super::{encode, for_anyone, had_room};
use crate::backend::{Arguments, Inner, Statement};
use crate::error;

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
                Err(failed) if auto && error::says_notify_queue_full(failed) => {
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
