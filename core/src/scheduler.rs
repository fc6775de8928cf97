//! The scheduler: jobs at fixed intervals, each boundary once, whoever runs it.

use std::time::Duration;

use futures::future::{Either, select};
use serde::Serialize;
use tokio::time::{Instant, timeout};

use crate::engine::{Advance, At, DueSchedule, Engine, NewJob, NewSchedule, Ready, Topic};
use crate::name::SCHEDULER_LOCK;
use crate::notify::WakeReceiver;
use crate::{Error, Lock, Result, ScheduleOpts, StopToken, Store, name, payload};

/// How long leadership holds without being renewed, in seconds.
const LEASE_S: i64 = 15;
const LEASE: Duration = Duration::from_secs(15);
/// The leader renews at least this often.
const RENEW: Duration = Duration::from_secs(5);
/// A stand-by looks this often whether the leader is gone.
const STAND_BY: Duration = Duration::from_secs(1);
/// The clock shows whole seconds: within the last one before a boundary it is read this often.
const FINE: Duration = Duration::from_millis(200);
/// How long to wait after an error.
const AFTER_ERROR: Duration = Duration::from_millis(500);
/// The most jobs that one schedule fires at once after a time without a runner.
const MOST_CATCH_UP: i64 = 64;
/// The most schedules that fire in one transaction.
const MOST_DUE: i64 = 16;

impl<E: Engine> Store<E> {
    /// Inserts or replaces the schedule `name`: every interval a job with `payload` goes to
    /// `queue`, with a plain queue's options and `opts` over them.
    ///
    /// `spec` is `@every <n><unit>` with `s`, `m`, `h` or `d`. The first boundary is one
    /// interval from now. Replacing a schedule by one of the same spec keeps its next
    /// boundary; a changed spec sets a new one. Nothing fires unless someone runs
    /// [`Store::run_schedules`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::ReservedName`] for the name or the queue;
    /// [`Error::InvalidSpec`]; [`Error::InvalidArgument`] for `max_attempts` below 1;
    /// [`Error::Codec`]; [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has stored the schedule or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, ScheduleOpts, Store};
    /// # async fn example<E: Engine>(store: Store<E>) -> Result<()> {
    /// store.schedule("sweep", "@every 10m", "maintenance", &"sweep", ScheduleOpts::default()).await?;
    /// # Ok(()) }
    /// ```
    pub async fn schedule<P>(
        &self,
        name: &str,
        spec: &str,
        queue: &str,
        payload: &P,
        opts: ScheduleOpts,
    ) -> Result<Schedule>
    where
        P: Serialize + Sync + ?Sized,
    {
        name::check_shared(name)?;
        name::check_shared(queue)?;
        let interval_s = interval(spec)?;
        let stamps = opts.stamps()?;
        let payload = &payload::encode(payload)?;
        let (priority, expires) = (opts.priority, opts.expires);
        let new = NewSchedule {
            name,
            spec,
            interval_s,
            queue,
            payload,
            priority,
            expires,
            stamps,
        };
        let next_at = self.live()?.upsert_schedule(&new).await?;
        let (name, spec, queue) = (name.to_owned(), spec.to_owned(), queue.to_owned());
        Ok(Schedule {
            name,
            spec,
            queue,
            interval_s,
            next_at,
        })
    }

    /// Deletes a schedule; `false` if there is none of this name. Jobs that it fired stay.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`], [`Error::ReservedName`]; [`Error::Database`].
    ///
    /// # Cancel safety
    ///
    /// A dropped call has deleted the schedule or has not.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, Store};
    /// # async fn example<E: Engine>(store: Store<E>) -> Result<()> {
    /// let was_there = store.unschedule("sweep").await?;
    /// # Ok(()) }
    /// ```
    pub async fn unschedule(&self, name: &str) -> Result<bool> {
        name::check_shared(name)?;
        self.live()?.delete_schedule(name).await
    }

