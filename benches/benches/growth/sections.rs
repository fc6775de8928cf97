//! What grows within one process.

use std::sync::Arc;
use std::time::Duration;

use crate::arguments::Arguments;
use crate::subject::Kind;
use crate::table;
use crate::work::{Cost, Operation, Work, costs};

/// How many operations a round has where one task does them.
fn operations(arguments: &Arguments) -> usize {
    arguments.length.pick(2, 8, 64)
}

/// How long each operation is measured at each size, about.
pub(crate) fn budget(arguments: &Arguments) -> Duration {
    Duration::from_millis(arguments.length.pick(0, 20, 800))
}

/// The sizes to measure: all of them, or the first ones.
fn sizes(arguments: &Arguments, all: &[usize], quick: usize) -> Vec<usize> {
    let most = arguments.length.pick(1, quick, all.len());
    all[..most].to_vec()
}

fn print(kind: Kind, size: &str, costs: &mut [Cost], cell: fn(&mut Cost) -> String) {
    let mut cells = vec![kind.name().to_owned(), size.to_owned()];
    cells.extend(costs.iter_mut().map(cell));
    table::row(&cells);
}

/// Many names, which the operations take in turn.
pub(crate) async fn queues(arguments: &Arguments) {
    table::begin(
        "Queues and streams: µs for a call, one task",
        &[
            "engine",
            "queues and streams",
            "enqueue",
            "claim + ack",
            "publish",
            "read_since(100)",
        ],
    );
    for kind in Kind::asked(arguments) {
        for names in sizes(arguments, &[1, 10, 100, 1000], 3) {
            eprintln!("{}: {names} queues and streams", kind.name());
            let fresh = kind.fresh();
            let store = kind.open(&fresh.url).await;
            let work = Arc::new(Work::on(&store, names));
            work.fill(1, 100).await;
            let shape = (1, operations(arguments));
            let mut costs = costs(&work, &Operation::ALL, shape, budget(arguments)).await;
            print(kind, &names.to_string(), &mut costs, Cost::call);
            store.close().await;
        }
    }
}

/// Many tasks, on one queue and one stream.
pub(crate) async fn tasks(arguments: &Arguments) {
    table::begin(
        "Tasks: elapsed µs for each operation (and for a call)",
        &[
            "engine",
            "tasks",
            "enqueue",
            "claim + ack",
            "publish",
            "read_since(100)",
        ],
    );
    for kind in Kind::asked(arguments) {
        for tasks in sizes(arguments, &[1, 4, 16, 64], 4) {
            eprintln!("{}: {tasks} tasks", kind.name());
            let fresh = kind.fresh();
            let store = kind.open(&fresh.url).await;
            let work = Arc::new(Work::on(&store, 1));
            work.fill(tasks, 1000).await;
            let least = arguments.length.pick(1, 2, 8);
            let each = (2 * operations(arguments) / tasks).max(least);
            let shape = (tasks, each);
            let mut costs = costs(&work, &Operation::ALL, shape, budget(arguments)).await;
            print(kind, &tasks.to_string(), &mut costs, Cost::share_and_call);
            store.close().await;
        }
    }
}

/// Many jobs that are ready in one queue, and as many events in one stream.
pub(crate) async fn rows(arguments: &Arguments) {
    table::begin(
        "Rows: µs for a call, one task",
        &[
            "engine",
            "jobs ready, and events",
            "enqueue",
            "claim + ack",
            "publish",
            "read_since(100)",
        ],
    );
    for kind in Kind::asked(arguments) {
        let fresh = kind.fresh();
        let store = kind.open(&fresh.url).await;
        let mut there = 0;
        for rows in sizes(arguments, &[1_000, 10_000, 100_000, 1_000_000], 2) {
            eprintln!("{}: {rows} rows", kind.name());
            let mut work = Work::on(&store, 1);
            work.fill(rows - there, rows - there).await;
            there = rows;
            // From the middle of what is there.
            let middle = i64::try_from(rows / 2).expect("it is a few");
            work.read = (middle, 100);
            let work = Arc::new(work);
            let shape = (1, operations(arguments));
            let mut costs = costs(&work, &Operation::ALL, shape, budget(arguments)).await;
            print(kind, &rows.to_string(), &mut costs, Cost::call);
        }
        store.close().await;
    }
}

/// Large payloads.
pub(crate) async fn payloads(arguments: &Arguments) {
    table::begin(
        "Payloads: µs for a call, one task",
        &[
            "engine",
            "bytes",
            "enqueue",
            "claim + ack",
            "publish",
            "read_since(1)",
        ],
    );
    for kind in Kind::asked(arguments) {
        for bytes in sizes(arguments, &[100, 1_000, 10_000, 100_000, 1_000_000], 4) {
            eprintln!("{}: payloads of {bytes} bytes", kind.name());
            let fresh = kind.fresh();
            let store = kind.open(&fresh.url).await;
            let mut work = Work::on(&store, 1);
            work.payload = noise(bytes);
            work.read = (0, 1);
            work.fill(0, 1).await;
            let each = (10_000_000 / bytes).min(operations(arguments)).max(2);
            let budget = budget(arguments);
            let mut costs = costs(&Arc::new(work), &Operation::ALL, (1, each), budget).await;
            print(kind, &bytes.to_string(), &mut costs, Cost::call);
            store.close().await;
        }
    }
}

/// Text that no server can compress much.
fn noise(bytes: usize) -> String {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/";
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let letter = |_| {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = usize::try_from(state >> 58).expect("six bits are few");
        char::from(LETTERS[at])
    };
    (0..bytes).map(letter).collect()
}
