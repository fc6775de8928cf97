//! The session that listens, as the server and the driver have it.

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use alkstore::Result;
use sqlx::postgres::{PgConnectOptions, PgListener, PgNotification, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::task::{coop, yield_now};
use tokio::time::{Instant, sleep_until, timeout};

use super::LISTENING;
use crate::error::{self, failed};

/// The most channels that one statement names. Of many the server is slow, and it has the limit
/// for one answer.
pub(super) const MOST_AT_ONCE: usize = 500;

/// The shortest and the longest limit.
const LIMITS: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_secs(60));
/// How many times as long as connecting took, several round trips, an answer may take.
const PATIENCE: u32 = 3;

/// How long notifies are heard before other tasks have their turn, looked at after so many.
const TURN: Duration = Duration::from_millis(1);
const LOOK_EVERY: usize = 64;
/// So many without a pause are a flood.
const FLOOD: usize = 50_000;
/// So many within a time are a burst, until nothing has come in for a while.
const BURST: (u32, Duration) = (300, Duration::from_millis(100));
const CALM: Duration = Duration::from_millis(20);

/// How long the server has for an answer on the session, and for a new session. It bounds how
/// long a network that swallowed either is trusted once it is well again.
#[derive(Debug)]
pub(super) struct Limit {
    now: Duration,
    most: Duration,
}

impl Limit {
    /// All of `most` until it is known how far the server is.
    pub(super) fn new(most: Duration) -> Self {
        let most = most.clamp(LIMITS.0, LIMITS.1);
        Self { now: most, most }
    }

    fn connected_within(&mut self, time: Duration) {
        self.now = (time * PATIENCE).clamp(LIMITS.0, self.most.max(LIMITS.0));
    }

    /// An answer of the server, or the reason why there is none.
    async fn keep<T>(&mut self, asked: impl Future<Output = sqlx::Result<T>>) -> Result<T> {
        match timeout(self.now, asked).await {
            Ok(answer) => answer.map_err(|error| failed(LISTENING, error)),
            Err(_) => {
                let limit = self.now;
                // It may have gone further away.
                self.now = (limit * 2).min(self.most);
                Err(error::timed_out(LISTENING, limit))
            }
        }
    }
}

/// What comes in.
pub(super) enum Flow {
    /// All that is there has been heard.
    Quiet,
    /// There is always more.
    Flood,
}

/// A session, which is asked nothing in the middle of a burst of notifies: waiting for an answer
/// the driver keeps all that comes before it, and gives no other task a turn.
pub(super) struct Session {
    driver: PgListener,
    listened: HashSet<String>,
    counted_since: Instant,
    count: u32,
    burst_until: Instant,
}

impl Session {
    pub(super) async fn connect(options: PgConnectOptions, limit: &mut Limit) -> Result<Self> {
        let began = Instant::now();
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(limit.now)
            .test_before_acquire(false)
            .max_lifetime(None)
            .idle_timeout(None);
        let connecting = async {
            let pool = pool.connect_with(options).await?;
            let mut driver = PgListener::connect_with(&pool).await?;
            driver.ignore_pool_close_event(true);
            // A reconnect of the driver's own would be a gap that nobody is told of.
            driver.eager_reconnect(false);
            Ok(driver)
        };
        let driver = limit.keep(connecting).await?;
        limit.connected_within(began.elapsed());
        let now = Instant::now();
        Ok(Self {
            driver,
            listened: HashSet::new(),
            counted_since: now,
            count: 0,
            burst_until: now,
        })
    }

    /// When it may be asked something, if nothing more comes in.
    pub(super) fn in_burst_until(&self) -> Option<Instant> {
        (self.burst_until > Instant::now()).then_some(self.burst_until)
    }

    /// Ends a session that has more to tell than anybody hears: the driver says goodbye to it,
    /// and would read all of it at once.
    pub(super) fn leave(mut self) {
        tokio::spawn(async move {
            loop {
                match self.hear(|_| ()).await {
                    Ok(Flow::Flood) => {}
                    Ok(Flow::Quiet) => match self.in_burst_until() {
                        Some(calm) => sleep_until(calm).await,
                        None => return,
                    },
                    Err(_) => return,
                }
            }
        });
    }

