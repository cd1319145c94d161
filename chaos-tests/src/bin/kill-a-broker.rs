//! Kills and pauses controllers, then kills the leader again and again under a stream of acknowledged writes, then everything at
//! once, under such a stream too, and compares what was acknowledged with what is read.
#![allow(clippy::print_stdout)] // a person watches

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use kuorum_chaos_tests::cluster::Place;
use kuorum_chaos_tests::stories::{KillTheLeader, WithoutAController};

/// Kills leaders, then all six processes at once, under a stream of acknowledged writes.
#[derive(Debug, Parser)]
struct Arguments {
    /// How often the leader is killed.
    #[arg(default_value_t = 20)]
    rounds: u32,
    #[command(flatten)]
    place: Place,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let Arguments { rounds, place } = Arguments::parse();
    let cluster = place.cluster(".cluster-chaos", 29_092)?.for_test();
    cluster.clean()?;
    cluster.up(&place.set)?;
    let began = Instant::now();
    let tell = |line| println!("{:6.1} s  {line}", began.elapsed().as_secs_f64());
    let settle = Duration::from_secs(60);
    let verdict = WithoutAController { rate: 500, settle }
        .run(&cluster, tell)
        .await?;
    println!("\nwithout a controller:\n{verdict}\n");
    let report = KillTheLeader {
        rounds,
        rate: 2_000,
        settle,
    }
    .run(&cluster, tell)
    .await?;
    println!("\n{report}");
    let quiet = verdict.longest_pause < Duration::from_secs(1);
    Ok(if report.holds() && verdict.holds() && quiet {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
