//! apalis: jobs that workers of its own hand to handlers, on either engine.

#![forbid(unsafe_code)]

mod postgres;
mod sqlite;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apalis::prelude::{BoxDynError, Data};
use peer_harness::{Arguments, Engine, Workload};

const VERSION: &str = "1.0.0";

/// It takes jobs in batches but each is done by itself: there is no batch to ack.
const CAN: &[Workload] = &[
    Workload::Enqueue,
    Workload::EnqueueBatch,
    Workload::ClaimAck,
    Workload::ClaimWithReadyBehind,
];

/// How many jobs the handler has seen.
type Seen = Arc<AtomicUsize>;

async fn handle(_payload: String, seen: Data<Seen>) -> Result<(), BoxDynError> {
    seen.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn main() {
    let arguments = Arguments::of_process();
    match arguments.as_ref().map(Arguments::engine) {
        Ok(Engine::Postgres) => peer_harness::main::<postgres::Apalis>(arguments),
        _ => peer_harness::main::<sqlite::Apalis>(arguments),
    }
}
