//! Listening: one session for the whole process, beside the pool.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alkstore::engine::{Topic, TopicKind, WakeHub};
use alkstore::{Error, Result};
use sqlx::postgres::{PgConnectOptions, PgListener, PgNotification, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::error::{self, failed};
use crate::notify::{decode, own_channel};

/// How long the server has for an answer on the session, and for a new session. It bounds how
/// long a network that swallowed either is trusted once it is well again.
const ANSWER: Duration = Duration::from_millis(1500);
/// The pause before the next attempt at a session, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(800));
/// So many who want to listen are served by one round trip at most.
const MOST_AT_ONCE: usize = 500;

const LISTENING: &str = "listening";

/// How to listen.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Where the session goes; `None` to listen to nothing and look at the interval.
    pub(crate) options: Option<PgConnectOptions>,
    /// How often a session proves that it is alive.
    pub(crate) probe_interval: Duration,
    /// How often receivers are woken where there is no session.
    pub(crate) reread_interval: Duration,
    /// How long one who wants to listen waits for a session.
    pub(crate) patience: Duration,
    /// The channel of all topics that have none of their own.
    pub(crate) channel: String,
    /// Whose wakes on it are not for this process.
    pub(crate) sender: u32,
}

/// The way to the task that listens; it is made when it is first needed.
#[derive(Debug)]
pub(crate) struct Listener {
    config: Config,
    hub: WakeHub,
    task: Mutex<Option<Task>>,
}

#[derive(Debug)]
struct Task {
    requests: mpsc::UnboundedSender<Request>,
    handle: JoinHandle<()>,
}

/// One who wants to hear a topic.
#[derive(Debug)]
struct Request {
    channel: String,
    done: oneshot::Sender<Result<()>>,
}

impl Listener {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            hub: WakeHub::new(),
            task: Mutex::default(),
        }
    }

    pub(crate) fn hub(&self) -> &WakeHub {
        &self.hub
    }

    /// Whether the server tells of changes.
    pub(crate) fn is_enabled(&self) -> bool {
        self.config.options.is_some()
    }

    /// Ready once everything on the topic that commits from now on will be heard, and all that
    /// was committed before has been.
    pub(crate) async fn listen(&self, topic: Topic<'_>) -> Result<()> {
        let channel = own_channel(&topic)
            .unwrap_or(&self.config.channel)
            .to_owned();
        let (done, listening) = oneshot::channel();
        self.request(Request { channel, done });
        if !self.is_enabled() {
            return Ok(());
        }
        match timeout(self.config.patience, listening).await {
            Ok(Ok(listening)) => listening,
            Ok(Err(_)) => Err(Error::store_closed()),
            Err(_) => Err(error::timed_out(LISTENING, self.config.patience)),
        }
    }

    fn request(&self, request: Request) {
        let mut task = self.task();
        let request = match &*task {
            Some(task) => match task.requests.send(request) {
                Ok(()) => return,
                // It belonged to a runtime that is gone.
                Err(refused) => refused.0,
            },
            None => request,
        };
        let (requests, receiver) = mpsc::unbounded_channel();
        requests.send(request).ok();
        let (config, hub) = (self.config.clone(), self.hub.clone());
        let handle = match config.options.clone() {
            Some(options) => {
                let listening = Listening {
                    config,
                    hub,
                    requests: receiver,
                    waiting: Vec::new(),
                    orphaned: false,
                };
                tokio::spawn(listening.run(options))
            }
            None => tokio::spawn(look_at_intervals(config.reread_interval, hub, receiver)),
        };
        *task = Some(Task { requests, handle });
    }

    /// Ends the session.
    pub(crate) async fn stop(&self) {
        let task = self.task().take();
        if let Some(Task { requests, handle }) = task {
            handle.abort();
            drop(requests);
            handle.await.ok();
        }
    }

    fn task(&self) -> MutexGuard<'_, Option<Task>> {
        // Nothing in here can be left half done by a panic.
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without a session a lost wake is the rule: whoever waits looks again at the interval.
async fn look_at_intervals(
    interval: Duration,
    hub: WakeHub,
    mut requests: mpsc::UnboundedReceiver<Request>,
) {
    let mut orphaned = false;
    loop {
        let next = sleep(interval);
        tokio::pin!(next);
        while !orphaned {
            tokio::select! {
                request = requests.recv() => orphaned = request.is_none(),
                () = &mut next => break,
            }
        }
        if orphaned && !hub.is_attached() {
            return;
        }
        if orphaned {
            next.await;
        }
        for (kind, name) in hub.topics() {
            hub.wake(Topic { kind, name: &name });
        }
    }
}

