//! Two processes on one file: how long a commit in one takes to wake a listener in the other,
//! and what that listener costs while nothing happens.
//!
//! ```text
//! cargo run --release -p alkstore-sqlite --example wakes [-- --rounds 200 --idle 30]
//! ```
//!
//! The time is taken from just before the commit begins to the listener's first line after its
//! wake, so it holds the commit itself. The processor time is that of all the listener's
//! threads, by the kernel's count in nanoseconds, which only Linux gives.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that talks to a person"
)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};

use alkstore::Store;
use alkstore_sqlite::Sqlite;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const CHANNEL: &str = "prices";

#[tokio::main]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.first().map(String::as_str) {
        Some("listen") => listen(&words[1..]).await,
        _ => measure(&words).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wakes: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(words: &[String]) -> Result<(), Failure> {
    let option = |name: &str, default: u64| -> Result<u64, Failure> {
        match words.iter().position(|word| word == name) {
            None => Ok(default),
            Some(at) => Ok(words
                .get(at + 1)
                .ok_or("an option lacks its number")?
                .parse()?),
        }
    };
    let (rounds, idle) = (option("--rounds", 200)?, option("--idle", 30)?);
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("wakes.db");
    let path = path.to_str().ok_or("the path is not text")?;
    let store = Store::<Sqlite>::open(path).await?;
    let mut listener = Listener::start(path, idle)?;

    let mut micros = Vec::new();
    for _ in 0..rounds {
        let begin = unix_nanos()?;
        store.notify(CHANNEL, &()).await?;
        let woken: u128 = listener.line()?.parse()?;
        micros.push(woken.saturating_sub(begin) / 1000);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    micros.sort_unstable();
    let at = |percent: usize| micros[(micros.len() - 1) * percent / 100];
    println!(
        "commit to wake in another process, {rounds} rounds: median {} µs, p99 {} µs",
        at(50),
        at(99)
    );
    println!("an idle listener for {idle} s: {}", listener.finish()?);
    store.close().await;
    Ok(())
}

/// The other process.
struct Listener {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Listener {
    fn start(path: &str, idle: u64) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["listen", path, &idle.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("the listener has no output")?;
        let mut listener = Self {
            child,
            lines: BufReader::new(stdout),
        };
        match listener.line()?.as_str() {
            "listening" => Ok(listener),
            other => Err(format!("the listener said {other:?}").into()),
        }
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Lets it idle and returns what it says of that.
    fn finish(mut self) -> Result<String, Failure> {
        drop(self.child.stdin.take());
        let said = self.line()?;
        self.child.wait()?;
        Ok(said)
    }
}

/// Prints a line with the time for each wake until its input ends, then idles.
async fn listen(words: &[String]) -> Result<(), Failure> {
    let [path, idle] = words else {
        return Err("listen takes a path and seconds".into());
    };
    let store = Store::<Sqlite>::open(path).await?;
    let mut wakes = store.listen(CHANNEL).await?;
    say("listening")?;
    let (ended, mut end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().for_each(drop);
        ended.send(()).ok();
    });
    loop {
        tokio::select! {
            _ = &mut end => break,
            wake = wakes.recv() => {
                wake.ok_or("the receiver closed")?;
                say(&unix_nanos()?.to_string())?;
            }
        }
    }
    let (start, used) = (Instant::now(), cpu_nanos()?);
    let seconds = Duration::from_secs(idle.parse()?);
    let woken = tokio::time::timeout(seconds, wakes.recv()).await.is_ok();
    let used = Duration::from_nanos(cpu_nanos()? - used);
    let share = 100.0 * used.as_secs_f64() / start.elapsed().as_secs_f64();
    say(&format!(
        "{share:.4} % of a core ({used:?}), woken: {woken}"
    ))
}

fn say(line: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}

fn unix_nanos() -> Result<u128, Failure> {
    Ok(SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)?
        .as_nanos())
}

/// The processor time of all threads of this process.
fn cpu_nanos() -> Result<u64, Failure> {
    let mut nanos = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let stat = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += stat.split(' ').next().unwrap_or("0").parse::<u64>()?;
    }
    Ok(nanos)
}
