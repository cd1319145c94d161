//! `make sim`: runs seeds of the simulation until one shows a violation, and says how to see it again.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clap::Parser;
use kuorum_chaos_tests::sim::{Options, Outcome, Tally, run};

/// Seeded simulation of replication and elections.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, env = "SEEDS", default_value_t = 200)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// One seed to replay, with the last events before its end.
    #[arg(long)]
    seed: Option<u64>,
    /// Seeds at once; as many as there are processors if left out.
    #[arg(long)]
    threads: Option<usize>,
    /// Switch one rule off, to see which property notices.
    #[cfg(feature = "mutations")]
    #[arg(long)]
    without: Option<String>,
}

impl Arguments {
    #[cfg(feature = "mutations")]
    fn options(&self) -> Options {
        let named = |name: &String| {
            kuorum_replication::Mutation::named(name)
                .unwrap_or_else(|| panic!("no rule is called {name}"))
        };
        Options {
            without: self.without.as_ref().map(named),
            ..Options::default()
        }
    }

    #[cfg(not(feature = "mutations"))]
    fn options(&self) -> Options {
        Options::default()
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.seed {
        Some(seed) => replay(seed, arguments.options()),
        None => search(&arguments),
    }
}

#[allow(clippy::print_stdout)]
fn replay(seed: u64, options: Options) -> ExitCode {
    let outcome = run(
        seed,
        Options {
            trace: true,
            ..options
        },
    );
    for line in &outcome.trace {
        println!("{line}");
    }
    println!("seed {seed}: {}", outcome.plan);
    println!("{}", outcome.tally);
    println!("trace hash {:016x}", outcome.digest);
    verdict(&outcome)
}

#[allow(clippy::print_stdout)]
fn verdict(outcome: &Outcome) -> ExitCode {
    match &outcome.violation {
        None => {
            println!("seed {}: nothing found", outcome.seed);
            ExitCode::SUCCESS
        }
        Some(violation) => {
            println!("seed {}: {violation}", outcome.seed);
            println!("replay with: make sim SEED={}", outcome.seed);
            ExitCode::FAILURE
        }
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
    let total = Mutex::new((Tally::default(), 0_u64));
    let failed: Mutex<Vec<Outcome>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let outcome = run(seed, arguments.options());
                    if let Ok(mut total) = total.lock() {
                        total.0.add(&outcome.tally);
                        // Whichever ends first: the sum is the same.
                        let own = outcome.digest ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        total.1 = total.1.wrapping_add(own);
                    }
                    if outcome.violation.is_some()
                        && let Ok(mut failed) = failed.lock()
                    {
                        failed.push(outcome);
                    }
                }
            });
        }
    });
    if let Ok(total) = total.lock() {
        println!("seeds {}..{end}: {}", arguments.from, total.0);
        println!("combined trace hash {:016x}", total.1);
    }
    let Ok(failed) = failed.lock() else {
        return ExitCode::FAILURE;
    };
    for outcome in failed.iter() {
        verdict(outcome);
    }
    if failed.is_empty() {
        println!("nothing found");
        ExitCode::SUCCESS
    } else {
        println!("{} of {} seeds failed", failed.len(), arguments.seeds);
        ExitCode::FAILURE
    }
}