/// The task that holds the session.
struct Listening {
    config: Config,
    hub: WakeHub,
    requests: mpsc::UnboundedReceiver<Request>,
    /// Who asked and was not answered.
    waiting: Vec<Request>,
    /// The engine is gone; receivers of it may not be.
    orphaned: bool,
}

/// Why a session ended.
enum End {
    Lost(Error),
    NotNeeded,
}

enum Event {
    Requested(Option<Request>),
    Notified(Result<Option<PgNotification>, sqlx::Error>),
    Probe,
}

impl Listening {
    async fn run(mut self, options: PgConnectOptions) {
        let mut pause = BACKOFF.0;
        let mut was_connected = false;
        loop {
            let session = self.connect(&options).await;
            let error = match session {
                Ok((session, listened)) => {
                    // Told after LISTEN: what is read from now on misses nothing.
                    if was_connected {
                        tracing::info!("listening again");
                        self.hub.reconnected();
                    }
                    was_connected = true;
                    pause = BACKOFF.0;
                    match self.serve(session, listened).await {
                        End::Lost(error) => error,
                        End::NotNeeded => return,
                    }
                }
                Err(error) => {
                    if !error.is_transient() {
                        self.refuse(&error);
                    }
                    error
                }
            };
            tracing::warn!(%error, "not listening, trying again");
            // At any moment of a restart many processes try: they must not do it in step.
            let jitter = fastrand::f64().mul_add(0.5, 0.75);
            sleep(pause.mul_f64(jitter)).await;
            pause = (pause * 2).min(BACKOFF.1);
            if self.is_not_needed() {
                return;
            }
        }
    }

    /// A fresh session that listens to all that is waited for.
    async fn connect(&self, options: &PgConnectOptions) -> Result<(PgListener, HashSet<String>)> {
        let connecting = async {
            let pool = PgPoolOptions::new()
                .max_connections(1)
                .acquire_timeout(ANSWER)
                .test_before_acquire(false)
                .max_lifetime(None)
                .idle_timeout(None)
                .connect_with(options.clone())
                .await?;
            let mut session = PgListener::connect_with(&pool).await?;
            session.ignore_pool_close_event(true);
            // A reconnect of the driver's own would be a gap that nobody is told of.
            session.eager_reconnect(false);
            Ok(session)
        };
        let mut session = in_time(connecting).await?;
        let mut channels = self.wanted();
        channels.insert(self.config.channel.clone());
        let listen = in_time(session.execute(listen_to(&channels)));
        listen.await?;
        Ok((session, channels))
    }