    /// Fires the schedules until `stop` is cancelled.
    ///
    /// Any number of processes may run this: one leads, the others stand by and take over
    /// when it stops, or within the 15 seconds of its lease when it dies. Each boundary that
    /// passes enqueues one job, in the transaction that moves the boundary on, so it fires
    /// once whoever believes to lead. After a time without a runner the latest 64 boundaries
    /// of a schedule fire; older ones are skipped, and the next keeps its phase.
    ///
    /// # Errors
    ///
    /// [`Error::LeadershipLost`] if this runner led and another took over, or the database
    /// was out of reach for longer than the lease; [`Error::Closed`] if the database is gone;
    /// [`Error::Database`] if the store is closed or keeps failing.
    ///
    /// # Cancel safety
    ///
    /// A dropped call stops at once; its leadership lapses within the lease. Cancel `stop`
    /// instead and the next runner leads at once.
    ///
    /// ```
    /// # use alkstore::{Engine, Result, StopToken, Store};
    /// # async fn example<E: Engine>(store: Store<E>) -> Result<()> {
    /// let stop = StopToken::new();
    /// let run = store.run_schedules(stop.clone());
    /// // Elsewhere, when the service shuts down:
    /// stop.cancel();
    /// run.await?;
    /// # Ok(()) }
    /// ```
    pub async fn run_schedules(&self, stop: StopToken) -> Result<()> {
        let Some(wakes) = hear(self, &stop).await? else {
            return Ok(());
        };
        // An identity of this run: a host or process name would be shared after a restart.
        let owner = format!("{:032x}", fastrand::u128(..));
        let mut runner = Runner {
            store: self,
            wakes,
            stop,
            owner,
        };
        let Some(lock) = runner.stand_by().await? else {
            return Ok(());
        };
        runner.lead(lock).await
    }
}

/// A schedule as it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// Its spec as it was given.
    pub spec: String,
    /// The queue that its jobs go to.
    pub queue: String,
    /// The spec's interval in seconds.
    pub interval_s: i64,
    /// Its next boundary, a unix second.
    pub next_at: i64,
}

/// Why a runner goes on after a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Stop,
    Look,
}

/// A receiver of the schedules' wakes; `None` if it is to stop before there is one.
async fn hear<E: Engine>(store: &Store<E>, stop: &StopToken) -> Result<Option<WakeReceiver>> {
    while !stop.is_cancelled() {
        match store.live()?.listen(Topic::SCHEDULES).await {
            Err(error) if error.is_transient() => log(&error),
            result => return result.map(Some),
        }
        timeout(AFTER_ERROR, stop.cancelled()).await.ok();
    }
    Ok(None)
}

struct Runner<'s, E: Engine> {
    store: &'s Store<E>,
    wakes: WakeReceiver,
    stop: StopToken,
    owner: String,
}

impl<E: Engine> Runner<'_, E> {
    /// Waits for the leadership; `None` if it is to stop before.
    async fn stand_by(&mut self) -> Result<Option<Lock<E>>> {
        let mut failing = Failing::default();
        while !self.stop.is_cancelled() {
            match self
                .store
                .lock_any(SCHEDULER_LOCK, &self.owner, LEASE_S)
                .await
            {
                Ok(Some(lock)) => return Ok(Some(lock)),
                Ok(None) => failing = Failing::default(),
                Err(error) if error.is_transient() => log(&error),
                Err(error) if self.store.is_closed() || failing.too_long() => return Err(error),
                Err(error) => log(&error),
            }
            if self.wait(STAND_BY).await? == Next::Stop {
                break;
            }
        }
        Ok(None)
    }

    async fn lead(&mut self, mut lock: Lock<E>) -> Result<()> {
        tracing::info!(
            owner = self.owner,
            token = lock.token(),
            "leading the schedules"
        );
        let mut lease_end = Instant::now() + LEASE;
        let mut failing = Failing::default();
        loop {
            let asked = Instant::now();
            let worked = match self.keep(&mut lock).await {
                Ok(()) => {
                    lease_end = asked + LEASE;
                    fire_due(self.store).await
                }
                Err(error) => Err(error),
            };
            let pause = match worked {
                Ok(pause) => {
                    failing = Failing::default();
                    pause
                }
                Err(Error::LeadershipLost) => return Err(Error::LeadershipLost),
                Err(error) if self.store.is_closed() => return Err(error),
                Err(_) if Instant::now() >= lease_end => return Err(Error::LeadershipLost),
                Err(error) if failing.too_long() => return Err(error),
                Err(error) => {
                    log(&error);
                    AFTER_ERROR
                }
            };
            if self.wait(pause).await? == Next::Stop {
                // Not released, it lapses by itself: stopping has worked all the same.
                lock.release().await.ok();
                return Ok(());
            }
        }
    }

    /// Keeps the leadership. One that lapsed, as after the host was asleep, is taken again
    /// unless somebody else has it: boundaries are safe without it.
    async fn keep(&self, lock: &mut Lock<E>) -> Result<()> {
        if lock.renew(LEASE_S).await? {
            return Ok(());
        }
        let again = self
            .store
            .lock_any(SCHEDULER_LOCK, &self.owner, LEASE_S)
            .await?;
        *lock = again.ok_or(Error::LeadershipLost)?;
        Ok(())
    }

    async fn wait(&mut self, most: Duration) -> Result<Next> {
        let stop = std::pin::pin!(self.stop.cancelled());
        let wake = std::pin::pin!(self.wakes.recv());
        match timeout(most, select(stop, wake)).await {
            Ok(Either::Left(_)) => Ok(Next::Stop),
            Ok(Either::Right((None, _))) if self.store.is_closed() => Err(Error::store_closed()),
            Ok(Either::Right((None, _))) => Err(Error::Closed),
            Ok(Either::Right((Some(_), _))) | Err(_) => Ok(Next::Look),
        }
    }
}

