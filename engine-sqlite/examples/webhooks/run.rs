//! The run: everybody at once, until everything is done.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use alkstore::{BoxedEngine, BoxedStore, Queue, QueueOpts, ScheduleOpts, StopToken};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;

use crate::report::Report;
use crate::{Failure, business, ingest, workers};

pub(crate) const QUEUE: &str = "webhooks";
pub(crate) const ACKS: &str = "acknowledgements";
pub(crate) const MAINTENANCE: &str = "maintenance";
pub(crate) const CHANNEL: &str = "deliveries";

/// How long the run may take before it counts what there is and calls the rest lost.
const PATIENCE: Duration = Duration::from_secs(120);

/// What happened in this run, beside what the database shows.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Counts>);

#[derive(Default)]
struct Counts {
    malformed: AtomicU64,
    taken_in: AtomicU64,
    rolled_back: AtomicU64,
    retried: AtomicU64,
    reclaimed: AtomicU64,
    refused: AtomicU64,
    has_vanished: AtomicBool,
    all_in: AtomicBool,
    inside: Mutex<Option<String>>,
}

macro_rules! counters {
    ($($name:ident, $read:ident;)*) => {
        impl Tally {
            $(
                pub(crate) fn $name(&self, n: u64) {
                    self.0.$name.fetch_add(n, Ordering::Relaxed);
                }

                pub(crate) fn $read(&self) -> u64 {
                    self.0.$name.load(Ordering::Relaxed)
                }
            )*
        }
    };
}

counters! {
    taken_in, all_taken_in;
    rolled_back, all_rolled_back;
    retried, all_retried;
    reclaimed, all_reclaimed;
    refused, all_refused;
}

impl Tally {
    pub(crate) fn malformed(&self, line: usize, error: &serde_json::Error) {
        eprintln!("line {line} is not a delivery and was left out: {error}");
        self.0.malformed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn all_malformed(&self) -> u64 {
        self.0.malformed.load(Ordering::Relaxed)
    }

    /// `true` once: one worker of the run vanishes with a job in its hands.
    pub(crate) fn vanishes_now(&self) -> bool {
        !self.0.has_vanished.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn entered(&self, owner: &str) {
        *self.0.inside.lock().unwrap_or_else(PoisonError::into_inner) = Some(owner.into());
    }

    /// Fails if another owner has entered the guarded section meanwhile.
    pub(crate) fn left(&self, owner: &str) -> Result<(), Failure> {
        let mut inside = self.0.inside.lock().unwrap_or_else(PoisonError::into_inner);
        match inside.take() {
            Some(alone) if alone == owner => Ok(()),
            _ => Err("two owners were in the guarded section at once".into()),
        }
    }
}

/// Takes the lines in and works until nothing is left to do.
pub(crate) async fn run(
    store: &BoxedStore,
    lines: impl Iterator<Item = &str>,
) -> Result<Tally, Failure> {
    // A short claim, so that what a killed run had in its hands comes back soon.
    let opts = QueueOpts::default().visibility_timeout(Duration::from_secs(2));
    let crew = Crew {
        store: store.clone(),
        queue: store.queue(QUEUE, opts)?,
        tally: Tally::default(),
        stop: StopToken::new(),
        tasks: Mutex::default(),
        followed: Mutex::default(),
    };
    crew.start().await?;
    let bar = progress_bar()?;
    let take_in = async {
        let follow = |repository: &str| crew.follow(repository);
        ingest::ingest(store, &crew.queue, lines, &crew.tally, follow).await?;
        crew.tally.0.all_in.store(true, Ordering::Relaxed);
        Ok(())
    };
    tokio::try_join!(take_in, crew.watch(&bar))?;
    bar.finish_and_clear();
    crew.dismiss().await
}

fn progress_bar() -> Result<ProgressBar, Failure> {
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len} in {elapsed}")?;
    Ok(ProgressBar::new(0)
        .with_style(style)
        .with_message("jobs, events and messages"))
}

/// Everybody who works in the run.
struct Crew {
    store: BoxedStore,
    queue: Queue<BoxedEngine>,
    tally: Tally,
    stop: StopToken,
    tasks: Mutex<JoinSet<Result<(), Failure>>>,
    followed: Mutex<HashSet<String>>,
}

impl Crew {
    async fn start(&self) -> Result<(), Failure> {
        let Self {
            store,
            queue,
            tally,
            stop,
            ..
        } = self;
        for n in 1..=4 {
            let (queue, worker) = (queue.clone(), format!("worker-{n}"));
            self.spawn(workers::work(
                store.clone(),
                queue,
                worker,
                tally.clone(),
                stop.clone(),
            ));
        }
        for side in ["left", "right"] {
            // Whoever shares an owner's name shares its lock: each process has its own.
            let owner = format!("{side} of process {}", std::process::id());
            self.spawn(workers::guard(
                store.clone(),
                owner,
                tally.clone(),
                stop.clone(),
            ));
        }
        self.spawn(workers::send(store.clone(), stop.clone()));
        self.spawn(workers::maintain(
            store.clone(),
            queue.clone(),
            stop.clone(),
        ));
        store
            .schedule(
                "sweep",
                "@every 1s",
                MAINTENANCE,
                &(),
                ScheduleOpts::default(),
            )
            .await?;
        let (runner, schedules) = (store.clone(), stop.clone());
        self.spawn(async move { Ok(runner.run_schedules(schedules).await?) });
        for repository in business::repositories(store).await? {
            self.follow(&repository);
        }
        Ok(())
    }

    fn spawn(&self, task: impl Future<Output = Result<(), Failure>> + Send + 'static) {
        self.tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .spawn(task);
    }

    /// Subscribes to a repository's stream, once.
    fn follow(&self, repository: &str) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if followed.insert(repository.to_owned()) {
            let (store, stop) = (self.store.clone(), self.stop.clone());
            self.spawn(workers::follow(store, repository.to_owned(), stop));
        }
    }

    /// Shows how far it is, until everything is done or patience is at its end.
    async fn watch(&self, bar: &ProgressBar) -> Result<(), Failure> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let done = Report::read(&self.store, &self.tally).await?;
            bar.set_length(done.all_to_do());
            bar.set_position(done.all_done());
            let all_in = self.tally.0.all_in.load(Ordering::Relaxed);
            if all_in && done.balances() {
                return Ok(());
            }
            let ended = self
                .tasks
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .try_join_next();
            if let Some(ended) = ended {
                ended??;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    async fn dismiss(self) -> Result<Tally, Failure> {
        self.stop.cancel();
        let mut tasks = self
            .tasks
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(self.tally)
    }
}
