//! Many processes on one database: this program, started again.

use std::io::{BufRead as _, BufReader, Write as _, stdin};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::sections::budget;
use crate::subject::Kind;
use crate::table::{self, quantile};
use crate::work::{Operation, Work, micros, round};

/// Which engine a child is on, and its database.
const ENGINE: &str = "ALKSTORE_GROWTH_ENGINE";
const DATABASE: &str = "ALKSTORE_GROWTH_DATABASE";

/// One task in each process, all on one queue and one stream.
pub(crate) async fn processes(arguments: &Arguments) {
    table::begin(
        "Processes: elapsed µs for each operation (and for a call; the longest call)",
        &["engine", "processes", "enqueue", "claim + ack", "publish"],
    );
    for kind in Kind::asked(arguments) {
        let all = [1, 2, 4, 8];
        for processes in &all[..arguments.length.pick(1, 2, all.len())] {
            eprintln!("{}: {processes} processes", kind.name());
            let fresh = kind.fresh();
            // Made before anybody else comes.
            let store = kind.open(&fresh.url).await;
            Work::on(&store, 1).fill(*processes, 1).await;
            store.close().await;
            let mut children: Vec<_> = (0..*processes)
                .map(|_| Process::start(kind, &fresh.url))
                .collect();
            let cells = measure(&mut children, arguments);
            let mut row = vec![kind.name().to_owned(), processes.to_string()];
            row.extend(cells);
            table::row(&row);
        }
    }
}

/// A cell for each operation. Claims take what the enqueues of the same round have left.
fn measure(children: &mut [Process], arguments: &Arguments) -> [String; 3] {
    let mut shares = [const { Vec::new() }; 3];
    let mut calls = [const { Vec::new() }; 3];
    let mut longest = [Duration::ZERO; 3];
    let each = arguments.length.pick(2, 25, 100);
    let operations = u32::try_from(children.len() * each).expect("there are few");
    let begin = Instant::now();
    for number in 0.. {
        for (at, operation) in Operation::WRITES.iter().enumerate() {
            let begin = Instant::now();
            children
                .iter_mut()
                .for_each(|child| child.tell(*operation, each));
            let heard: Vec<_> = children.iter_mut().map(Process::hear).collect();
            // The first round warms up.
            if number > 0 {
                shares[at].push(begin.elapsed() / operations);
                calls[at].extend(heard.iter().map(|(median, _)| *median));
                longest[at] = heard
                    .iter()
                    .map(|heard| heard.1)
                    .fold(longest[at], Ord::max);
            }
        }
        if number > 0 && begin.elapsed() >= budget(arguments) * 3 {
            break;
        }
    }
    let cell = |at: usize| {
        let share = micros(quantile(&mut shares[at], 0.5));
        let call = micros(quantile(&mut calls[at], 0.5));
        format!("{share} ({call}; {})", micros(longest[at]))
    };
    [0, 1, 2].map(cell)
}

/// A child process, as its parent sees it.
struct Process {
    child: std::process::Child,
    says: BufReader<ChildStdout>,
}

impl Process {
    /// Starts one and waits until its store is open.
    fn start(kind: Kind, url: &str) -> Self {
        let program = std::env::current_exe().expect("this program has a file");
        let mut child = Command::new(program)
            .env(ENGINE, kind.name())
            .env(DATABASE, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child starts");
        let says = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut process = Self { child, says };
        process.hear();
        process
    }

    /// Lets it do an operation so often.
    fn tell(&mut self, operation: Operation, times: usize) {
        let stdin = self.child.stdin.as_mut().expect("its input is a pipe");
        writeln!(stdin, "{} {times}", operation.name()).expect("the child listens");
    }

    /// The median call and the longest.
    fn hear(&mut self) -> (Duration, Duration) {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("the child answers");
        let nanos: Vec<u64> = line
            .split(' ')
            .flat_map(|word| word.trim().parse())
            .collect();
        assert_eq!(nanos.len(), 2, "a child died, or said {line:?}");
        let (median, longest) = (nanos[0], nanos[1]);
        (Duration::from_nanos(median), Duration::from_nanos(longest))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends with its input.
        self.child.stdin = None;
        self.child.wait().ok();
    }
}

/// A child process, as it sees itself.
pub(crate) struct Child {
    kind: Kind,
    url: String,
}

impl Child {
    /// What this process is, if it is one.
    pub(crate) fn of_process() -> Option<Self> {
        let url = std::env::var(DATABASE).ok()?;
        let engine = std::env::var(ENGINE).ok()?;
        let kind = [Kind::Sqlite, Kind::Postgres]
            .into_iter()
            .find(|kind| kind.name() == engine)?;
        Some(Self { kind, url })
    }

    /// Does what the parent says until it says no more.
    pub(crate) async fn run(self) {
        let store = self.kind.open(&self.url).await;
        let work = Arc::new(Work::on(&store, 1));
        println!("0 0");
        for line in stdin().lines() {
            let line = line.expect("the parent writes text");
            let (name, times) = line.rsplit_once(' ').expect("it says how often");
            let times = times.parse().expect("a number of times");
            let asked = |operation: &Operation| operation.name() == name;
            let operation = Operation::ALL.into_iter().find(asked);
            let operation = operation.expect("the parent names an operation");
            let mut calls = round(&work, operation, 1, times, 0).await;
            let median = quantile(&mut calls, 0.5).as_nanos();
            println!("{median} {}", quantile(&mut calls, 1.0).as_nanos());
        }
        store.close().await;
    }
}
