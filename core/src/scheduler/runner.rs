//! The loop of a runner: it waits for the leadership, leads, and tells why it ended.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use tokio::time::{Instant, timeout, timeout_at};

use super::fire;
use crate::backoff::Pauses;
use crate::engine::{At, Engine, Topic};
use crate::name::SCHEDULER_LOCK;
use crate::notify::WakeReceiver;
use crate::{Error, Lock, Result, StopToken, Store};

/// How long leadership holds without being renewed, in seconds.
const LEASE_S: i64 = 15;
const LEASE: Duration = Duration::from_secs(15);
/// The leader renews at least this often.
const RENEW: Duration = Duration::from_secs(5);
/// A renewal that would coincide with a boundary is made this long before it.
const AHEAD: Duration = Duration::from_millis(250);
/// A stand-by tries this often whether the leader is gone.
const STAND_BY: Duration = Duration::from_secs(1);
/// The first pause after a failed attempt, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(4));
/// A boundary further away than this is as good as none.
const FAR: Duration = Duration::from_secs(3600);

/// Waits for the leadership and leads until `stop` is cancelled.
pub(super) async fn run<E: Engine>(store: &Store<E>, stop: &StopToken) -> Result<()> {
    let Some(wakes) = listen(store, stop).await? else {
        return Ok(());
    };
    // An identity of this run: a host or process name would be shared after a restart.
    let owner = format!("{:032x}", fastrand::u128(..));
    let mut runner = Runner {
        store,
        wakes,
        stop,
        owner,
    };
    match runner.stand_by().await? {
        Some(leadership) => runner.lead(leadership).await,
        None => Ok(()),
    }
}

/// A receiver of the schedules' wakes; `None` if it is to stop before there is one.
async fn listen<E: Engine>(store: &Store<E>, stop: &StopToken) -> Result<Option<WakeReceiver>> {
    let mut failing = Failing::new();
    while !stop.is_cancelled() {
        match store.live()?.listen(Topic::SCHEDULES).await {
            Err(error) if error.is_transient() => {
                timeout(failing.pause(&error), stop.cancelled()).await.ok();
            }
            result => return result.map(Some),
        }
    }
    Ok(None)
}

/// The reason why a runner goes on after a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Stop,
    Woken,
    Time,
}

struct Runner<'s, E: Engine> {
    store: &'s Store<E>,
    wakes: WakeReceiver,
    stop: &'s StopToken,
    owner: String,
}

impl<E: Engine> Runner<'_, E> {
    /// Waits for the leadership; `None` if it is to stop before.
    async fn stand_by(&mut self) -> Result<Option<Leadership<E>>> {
        let mut failing = Failing::new();
        while !self.stop.is_cancelled() {
            let asked = Instant::now();
            let locked = self
                .store
                .lock_any(SCHEDULER_LOCK, &self.owner, LEASE_S)
                .await;
            let next = match locked {
                Ok(Some(lock)) => return Ok(Some(Leadership::new(lock, asked))),
                Ok(None) => {
                    failing.ended();
                    self.wait(Instant::now() + STAND_BY).await?
                }
                Err(error) if self.store.is_closed() => return Err(error),
                Err(error) if !error.is_transient() && failing.has_lasted(LEASE) => {
                    return Err(given_up(error));
                }
                Err(error) => self.pause(Instant::now() + failing.pause(&error)).await?,
            };
            if next == Next::Stop {
                break;
            }
        }
        Ok(None)
    }

    async fn lead(&mut self, mut leadership: Leadership<E>) -> Result<()> {
        let (owner, token) = (&self.owner, leadership.lock.token());
        tracing::info!(owner, token, "leading the schedules");
        let mut failing = Failing::new();
        loop {
            let next = match leadership.work(self.store).await {
                Ok(until) => {
                    failing.ended();
                    self.wait(until).await?
                }
                Err(Error::LeadershipLost) => return Err(Error::LeadershipLost),
                Err(error) if self.store.is_closed() => return Err(error),
                Err(error) => {
                    // One more attempt is made when the lease ends.
                    let last = leadership.ends_at.min(failing.since() + LEASE);
                    if Instant::now() >= last {
                        return Err(given_up(error));
                    }
                    let until = Instant::now() + failing.pause(&error);
                    self.pause(until.min(last)).await?
                }
            };
            match next {
                Next::Stop => break,
                Next::Woken => leadership.renew_at = Instant::now(),
                Next::Time => {}
            }
        }
        // Not released, it lapses by itself: stopping has worked all the same.
        leadership.lock.release().await.ok();
        Ok(())
    }

    /// Waits until then, or for a wake.
    async fn wait(&mut self, until: Instant) -> Result<Next> {
        let stop = pin!(self.stop.cancelled());
        let wake = pin!(self.wakes.recv());
        match timeout_at(until, select(stop, wake)).await {
            Ok(Either::Left(_)) => Ok(Next::Stop),
            Ok(Either::Right((None, _))) if self.store.is_closed() => Err(Error::store_closed()),
            Ok(Either::Right((None, _))) => Err(Error::Closed),
            Ok(Either::Right((Some(_), _))) => Ok(Next::Woken),
            Err(_) => Ok(Next::Time),
        }
    }

    /// Waits until then after a failure: no wake makes the attempts come faster.
    async fn pause(&mut self, until: Instant) -> Result<Next> {
        loop {
            match self.wait(until).await? {
                Next::Woken => {}
                next => return Ok(next),
            }
        }
    }
}

