//! What only Postgres has: its failures, its planner, its rights, its sessions.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "these are tests"
)]

#[path = "postgres/batch.rs"]
mod batch;
#[path = "postgres/cancel.rs"]
mod cancel;
#[path = "postgres/claim.rs"]
mod claim;
#[path = "postgres/cost.rs"]
mod cost;
#[path = "postgres/listener.rs"]
mod listener;
#[path = "postgres/notify.rs"]
mod notify;
#[path = "postgres/opening.rs"]
mod opening;
#[path = "postgres/pooler.rs"]
mod pooler;
#[path = "postgres/process.rs"]
mod process;
#[path = "postgres/schema.rs"]
mod schema;
#[path = "postgres/server.rs"]
mod server;
#[path = "postgres/sessions.rs"]
mod sessions;
#[path = "postgres/stream.rs"]
mod stream;
#[path = "postgres/support.rs"]
mod support;
#[path = "postgres/tx.rs"]
mod tx;
#[path = "postgres/waiting.rs"]
mod waiting;
#[path = "postgres/wire.rs"]
mod wire;
