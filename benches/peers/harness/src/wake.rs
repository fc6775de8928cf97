//! From a commit until a listener has heard of it, in this process or in another.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::executor::block_on;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::{Answer, Caller as _, Durability, Measure, Outcome, Peer};

/// How long a listener may take until it listens.
const PATIENCE: Duration = Duration::from_secs(20);

/// A wake that takes longer is lost.
const LOST: Duration = Duration::from_secs(2);

/// The shortest time between two commits, and what is added to it at random: whatever a peer
/// does in steps of time must not go in step with them.
const GAP: (u64, u64) = (5_000, 10_000);

/// Wakes before the clock starts.
const WARM: usize = 5;

/// What a listener has to say.
#[derive(Debug)]
enum Heard {
    Ready,
    /// When, in nanoseconds since 1970: another process has no other clock in common.
    Wake(u64),
    Failed(String),
}

/// Whom a listener tells what it hears.
#[derive(Debug, Clone)]
pub struct Ear(UnboundedSender<Heard>);

/// What an ear was told.
#[derive(Debug)]
pub(crate) struct Hearing(UnboundedReceiver<Heard>);

impl Ear {
    pub(crate) fn new() -> (Self, Hearing) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), Hearing(receiver))
    }

    /// To be called once the listener misses nothing any more.
    pub fn ready(&self) {
        self.0.send(Heard::Ready).ok();
    }

    /// To be called with each wake, first thing.
    pub fn heard(&self) {
        // Nobody may be interested any more.
        self.0.send(Heard::Wake(now())).ok();
    }
}

impl Hearing {
    pub(crate) async fn until_ready(&mut self) -> Answer<()> {
        match timeout(PATIENCE, self.0.recv()).await {
            Ok(Some(Heard::Ready)) => Ok(()),
            Ok(Some(Heard::Failed(failure))) => Err(failure.into()),
            _ => Err("the listener does not listen".into()),
        }
    }

    /// When something was heard that was committed at that moment or later; nothing if that is
    /// lost.
    async fn since(&mut self, sent: u64) -> Answer<Option<u64>> {
        let end = tokio::time::Instant::now() + LOST;
        loop {
            match tokio::time::timeout_at(end, self.0.recv()).await {
                Ok(Some(Heard::Wake(at))) if at >= sent => return Ok(Some(at)),
                Ok(Some(Heard::Wake(_) | Heard::Ready)) => {}
                Ok(Some(Heard::Failed(failure))) => return Err(failure.into()),
                Ok(None) => return Err("the listener is gone".into()),
                Err(_) => return Ok(None),
            }
        }
    }
}

/// Measures with a listener of this process.
pub(crate) async fn same_process<P: Peer>(peer: &Arc<P>, measure: &Measure) -> Answer<Outcome> {
    let (ear, hearing) = Ear::new();
    start_listening(peer, ear);
    latencies(&**peer, hearing, measure).await
}

/// Measures with a listener in a process of its own, of the same program.
pub(crate) async fn other_process<P: Peer>(peer: &Arc<P>, measure: &Measure) -> Answer<Outcome> {
    let (ear, hearing) = Ear::new();
    let mut child = listen_elsewhere(ear, measure)?;
    let outcome = latencies(&**peer, hearing, measure).await;
    // It ends when nobody could write to it any more.
    drop(child.stdin.take());
    child.wait()?;
    outcome
}

async fn latencies<P: Peer>(peer: &P, mut hearing: Hearing, measure: &Measure) -> Answer<Outcome> {
    hearing.until_ready().await?;
    let mut caller = peer.caller(0).await?;
    let random = RandomState::new();
    let mut start = Instant::now();
    let (mut times, mut lost) = (Vec::new(), 0);
    for number in 0..measure.operations + WARM {
        if number == WARM {
            start = Instant::now();
            times.clear();
        } else if number > WARM && start.elapsed() > measure.time {
            break;
        }
        let gap = GAP.0 + random.hash_one(number) % GAP.1;
        tokio::time::sleep(Duration::from_micros(gap)).await;
        while hearing.0.try_recv().is_ok() {}
        let sent = now();
        caller.wake().await?;
        match hearing.since(sent).await? {
            Some(heard) => times.push(Duration::from_nanos(heard - sent)),
            None => lost += 1,
        }
    }
    times.sort_unstable();
    let at = |percent| times.get(times.len() * percent / 100);
    let (median, late) = at(50).zip(at(99)).ok_or("no wake arrived")?;
    Ok(Outcome::new(times.len(), start.elapsed())
        .with("median_ms", json!(median.as_secs_f64() * 1000.0))
        .with("p99_ms", json!(late.as_secs_f64() * 1000.0))
        .with("lost", json!(lost)))
}

/// Has the peer listen for as long as this process lives.
pub(crate) fn start_listening<P: Peer>(peer: &Arc<P>, ear: Ear) {
    let peer = Arc::clone(peer);
    let listen = async move {
        if let Err(failure) = peer.listen(ear.clone()).await {
            ear.0.send(Heard::Failed(failure.to_string())).ok();
        }
    };
    if P::BLOCKS {
        let handle = tokio::runtime::Handle::current();
        std::thread::spawn(move || {
            let _inside = handle.enter();
            block_on(listen);
        });
    } else {
        tokio::spawn(listen);
    }
}

/// Starts this program once more, to listen to the same store, and passes on what it prints.
fn listen_elsewhere(ear: Ear, measure: &Measure) -> Answer<Child> {
    let durability = match measure.durability {
        Durability::Normal => "normal",
        Durability::Full => "full",
    };
    let mut child = Command::new(std::env::current_exe()?)
        .args(["listen", "--store", &measure.store])
        .args(["--durability", durability])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let said = child.stdout.take().ok_or("the listener has no output")?;
    std::thread::spawn(move || {
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            let heard = match line.parse() {
                Ok(at) => Heard::Wake(at),
                Err(_) => Heard::Ready,
            };
            ear.0.send(heard).ok();
        }
    });
    Ok(child)
}

/// What the program does that was started to listen: prints when it hears something, until
/// whoever has started it is gone.
pub(crate) async fn listen_here<P: Peer>(peer: P) -> Answer<()> {
    std::thread::spawn(|| {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        std::process::exit(0);
    });
    let (ear, mut hearing) = Ear::new();
    start_listening(&Arc::new(peer), ear);
    while let Some(heard) = hearing.0.recv().await {
        match heard {
            Heard::Ready => println!("ready"),
            Heard::Wake(at) => println!("{at}"),
            Heard::Failed(failure) => return Err(failure.into()),
        }
    }
    Ok(())
}

/// Now, in nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}