/// Since when every attempt has failed.
#[derive(Default)]
struct Failing(Option<Instant>);

impl Failing {
    /// Notes one more failure; whether they have lasted for a lease.
    fn too_long(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() >= LEASE
    }
}

fn log(error: &Error) {
    tracing::warn!(%error, "the scheduler tries again");
}

/// Fires what is due and says how long nothing will be.
async fn fire_due<E: Engine>(store: &Store<E>) -> Result<Duration> {
    loop {
        let agenda = store.live()?.read_agenda(At::Auto, 0).await?;
        let Some(next_at) = agenda.next_at else {
            return Ok(RENEW);
        };
        if next_at > agenda.now {
            let seconds = next_at.saturating_sub(agenda.now).saturating_sub(1);
            let seconds = u64::try_from(seconds).unwrap_or(0);
            return Ok(Duration::from_secs(seconds).clamp(FINE, RENEW));
        }
        fire_some(store).await?;
    }
}

/// One transaction: boundaries move on and their jobs are enqueued.
async fn fire_some<E: Engine>(store: &Store<E>) -> Result<()> {
    let mut tx = store.begin_tx().await?;
    let (engine, conn, wakes) = tx.parts();
    let agenda = engine.read_agenda(At::In(&mut *conn), MOST_DUE).await?;
    let catch_ups: Vec<_> = agenda
        .due
        .iter()
        .map(|due| catch_up(due, agenda.now))
        .collect();
    let steps: Vec<_> = std::iter::zip(&agenda.due, &catch_ups)
        .map(|(due, step)| Advance {
            name: &due.name,
            from: due.next_at,
            to: step.next_at,
        })
        .collect();
    let moved = engine.advance_schedules(At::In(&mut *conn), &steps).await?;
    let mut jobs = Vec::new();
    for ((due, step), moved) in std::iter::zip(&agenda.due, &catch_ups).zip(moved) {
        if !moved {
            continue;
        }
        if step.skipped > 0 {
            tracing::warn!(
                schedule = due.name,
                skipped = step.skipped,
                "old boundaries skipped"
            );
        }
        wakes.add(Topic::queue(&due.queue));
        jobs.extend((0..step.fires).map(|_| job(due)));
    }
    if !jobs.is_empty() {
        engine.insert_jobs(At::In(conn), &jobs).await?;
    }
    tx.commit().await
}

fn job(due: &DueSchedule) -> NewJob<'_> {
    NewJob {
        queue: &due.queue,
        payload: &due.payload,
        ready: Ready::Now,
        priority: due.priority,
        expires: due.expires,
        stamps: due.stamps,
    }
}

#[derive(Debug, PartialEq, Eq)]
struct CatchUp {
    fires: i64,
    skipped: i64,
    next_at: i64,
}

