//! No peer but the limit: the statements that any of them must make, over tables with nothing
//! that the workload does not need, prepared once, straight through a driver. Tasks that wait at
//! the same time commit together. What is left out is what a library is for: priorities,
//! deadlines, attempts, failures that stay one caller's own.

#![forbid(unsafe_code)]

mod line;
mod postgres;
mod sqlite;

use peer_harness::{Arguments, Engine};

fn main() {
    let arguments = Arguments::of_process();
    match arguments.as_ref().map(Arguments::engine) {
        Ok(Engine::Postgres) => peer_harness::main::<postgres::Raw>(arguments),
        _ => peer_harness::main::<sqlite::Raw>(arguments),
    }
}
