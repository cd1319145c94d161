//! `make sim-shells`: runs seeds of the shells under turmoil until all are done, and says how to see a failure again.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clap::Parser;
use kuorum_shell_tests::{Kind, Options, Outcome, Tally, run};
use tracing_subscriber::EnvFilter;

/// Seeded fuzzing of the shells on simulated disks and a simulated network: each seed once with the controllers alone, openraft included,
/// and once with brokers and their clients.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// One seed to run again, with what was done to the cluster and when; RUST_LOG=info adds what the controllers say.
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds at once; as many as there are processors if left out.
    #[arg(long)]
    threads: Option<usize>,
    /// Only one of the two worlds.
    #[arg(long)]
    only: Option<World>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum World {
    Controllers,
    Brokers,
}

impl Arguments {
    fn kinds(&self) -> Vec<Kind> {
        match self.only {
            None => vec![Kind::Controllers, Kind::Brokers],
            Some(World::Controllers) => vec![Kind::Controllers],
            Some(World::Brokers) => vec![Kind::Brokers],
        }
    }
}

fn options(kind: Kind) -> Options {
    Options {
        kind,
        ..Options::default()
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.seed {
        Some(seed) => again(seed, &arguments.kinds()),
        None => search(&arguments),
    }
}

#[allow(clippy::print_stdout)]
fn again(seed: u64, kinds: &[Kind]) -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::from_default_env())
        .without_time()
        .init();
    for kind in kinds {
        let outcome = run(seed, options(*kind));
        for event in &outcome.events {
            println!("{event}");
        }
        println!("{kind:?}, seed {seed}: {}", outcome.plan);
        println!("{}", outcome.tally);
        if outcome.violation.is_some() {
            tell(&outcome);
            return ExitCode::FAILURE;
        }
        println!("{kind:?}, seed {seed}: nothing found");
    }
    ExitCode::SUCCESS
}

#[allow(clippy::print_stdout)]
fn tell(outcome: &Outcome) {
    if let Some(violation) = &outcome.violation {
        println!("{:?}, seed {}: {violation}", outcome.kind, outcome.seed);
        println!("run it again with: make sim-shells SEED={}", outcome.seed);
    }
}

#[allow(clippy::print_stdout)]
fn search(arguments: &Arguments) -> ExitCode {
    let threads = arguments
        .threads
        .or_else(|| thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1);
    let end = arguments.from + arguments.seeds;
    let next = AtomicU64::new(arguments.from);
    let kinds = arguments.kinds();
    let total = Mutex::new((vec![Tally::default(); kinds.len()], Vec::new()));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    for (place, kind) in kinds.iter().enumerate() {
                        let outcome = run(seed, options(*kind));
                        if let Ok(mut total) = total.lock() {
                            total.0[place].add(&outcome.tally);
                            if outcome.violation.is_some() {
                                total.1.push(outcome);
                            }
                        }
                    }
                }
            });
        }
    });
    let Ok((tallies, failed)) = total.into_inner() else {
        return ExitCode::FAILURE;
    };
    for (kind, tally) in kinds.iter().zip(&tallies) {
        println!("{kind:?}, seeds {}..{end}: {tally}", arguments.from);
    }
    for outcome in &failed {
        tell(outcome);
    }
    if failed.is_empty() {
        println!("nothing found");
        ExitCode::SUCCESS
    } else {
        println!("{} runs of {} seeds failed", failed.len(), arguments.seeds);
        ExitCode::FAILURE
    }
}
