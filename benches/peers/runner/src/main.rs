//! Runs the comparison benchmarks: builds every peer, measures them in turns, judges the targets,
//! and writes a table, the figures and plots.
//!
//! ```sh
//! cargo run --release --manifest-path benches/peers/runner/Cargo.toml -- --rounds 3
//! ```
//!
//! The peers take turns within a round, so that whatever else the machine does meanwhile falls
//! on all of them. Each measurement has a fresh file or a fresh database.

#![forbid(unsafe_code)]

mod bars;
mod case;
mod curves;
mod files;
mod machine;
mod measure;
mod options;
mod peers;
mod plots;
mod results;
mod svg;
mod table;
mod targets;

use std::path::Path;
use std::time::Instant;

use alkstore_contract_tests::postgres_server::{PostgresServer, ServerOptions};

use case::Case;
use machine::Machine;
use options::Options;
use peers::{Engine, Known, Peer};
use results::Results;

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
    let root = folder.ancestors().nth(2).ok_or("the folder has moved")?;
    let peers = build(folder, options);
    let postgres = peers
        .iter()
        .any(|(known, _)| known.runs_on(Engine::Postgres))
        && options.wants_engine(Engine::Postgres);
    // The defaults of Postgres: a commit waits for the disk, unlike on the servers of tests.
    let server = postgres.then(|| PostgresServer::start(&ServerOptions::new().durable(true)));
    let machine = Machine::this(server.as_ref())?;

    let results = measure_all(options, &peers, server.as_ref());
    let verdicts = targets::judge(&results);
    let table = table::markdown(&results, &verdicts, &machine, options);
    if let Some(out) = options.out(root.join("docs/benchmarks")) {
        files::write(&out, &table, (&results, &verdicts), &machine, options)?;
    }
    print!("{table}");
    Ok(())
}

type Built = Result<Peer, String>;

/// Builds those that are wanted. Without one the others are still compared.
fn build(folder: &Path, options: &Options) -> Vec<(&'static Known, Built)> {
    let wanted = peers::KNOWN
        .iter()
        .filter(|known| options.wants_peer(known.package));
    wanted
        .map(|known| {
            eprintln!("building {}", known.package);
            let peer = Peer::build(folder, known).map_err(|failure| failure.to_string());
            if let Err(failure) = &peer {
                eprintln!("{failure}");
            }
            (known, peer)
        })
        .collect()
}

/// A measurement that is to be made.
struct Turn<'a> {
    round: usize,
    engine: Engine,
    case: &'a Case,
    known: &'static Known,
    peer: &'a Built,
}

fn measure_all(
    options: &Options,
    peers: &[(&'static Known, Built)],
    server: Option<&PostgresServer>,
) -> Results {
    let cases = Case::all(options);
    let turns = turns(options, peers, &cases);
    let (start, count) = (Instant::now(), turns.len());
    let mut results = Results::default();
    for (number, turn) in turns.into_iter().enumerate() {
        let (engine, case, name) = (turn.engine, turn.case, turn.known.package);
        let (seconds, number, round) = (start.elapsed().as_secs(), number + 1, turn.round);
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        eprint!(
            "{minutes:2}:{seconds:02} {number}/{count} round {round}: {engine} {case}, {name}: "
        );
        let result = match turn.peer {
            Ok(peer) => measure::once(peer, engine, case, server),
            Err(failure) => Err(failure.as_str().into()),
        };
        match result {
            Ok(result) => {
                eprintln!("{}", case.metric.text(result.value));
                results.add(engine, case, name, result);
            }
            // One peer's failure is a result too: the others are still compared.
            Err(failure) => {
                eprintln!("failed: {failure}");
                results.add_failure(engine, case, name, &failure.to_string());
            }
        }
    }
    results
}

/// All measurements, in their order.
fn turns<'a>(
    options: &Options,
    peers: &'a [(&'static Known, Built)],
    cases: &'a [Case],
) -> Vec<Turn<'a>> {
    let mut turns = Vec::new();
    for round in 1..=options.rounds {
        for &engine in Engine::ALL {
            for case in cases {
                for (known, peer) in peers {
                    let can = peer.as_ref().is_ok_and(|peer| peer.can(engine, case));
                    // A peer that is not there fails once, so that the table says so.
                    let missing = peer.is_err() && round == 1;
                    if options.wants_engine(engine)
                        && known.runs_on(engine)
                        && case.is_for(engine)
                        && case.is_due(round, known.package)
                        && (can || missing)
                    {
                        turns.push(Turn {
                            round,
                            engine,
                            case,
                            known,
                            peer,
                        });
                    }
                }
            }
        }
    }
    turns
}
