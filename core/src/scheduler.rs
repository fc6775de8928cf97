//! The scheduler: jobs at fixed intervals, each boundary once, whoever runs it.

mod fire;
mod runner;
mod spec;

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use serde::Serialize;
use tokio::time::sleep;

use crate::engine::{Engine, NewSchedule};
use crate::{Result, ScheduleOpts, StopToken, Store, name, payload};

/// A runner that waits for the database ends this long after its token was cancelled.
const STOPPING: Duration = Duration::from_secs(2);

impl<E: Engine> Store<E> {
    /// Inserts or replaces the schedule `name`: every interval a job with `payload` goes to
    /// `queue`, with a plain queue's options and `opts` over them.
    ///
    /// `spec` is `@every <n><unit>` with `s`, `m`, `h` or `d`. The first boundary is one
    /// interval from now. Replacing a schedule by one of the same spec keeps its next
    /// boundary, unless that is further ahead than one interval because the clock has jumped;
    /// a changed spec sets a new one. Nothing fires unless someone runs
    /// [`Store::run_schedules`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidName`](crate::Error::InvalidName), [`Error::ReservedName`](crate::Error::ReservedName) for the name or the queue;
    /// [`Error::InvalidSpec`](crate::Error::InvalidSpec); [`Error::InvalidArgument`](crate::Error::InvalidArgument) for `max_attempts` below 1;
    /// [`Error::Codec`](crate::Error::Codec); [`Error::Database`](crate::Error::Database).
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
        let interval_s = spec::interval(spec)?;
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
    /// [`Error::InvalidName`](crate::Error::InvalidName), [`Error::ReservedName`](crate::Error::ReservedName); [`Error::Database`](crate::Error::Database).
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
    /// The leader sleeps until the next boundary by the engine's clock and renews its lease
    /// every 5 seconds; a new or changed schedule wakes it. A fired job is ready from the
    /// boundary at which its schedule was due. A boundary further ahead than one interval,
    /// which a clock that jumped leaves behind, is set anew within 5 seconds.
    ///
    /// While the database is out of reach it tries again, less and less often, and logs a
    /// warning for the first, second, fourth, eighth … failed attempt.
    ///
    /// # Errors
    ///
    /// [`Error::LeadershipLost`](crate::Error::LeadershipLost) if this runner led and another
    /// has led since; [`Error::Closed`](crate::Error::Closed) if the database is gone;
    /// [`Error::Database`](crate::Error::Database) if the store is closed, or every attempt
    /// has failed for as long as the lease of the leader: then its source is the last failure.
    /// A runner that stands by goes on through transient failures for any length of time.
    ///
    /// # Cancel safety
    ///
    /// A dropped call stops at once; its leadership lapses within the lease. Cancel `stop`
    /// instead and the next runner leads at once. It returns within 2 seconds then, even if
    /// the database does not answer.
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
        let run = pin!(runner::run(self, &stop));
        let overdue = pin!(async {
            stop.cancelled().await;
            sleep(STOPPING).await;
        });
        match select(run, overdue).await {
            Either::Left((ended, _)) => ended,
            // The database does not answer; the lease lapses by itself.
            Either::Right(_) => Ok(()),
        }
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
