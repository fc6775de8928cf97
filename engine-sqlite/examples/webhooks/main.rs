//! Webhooks, end to end: a service takes in webhook deliveries and does with each what a
//! service does, with everything in one database.
//!
//! ```text
//! cargo run --release -p alkstore-sqlite --example webhooks [-- FILE] [--store URL]
//! ```
//!
//! For each delivery one transaction holds the business row, a job, an event in the stream of
//! its repository and a message in an outbox. A delivery that comes again breaks the business
//! row's key, and with it goes everything else. Workers do the jobs, with failures; one of them
//! vanishes with a job in its hands. A subscriber for each stream, an outbox sender, a schedule
//! and a lock work beside them. At the end everything is counted and must balance.
//!
//! Kill it and start it again: it goes on where it was. The store is a path or a URL, of SQLite
//! or of Postgres; on one database any number of these may run at once.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that talks to a person"
)]

mod business;
mod ingest;
mod report;
mod run;
mod workers;

use std::path::PathBuf;
use std::process::ExitCode;

use alkstore::{BoxedStore, Drivers};
use alkstore_postgres::Postgres;
use alkstore_sqlite::Sqlite;

/// Deliveries for a run without a file.
const SAMPLE: &str = include_str!("sample.ndjson");

/// Whatever went wrong, for the last line.
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    match webhooks().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("webhooks: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn webhooks() -> Result<bool, Failure> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let input = match &arguments.file {
        Some(file) => std::fs::read_to_string(file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?,
        None => SAMPLE.to_owned(),
    };
    println!("database: {}", without_password(&arguments.store));
    let store = open(&arguments.store).await?;
    business::create_tables(&store).await?;
    let tally = run::run(&store, input.lines()).await?;
    let report = report::Report::read(&store, &tally).await?;
    store.close().await;
    println!("{report}");
    Ok(report.balances())
}

/// Opens whatever the URL or path leads to.
async fn open(target: &str) -> alkstore::Result<BoxedStore> {
    let drivers = Drivers::new().with::<Sqlite>().with::<Postgres>();
    drivers.open(target).await
}

/// What the command line says.
struct Arguments {
    file: Option<PathBuf>,
    store: String,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut arguments = Self {
            file: None,
            store: "webhooks.db".into(),
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--store" => {
                    arguments.store = words.next().ok_or("--store takes a URL or a path")?
                }
                "--help" | "-h" => return Err("usage: webhooks [FILE] [--store URL]".into()),
                option if option.starts_with('-') => {
                    return Err(format!("unknown option {option}; see --help").into());
                }
                _ if arguments.file.is_some() => return Err("only one FILE, please".into()),
                file => arguments.file = Some(file.into()),
            }
        }
        Ok(arguments)
    }
}

/// A URL as it may be shown.
fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://…@{place}"),
        _ => url.to_owned(),
    }
}
