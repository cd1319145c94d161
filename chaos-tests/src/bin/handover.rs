//! SIGTERM of a broker that leads everything, under 1,000 acks=all writes a second: no failed write, the slowest within
//! 300 ms, the process gone within 10 s.
#![allow(clippy::print_stdout)] // a person watches

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use kuorum_chaos_tests::cluster::Place;
use kuorum_chaos_tests::handover::Handover;

/// Ends brokers that lead 60 partitions in good order, under 1,000 acks=all writes a second.
#[derive(Debug, Parser)]
struct Arguments {
    /// How often, one broker after the other.
    #[arg(default_value_t = 1)]
    rounds: i32,
    #[command(flatten)]
    place: Place,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let place = &arguments.place;
    let cluster = place.cluster(".cluster-handover", 30_092)?.for_test();
    let mut holds = true;
    for round in 1..=arguments.rounds {
        cluster.clean()?;
        cluster.up(&place.set)?;
        let story = Handover {
            partitions: 60,
            rate: 1_000,
            settle: Duration::from_secs(60),
        };
        let report = story.run(&cluster, 1 + (round - 1) % 3).await?;
        println!("round {round}\n{report}\n");
        holds &= report.verdict.holds()
            && report.failed == 0
            && report.slowest <= Duration::from_millis(300)
            && report.gone <= Duration::from_secs(10);
    }
    Ok(match holds {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