/// The leadership of a runner, as far as the runner knows.
struct Leadership<E> {
    lock: Lock<E>,
    /// It holds until then unless it is renewed.
    ends_at: Instant,
    renew_at: Instant,
    /// The latest second that the engine's clock has shown.
    clock: i64,
}

impl<E: Engine> Leadership<E> {
    fn new(lock: Lock<E>, asked: Instant) -> Self {
        Self {
            lock,
            ends_at: asked + LEASE,
            renew_at: asked,
            clock: i64::MIN,
        }
    }

    /// Keeps the leadership, fires some of what is due, and returns when to look again.
    async fn work(&mut self, store: &Store<E>) -> Result<Instant> {
        let mut asked = Instant::now();
        if asked >= self.renew_at {
            self.renew(store, asked).await?;
            asked = Instant::now();
        }
        let agenda = store.live()?.read_agenda(At::Auto, 0).await?;
        let went_back = agenda.now < self.clock;
        self.clock = agenda.now;
        if went_back {
            store.live()?.reset_boundaries().await?;
            return Ok(asked);
        }
        match agenda.until_next() {
            None => Ok(self.renew_at),
            Some(Duration::ZERO) => {
                fire::some(store).await?;
                Ok(asked)
            }
            // Counted from the question: asked again that much later, the database gets it
            // when its clock shows the boundary.
            Some(ahead) => Ok(self.next_look(asked + ahead.min(FAR))),
        }
    }

    /// Renews the lease. One that has lapsed, as after the host was asleep, goes on unless
    /// another runner has led since. Then mends what a clock that jumped has left behind.
    async fn renew(&mut self, store: &Store<E>, asked: Instant) -> Result<()> {
        if !self.lock.resume(LEASE_S).await? {
            return Err(Error::LeadershipLost);
        }
        self.ends_at = asked + LEASE;
        store.live()?.reset_boundaries().await?;
        self.renew_at = asked + RENEW;
        Ok(())
    }

    /// The instant of the next look, for a boundary at `next`: a renewal never delays a fire.
    fn next_look(&mut self, next: Instant) -> Instant {
        if next < self.renew_at {
            return next;
        }
        let before = next.checked_sub(AHEAD).unwrap_or(next);
        self.renew_at = self.renew_at.min(before);
        self.renew_at
    }
}

/// Attempts that have failed one after another.
struct Failing {
    first: Option<Instant>,
    attempts: u64,
    pauses: Pauses,
}

impl Failing {
    fn new() -> Self {
        Self {
            first: None,
            attempts: 0,
            pauses: Pauses::between(PAUSES.0, PAUSES.1),
        }
    }

    /// The time of the first failure, which is now if there was none.
    fn since(&mut self) -> Instant {
        *self.first.get_or_insert_with(Instant::now)
    }

    fn has_lasted(&mut self, time: Duration) -> bool {
        self.since().elapsed() >= time
    }

    /// Notes one more failure and returns the pause after it. An outage leaves a handful of
    /// warnings, however long it lasts.
    fn pause(&mut self, error: &Error) -> Duration {
        self.since();
        self.attempts += 1;
        let attempts = self.attempts;
        if attempts.is_power_of_two() {
            tracing::warn!(%error, attempts, "the scheduler failed and tries again");
        } else {
            tracing::debug!(%error, attempts, "the scheduler failed and tries again");
        }
        self.pauses.next()
    }

    /// Notes a success.
    fn ended(&mut self) {
        if self.attempts > 0 {
            tracing::info!(attempts = self.attempts, "the scheduler works again");
            *self = Self::new();
        }
    }
}

/// The end of a runner whose attempts have failed for too long.
fn given_up(error: Error) -> Error {
    let context = "the scheduler gave up: every attempt failed for as long as its lease";
    match error {
        Error::Database(_) if error.is_transient() => Error::transient(context, error),
        Error::Database(_) => Error::database(context, error),
        other => other,
    }
}
