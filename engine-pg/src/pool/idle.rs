//! The connections that nobody uses at the moment.

use std::time::{Duration, Instant};

use sqlx::PgConnection;
use tokio::runtime::Handle;

use super::session::Session;

/// A connection that idled for longer is asked whether it is there, before it is used.
const FRESH: Duration = Duration::from_secs(1);
/// A connection that idles for longer is closed.
const MOST_IDLE: Duration = Duration::from_secs(600);
/// How long sessions are looked at once a server was found read-only.
const OF_LATE: Duration = Duration::from_secs(60);

/// What idles, and what is known of it.
#[derive(Debug, Default)]
pub(super) struct Idle {
    closed: bool,
    /// The one that was used last is last, and is used next.
    sessions: Vec<(Session, Instant)>,
    /// When a connection was last found lost: those that idled then may be as well.
    lost: Option<Instant>,
    /// When a server was last found read-only: what was made before may lead to it.
    read_only: Option<Instant>,
    /// How many wait for one to be given back.
    pub(super) hungry: usize,
}

impl Idle {
    /// The one that was used last, and whether it can be taken as it is. A connection that was
    /// made on another runtime may never answer on this one: nobody may be driving the other.
    pub(super) fn take(&mut self) -> Option<(Session, bool)> {
        let runtime = Handle::try_current().ok()?.id();
        let here = |(session, _): &(Session, Instant)| session.runtime == runtime;
        let (session, since) = self
            .sessions
            .iter()
            .rposition(here)
            .map(|index| self.sessions.remove(index))?;
        let unsuspected = self.lost.is_none_or(|lost| since > lost);
        let fresh = unsuspected && since.elapsed() < FRESH && !self.may_be_read_only(&session);
        Some((session, fresh))
    }

    /// Takes a connection back. Whether somebody is to be told of it.
    pub(super) fn give_back(&mut self, session: Session) -> bool {
        if self.closed {
            return false;
        }
        let now = Instant::now();
        let old = |since: &Instant| now.duration_since(*since) > MOST_IDLE;
        let stale = self.sessions.partition_point(|(_, since)| old(since));
        self.sessions.drain(..stale);
        self.sessions.push((session, now));
        self.hungry > 0
    }

    /// Closes the oldest until there are so many at most, for one that is to be made: those left
    /// are of other runtimes, which may have ended.
    pub(super) fn make_room(&mut self, most: usize) {
        let more = self.sessions.len().saturating_sub(most);
        self.sessions.drain(..more);
    }

    /// All that idle; none will be taken back.
    pub(super) fn close(&mut self) -> Vec<PgConnection> {
        self.closed = true;
        let sessions = std::mem::take(&mut self.sessions);
        let runtime = Handle::try_current().map(|runtime| runtime.id()).ok();
        let here = |session: &Session| Some(session.runtime) == runtime;
        let sessions = sessions.into_iter().map(|(session, _)| session);
        sessions
            .filter(here)
            .map(|session| session.connection)
            .collect()
    }

    pub(super) fn suspect_lost(&mut self) {
        self.lost = Some(Instant::now());
    }

    pub(super) fn suspect_read_only(&mut self) {
        self.read_only = Some(Instant::now());
    }

    pub(super) fn may_be_read_only(&self, session: &Session) -> bool {
        self.read_only.is_some_and(|found| session.checked < found)
    }

    pub(super) fn is_read_only_of_late(&self) -> bool {
        self.read_only
            .is_some_and(|found| found.elapsed() < OF_LATE)
    }
}
