//! Listening: one session for the whole process, beside the pool.

mod session;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alkstore::engine::{Topic, TopicKind, WakeHub};
use alkstore::{Error, Result};
use sqlx::postgres::PgNotification;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::error;
use crate::login::Login;
use crate::notify::{decode, own_channel};
use crate::outage::Outage;

use session::{Flow, Limit, MOST_AT_ONCE, Session};

/// The pause before the next attempt at a session, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(1200));

/// How long who wants to listen waits for the end of a burst.
const HELD_UP: Duration = Duration::from_millis(500);

const LISTENING: &str = "listening";

/// How to listen.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Where the session goes; `None` to listen to nothing and look at the interval.
    pub(crate) login: Option<Login>,
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

/// The way to the thread that listens; it is made when it is first needed. It is a thread and not
/// a task: a task would be deaf with the runtime that happened to be the first to listen.
#[derive(Debug)]
pub(crate) struct Listener {
    config: Config,
    hub: WakeHub,
    task: Mutex<Option<Task>>,
}

#[derive(Debug)]
struct Task {
    requests: mpsc::UnboundedSender<Request>,
    /// Ends the thread.
    end: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
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
        self.config.login.is_some()
    }

    /// Ready once everything on the topic that commits from now on will be heard, and all that
    /// was committed before has been.
    pub(crate) async fn listen(&self, topic: Topic<'_>) -> Result<()> {
        let channel = own_channel(&topic)
            .unwrap_or(&self.config.channel)
            .to_owned();
        let (done, listening) = oneshot::channel();
        self.request(Request { channel, done })?;
        if !self.is_enabled() {
            return Ok(());
        }
        match timeout(self.config.patience, listening).await {
            Ok(Ok(listening)) => listening,
            Ok(Err(_)) => Err(Error::store_closed()),
            Err(_) => Err(error::timed_out(LISTENING, self.config.patience)),
        }
    }

    fn request(&self, request: Request) -> Result<()> {
        let mut task = self.task();
        let request = match &*task {
            Some(task) => match task.requests.send(request) {
                Ok(()) => return Ok(()),
                // It has ended, which it does not without a fault.
                Err(refused) => refused.0,
            },
            None => request,
        };
        let (requests, receiver) = mpsc::unbounded_channel();
        requests.send(request).ok();
        let (config, hub) = (self.config.clone(), self.hub.clone());
        let (end, stop) = oneshot::channel();
        let (ends, ended) = oneshot::channel();
        on_thread(ends, async move {
            let listening = async {
                match config.login.clone() {
                    Some(login) => {
                        let listening = Listening {
                            limit: Limit::new(config.patience),
                            config,
                            hub,
                            requests: receiver,
                            waiting: Vec::new(),
                            orphaned: false,
                        };
                        listening.run(login).await;
                    }
                    None => look_at_intervals(config.reread_interval, hub, receiver).await,
                }
            };
            tokio::select! {
                () = listening => {}
                // Dropped unsent, the session lives for as long as someone hears it.
                Ok(()) = stop => {}
            }
        })?;
        *task = Some(Task {
            requests,
            end,
            ended,
        });
        Ok(())
    }

    /// Ends the session.
    pub(crate) async fn stop(&self) {
        let task = self.task().take();
        if let Some(Task {
            requests,
            end,
            ended,
        }) = task
        {
            drop(requests);
            end.send(()).ok();
            ended.await.ok();
        }
    }

    fn task(&self) -> MutexGuard<'_, Option<Task>> {
        // Nothing in here can be left half done by a panic.
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs something on a thread of its own, and tells when it has ended.
fn on_thread(
    ends: oneshot::Sender<()>,
    work: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let starting = |error| Error::transient("starting the thread that listens failed", error);
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(starting)?;
    // What is logged goes where the one who listens first sends it.
    let dispatch = tracing::dispatcher::get_default(Clone::clone);
    std::thread::Builder::new()
        .name("alkstore-postgres-listener".to_owned())
        .spawn(move || {
            let _logging = tracing::dispatcher::set_default(&dispatch);
            runtime.block_on(work);
            // What is still open is closed before anybody hears of the end.
            drop(runtime);
            ends.send(()).ok();
        })
        .map_err(starting)?;
    Ok(())
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
    limit: Limit,
}

/// Why a session ended.
enum End {
    Lost(Error),
    /// There is more to hear than it can be asked anything.
    Flooded,
    NotNeeded,
}

enum Event {
    Requested(Option<Request>),
    Notified(Result<PgNotification>),
    Look,
}

