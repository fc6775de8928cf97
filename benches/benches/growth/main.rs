//! What an operation costs as one thing grows at a time: queues and streams, tasks, processes,
//! rows, payloads; and on Postgres, what is left of dead rows.
//!
//! ```sh
//! cargo bench -p alkstore-benches --bench growth -- --only tasks,rows --engine sqlite
//! ```
//!
//! Sections are `queues`, `tasks`, `processes`, `rows`, `payloads`, `snapshot`, `autovacuum`;
//! `--minutes` is how long a run of one of the last two lasts.

#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::print_stdout,
    missing_docs,
    reason = "a program that prints what it measures, and ends where it cannot"
)]
#![forbid(unsafe_code)]

mod arguments;
mod processes;
mod sections;
mod subject;
mod table;
mod vacuum;
mod work;

use arguments::Arguments;
use subject::Kind;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    if let Some(child) = processes::Child::of_process() {
        return runtime.block_on(child.run());
    }
    let arguments = Arguments::of_process();
    runtime.block_on(measure(&arguments));
}

async fn measure(arguments: &Arguments) {
    if arguments.wants("queues") {
        sections::queues(arguments).await;
    }
    if arguments.wants("tasks") {
        sections::tasks(arguments).await;
    }
    if arguments.wants("processes") {
        processes::processes(arguments).await;
    }
    if arguments.wants("rows") {
        sections::rows(arguments).await;
    }
    if arguments.wants("payloads") {
        sections::payloads(arguments).await;
    }
    if arguments.on(Kind::Postgres.name()) {
        if arguments.wants("snapshot") {
            vacuum::snapshot(arguments).await;
        }
        if arguments.wants("autovacuum") {
            vacuum::autovacuum(arguments).await;
        }
    }
}