/// How a due schedule goes on: which boundaries have passed, and the first that has not.
fn catch_up(due: &DueSchedule, now: i64) -> CatchUp {
    let late = now.saturating_sub(due.next_at).max(0);
    let passed = (late / due.interval_s.max(1)).saturating_add(1);
    let fires = passed.min(MOST_CATCH_UP);
    let next_at = due
        .next_at
        .saturating_add(due.interval_s.saturating_mul(passed));
    CatchUp {
        fires,
        skipped: passed - fires,
        next_at,
    }
}

/// The seconds of a spec.
fn interval(spec: &str) -> Result<i64> {
    let invalid = |reason| Error::InvalidSpec {
        spec: spec.to_owned(),
        reason,
    };
    let shape = "it must be `@every <n><unit>`, with s, m, h or d as unit";
    let rest = spec.strip_prefix("@every ").ok_or_else(|| invalid(shape))?;
    let unit = match rest.bytes().next_back() {
        Some(b's') => 1,
        Some(b'm') => 60,
        Some(b'h') => 60 * 60,
        Some(b'd') => 24 * 60 * 60,
        _ => return Err(invalid(shape)),
    };
    let digits = &rest[..rest.len() - 1];
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid(shape));
    }
    let seconds = digits.parse::<i64>().ok().and_then(|n| n.checked_mul(unit));
    match seconds {
        None => Err(invalid("its interval is longer than time")),
        Some(0) => Err(invalid("its interval must be at least 1")),
        Some(seconds) => Ok(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QueueOpts;
    use rstest::rstest;

    #[rstest]
    #[case("@every 1s", 1)]
    #[case("@every 90s", 90)]
    #[case("@every 5m", 300)]
    #[case("@every 2h", 7200)]
    #[case("@every 1d", 86_400)]
    #[case("@every 9223372036854775807s", i64::MAX)]
    fn accepted(#[case] spec: &str, #[case] seconds: i64) {
        assert_eq!(interval(spec).ok(), Some(seconds));
    }

    #[rstest]
    fn refused(
        #[values(
            "",
            "@every",
            "@every ",
            "@every s",
            "@every 0s",
            "@every -1s",
            "@every +1s",
            "@every 1",
            "@every 1w",
            "@every 1S",
            "@every 1.5s",
            "@every 9e9d",
            "@every  1s",
            "@every 1s ",
            " @every 1s",
            "@Every 1s",
            "*/5 * * * *",
            "@daily",
            "@every \u{661}s",
            "@every 9223372036854775807m",
            "@every 9223372036854775808s",
            "@every 1\u{e9}"
        )]
        spec: &str,
    ) {
        assert!(matches!(interval(spec), Err(Error::InvalidSpec { .. })));
    }

    fn due(next_at: i64, interval_s: i64) -> DueSchedule {
        DueSchedule {
            name: "s".into(),
            interval_s,
            next_at,
            queue: "q".into(),
            payload: Vec::new(),
            priority: 0,
            expires: None,
            stamps: QueueOpts::default()
                .stamps()
                .expect("the defaults are valid"),
        }
    }

    #[rstest]
    #[case(due(100, 10), 100, CatchUp { fires: 1, skipped: 0, next_at: 110 })]
    #[case(due(100, 10), 109, CatchUp { fires: 1, skipped: 0, next_at: 110 })]
    #[case(due(100, 10), 110, CatchUp { fires: 2, skipped: 0, next_at: 120 })]
    #[case(due(100, 10), 735, CatchUp { fires: 64, skipped: 0, next_at: 740 })]
    #[case(due(100, 10), 740, CatchUp { fires: 64, skipped: 1, next_at: 750 })]
    #[case(due(0, i64::MAX), 5, CatchUp { fires: 1, skipped: 0, next_at: i64::MAX })]
    #[case(due(i64::MIN, 1), i64::MAX, CatchUp { fires: 64, skipped: i64::MAX - 64, next_at: -1 })]
    fn boundaries_keep_their_phase(
        #[case] due: DueSchedule,
        #[case] now: i64,
        #[case] expected: CatchUp,
    ) {
        assert_eq!(catch_up(&due, now), expected);
    }
}