impl Listening {
    async fn run(mut self, login: Login) {
        let mut outage = Outage::new(BACKOFF.0, BACKOFF.1);
        let mut was_connected = false;
        loop {
            let error = match self.connect(&login).await {
                Ok(session) => {
                    // Told after LISTEN: what is read from now on misses nothing.
                    if was_connected {
                        tracing::info!("listening again");
                        self.hub.reconnected();
                    }
                    was_connected = true;
                    outage.is_over(std::time::Instant::now());
                    match self.serve(session).await {
                        End::Lost(error) => Some(error),
                        End::Flooded => None,
                        End::NotNeeded => return,
                    }
                }
                Err(error) => {
                    if !error.is_transient() {
                        self.refuse(&error);
                    }
                    Some(error)
                }
            };
            let pause = outage.pause();
            match error {
                None => tracing::debug!("too many notifies to hear them all, listening anew"),
                Some(error) if outage.is_to_be_told(std::time::Instant::now()) => {
                    tracing::warn!(%error, ?pause, "not listening, trying again");
                }
                Some(error) => tracing::debug!(%error, ?pause, "not listening, trying again"),
            }
            sleep(pause).await;
            if self.is_not_needed() {
                return;
            }
        }
    }

    /// A fresh session that listens to all that is waited for.
    async fn connect(&mut self, login: &Login) -> Result<Session> {
        let options = login.options(self.config.patience).await?;
        let mut session = Session::connect(options, &mut self.limit).await?;
        let mut channels = self.wanted();
        channels.insert(self.config.channel.clone());
        let channels: Vec<_> = channels.into_iter().collect();
        // The server takes the longer for a channel the more it listens to: each piece has its
        // own limit.
        for some in channels.chunks(MOST_AT_ONCE) {
            session.listen(some, &mut self.limit).await?;
            session.hear_buffered(|heard| self.hear(heard)).await;
        }
        Ok(session)
    }

    async fn serve(&mut self, mut session: Session) -> End {
        let mut probe_at = Instant::now() + self.config.probe_interval;
        let mut held_up = None;
        loop {
            let flow = match session.hear(|heard| self.hear(heard)).await {
                Ok(flow) => flow,
                Err(error) => return End::Lost(error),
            };
            self.take_requests();
            if self.is_not_needed() {
                return End::NotNeeded;
            }
            let calm = session.in_burst_until();
            if !self.waiting.is_empty() {
                let since = *held_up.get_or_insert_with(Instant::now);
                if calm.is_none() {
                    held_up = None;
                    if let Err(error) = self.answer(&mut session).await {
                        return End::Lost(error);
                    }
                } else if matches!(flow, Flow::Flood) || since.elapsed() > HELD_UP {
                    session.leave();
                    return End::Flooded;
                }
            }
            if matches!(flow, Flow::Flood) {
                continue;
            }
            // What comes in proves that the session is alive.
            if calm.is_none() && probe_at <= Instant::now() {
                if let Err(error) = self.probe(&mut session).await {
                    return End::Lost(error);
                }
                probe_at = Instant::now() + self.config.probe_interval;
            }
            let look_at = calm.unwrap_or(probe_at);
            let event = tokio::select! {
                request = self.requests.recv(), if !self.orphaned => Event::Requested(request),
                notified = session.next() => Event::Notified(notified),
                () = sleep_until(look_at) => Event::Look,
            };
            match event {
                Event::Requested(None) => self.orphaned = true,
                Event::Requested(Some(request)) => self.waiting.push(request),
                Event::Notified(Ok(heard)) => self.hear(&heard),
                Event::Notified(Err(error)) => return End::Lost(error),
                Event::Look => {}
            }
        }
    }

    /// Listens to what is asked for. The round trip is made for what is listened to already as
    /// well: what was committed before it comes in with the answer.
    async fn answer(&mut self, session: &mut Session) -> Result<()> {
        let asked = self.waiting.iter().map(|request| request.channel.as_str());
        let new = session.not_listened_to(asked);
        session.listen(&new, &mut self.limit).await?;
        session.hear_buffered(|heard| self.hear(heard)).await;
        for request in self.waiting.drain(..) {
            request.done.send(Ok(())).ok();
        }
        Ok(())
    }

    /// Proves that the session is alive, and stops listening to what nobody waits for.
    async fn probe(&mut self, session: &mut Session) -> Result<()> {
        let mut wanted = self.wanted();
        wanted.insert(self.config.channel.clone());
        while session.unlisten_some(&wanted, &mut self.limit).await? {
            session.hear_buffered(|heard| self.hear(heard)).await;
        }
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

    fn take_requests(&mut self) {
        while self.waiting.len() < MOST_AT_ONCE
            && let Ok(request) = self.requests.try_recv()
        {
            self.waiting.push(request);
        }
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