    /// Those of the channels that have to be listened to, each once.
    pub(super) fn not_listened_to<'c>(
        &self,
        channels: impl Iterator<Item = &'c str>,
    ) -> Vec<String> {
        let new: HashSet<_> = channels
            .filter(|channel| !self.listened.contains(*channel))
            .collect();
        new.into_iter().map(str::to_owned).collect()
    }

    /// Listens to channels, [`MOST_AT_ONCE`] at most. Makes its round trip for none as well.
    pub(super) async fn listen(&mut self, channels: &[String], limit: &mut Limit) -> Result<()> {
        let listen = channels
            .iter()
            .map(|channel| format!("LISTEN {}; ", quoted(channel)));
        let text = listen.chain(["SELECT 1".to_owned()]).collect::<String>();
        limit.keep(self.driver.execute(AssertSqlSafe(text))).await?;
        self.listened.extend(channels.iter().cloned());
        Ok(())
    }

    /// Makes a round trip, and stops listening to some of those channels that are not wanted;
    /// whether there are more of them.
    pub(super) async fn unlisten_some(
        &mut self,
        wanted: &HashSet<String>,
        limit: &mut Limit,
    ) -> Result<bool> {
        let unwanted = self
            .listened
            .extract_if(|channel| !wanted.contains(channel))
            .take(MOST_AT_ONCE);
        let mut text = String::from("SELECT 1");
        let mut count = 0;
        for channel in unwanted {
            text.push_str("; UNLISTEN ");
            text.push_str(&quoted(&channel));
            count += 1;
        }
        limit.keep(self.driver.execute(AssertSqlSafe(text))).await?;
        Ok(count == MOST_AT_ONCE)
    }

    /// The next notify.
    pub(super) async fn next(&mut self) -> Result<PgNotification> {
        match self.driver.try_recv().await {
            Ok(Some(notification)) => {
                self.count();
                Ok(notification)
            }
            Ok(None) => {
                let closed = std::io::ErrorKind::UnexpectedEof;
                Err(failed(LISTENING, sqlx::Error::Io(closed.into())))
            }
            Err(error) => Err(failed(LISTENING, error)),
        }
    }

    /// Hears all that has come in, or enough of it. Other tasks have their turns meanwhile.
    pub(super) async fn hear(&mut self, mut hear: impl FnMut(&PgNotification)) -> Result<Flow> {
        let mut turn = Turn::begin();
        for _ in 0..FLOOD {
            match self.next_if_there().await {
                Some(Ok(notification)) => hear(&notification),
                Some(Err(error)) => return Err(error),
                None => return Ok(Flow::Quiet),
            }
            turn.give_way().await;
        }
        Ok(Flow::Flood)
    }

    /// Hears what came in with an answer.
    pub(super) async fn hear_buffered(&mut self, mut hear: impl FnMut(&PgNotification)) {
        let mut turn = Turn::begin();
        while let Some(notification) = self.driver.next_buffered() {
            hear(&notification);
            turn.give_way().await;
        }
    }

    fn count(&mut self) {
        let now = Instant::now();
        if now - self.counted_since > BURST.1 {
            (self.counted_since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        if self.count > BURST.0 || self.burst_until > now {
            self.burst_until = now + CALM;
        }
    }

    async fn next_if_there(&mut self) -> Option<Result<PgNotification>> {
        loop {
            {
                let mut next = pin!(self.next());
                let there = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await;
                if let Poll::Ready(next) = there {
                    return Some(next);
                }
            }
            if coop::has_budget_remaining() {
                return None;
            }
            // Nothing was looked at: it was another task's turn.
            yield_now().await;
        }
    }
}

/// A task's turn, that ends after a while.
struct Turn {
    began: Instant,
    count: usize,
}

impl Turn {
    fn begin() -> Self {
        Self {
            began: Instant::now(),
            count: 0,
        }
    }

    async fn give_way(&mut self) {
        self.count += 1;
        if self.count.is_multiple_of(LOOK_EVERY) && self.began.elapsed() >= TURN {
            yield_now().await;
            self.began = Instant::now();
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