    async fn serve(&mut self, mut session: PgListener, mut listened: HashSet<String>) -> End {
        let mut probe_at = Instant::now() + self.config.probe_interval;
        loop {
            if !self.waiting.is_empty()
                && let Err(error) = self.answer(&mut session, &mut listened).await
            {
                return End::Lost(error);
            }
            let event = tokio::select! {
                request = self.requests.recv(), if !self.orphaned => Event::Requested(request),
                notified = session.try_recv() => Event::Notified(notified),
                () = sleep_until(probe_at) => Event::Probe,
            };
            match event {
                Event::Requested(None) => self.orphaned = true,
                Event::Requested(Some(request)) => {
                    self.waiting.push(request);
                    while self.waiting.len() < MOST_AT_ONCE
                        && let Ok(request) = self.requests.try_recv()
                    {
                        self.waiting.push(request);
                    }
                }
                Event::Notified(Ok(Some(notification))) => self.hear(&notification),
                Event::Notified(Ok(None)) => {
                    let closed = std::io::ErrorKind::UnexpectedEof;
                    return End::Lost(failed(LISTENING, sqlx::Error::Io(closed.into())));
                }
                Event::Notified(Err(error)) => return End::Lost(failed(LISTENING, error)),
                Event::Probe => {
                    if let Err(error) = self.probe(&mut session, &mut listened).await {
                        return End::Lost(error);
                    }
                    probe_at = Instant::now() + self.config.probe_interval;
                }
            }
            if self.is_not_needed() {
                return End::NotNeeded;
            }
        }
    }

    /// Listens to what is asked for. The round trip is made for what is listened to already as
    /// well: what was committed before it comes in with the answer.
    async fn answer(
        &mut self,
        session: &mut PgListener,
        listened: &mut HashSet<String>,
    ) -> Result<()> {
        let asked = self.waiting.iter().map(|request| &request.channel);
        let new: HashSet<_> = asked
            .filter(|channel| !listened.contains(*channel))
            .cloned()
            .collect();
        in_time(session.execute(listen_to(&new))).await?;
        listened.extend(new);
        while let Some(notification) = session.next_buffered() {
            self.hear(&notification);
        }
        for request in self.waiting.drain(..) {
            request.done.send(Ok(())).ok();
        }
        Ok(())
    }

    /// Proves that the session is alive, and stops listening to what nobody waits for.
    async fn probe(
        &mut self,
        session: &mut PgListener,
        listened: &mut HashSet<String>,
    ) -> Result<()> {
        let mut wanted = self.wanted();
        wanted.insert(self.config.channel.clone());
        let mut text = String::from("SELECT 1");
        for channel in listened.extract_if(|channel| !wanted.contains(channel)) {
            text.push_str("; UNLISTEN ");
            text.push_str(&quoted(&channel));
        }
        in_time(session.execute(AssertSqlSafe(text))).await?;
        Ok(())
    }

    fn hear(&self, notification: &PgNotification) {
        if notification.channel() != self.config.channel {
            self.hub.wake(Topic::channel(notification.channel()));
            return;
        }
        match decode(notification.payload()) {
            Some((sender, topic)) if sender != self.config.sender => self.hub.wake(topic),
            _ => {}
        }
    }

    /// The channels of the topics that someone waits for.
    fn wanted(&self) -> HashSet<String> {
        let own = |(kind, name): (TopicKind, Arc<str>)| {
            own_channel(&Topic { kind, name: &name }).map(str::to_owned)
        };
        self.hub.topics().into_iter().filter_map(own).collect()
    }

    /// Answers everybody who waits that there is no session.
    fn refuse(&mut self, error: &Error) {
        while let Ok(request) = self.requests.try_recv() {
            self.waiting.push(request);
        }
        for request in self.waiting.drain(..) {
            request
                .done
                .send(Err(Error::database("listening failed", error.to_string())))
                .ok();
        }
    }

    fn is_not_needed(&mut self) -> bool {
        self.orphaned |= self.requests.is_closed() && self.requests.is_empty();
        self.orphaned && !self.hub.is_attached()
    }
}

/// An answer of the server, or the reason why there is none.
async fn in_time<T>(asked: impl Future<Output = sqlx::Result<T>>) -> Result<T> {
    match timeout(ANSWER, asked).await {
        Ok(answer) => answer.map_err(|error| failed(LISTENING, error)),
        Err(_) => Err(error::timed_out(LISTENING, ANSWER)),
    }
}

fn listen_to(channels: &HashSet<String>) -> AssertSqlSafe<String> {
    let listen = channels
        .iter()
        .map(|channel| format!("LISTEN {}; ", quoted(channel)));
    AssertSqlSafe(listen.chain(["SELECT 1".to_owned()]).collect())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
