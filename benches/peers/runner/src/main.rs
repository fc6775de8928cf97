//! Runs the comparison benchmarks: builds every peer, measures them in turns, and writes the
//! medians and a table.
//!
//! ```sh
//! cargo run --release --manifest-path benches/peers/runner/Cargo.toml -- --rounds 3 > table.md
//! ```
//!
//! The peers take turns within a round, so that whatever else the machine does meanwhile falls
//! on all of them. Each measurement has a fresh file or a fresh database.

#![forbid(unsafe_code)]

mod measure;
mod options;
mod peers;
mod table;

use std::path::Path;

use alkstore_contract_tests::postgres_server::{PostgresServer, ServerOptions};

use measure::{Case, Results};
use options::Options;
use peers::{Engine, Peer};

/// Whatever stops the benchmarks: there is nothing to do about it but to say it.
type Failure = Box<dyn std::error::Error + Send + Sync>;
type Answer<T> = Result<T, Failure>;

fn main() {
    if let Err(failure) = Options::of_process().and_then(|options| run(&options)) {
        eprintln!("{failure}");
        std::process::exit(1);
    }
}

fn run(options: &Options) -> Answer<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = folder.parent().ok_or("the runner stands in no folder")?;
    let mut peers = Vec::new();
    for known in peers::KNOWN {
        if options.wants_peer(known.package) {
            eprintln!("building {}", known.package);
            peers.push(Peer::build(folder, known)?);
        }
    }
    let engines: Vec<_> = Engine::ALL
        .iter()
        .copied()
        .filter(|&engine| peers.iter().any(|peer| peer.runs_on(engine)))
        .filter(|&engine| options.wants_engine(engine))
        .collect();
    // The defaults of Postgres: a commit waits for the disk, unlike on the servers of tests.
    let server = engines
        .contains(&Engine::Postgres)
        .then(|| PostgresServer::start(&ServerOptions::new().durable(true)));

    let cases = Case::all(options);
    let mut results = Results::default();
    for round in 1..=options.rounds {
        for &engine in &engines {
            for case in &cases {
                for peer in &peers {
                    if !peer.runs_on(engine) || !peer.can(case.workload) {
                        continue;
                    }
                    eprint!("round {round}: {engine} {case} {}: ", peer.name());
                    match measure::once(peer, engine, case, server.as_ref()) {
                        Ok(result) => {
                            eprintln!("{:.0} per second", result.per_second);
                            results.add(engine, case, peer.name(), result);
                        }
                        // One peer's failure is a result too: the others are still compared.
                        Err(failure) => {
                            eprintln!("failed: {failure}");
                            results.add_failure(engine, case, peer.name(), &failure.to_string());
                        }
                    }
                }
            }
        }
    }
    let results = results.sorted();
    let root = folder.ancestors().nth(2).ok_or("the folder has moved")?;
    let path = root.join("docs/benchmarks/results.json");
    table::write_json(&path, &results, options)?;
    eprintln!("wrote {}", path.display());
    print!("{}", table::markdown(&results));
    Ok(())
}
