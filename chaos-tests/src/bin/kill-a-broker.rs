//! Kills and pauses controllers, then kills the leader again and again under a stream of acknowledged writes, then everything at
//! once, and compares what was acknowledged with what is read. Usage: `kill-a-broker [ROUNDS]`, with CLUSTER_DIR, PORT_BASE and SET as for `make up`.
#![allow(clippy::print_stdout)] // a person watches

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kuorum_chaos_tests::cluster::LocalCluster;
use kuorum_chaos_tests::stories::{KillTheLeader, WithoutAController};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let rounds = match std::env::args().nth(1) {
        Some(word) => word.parse().context("usage: kill-a-broker [ROUNDS]")?,
        None => 20,
    };
    let variable =
        |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let port_base = variable("PORT_BASE", "29092")
        .parse()
        .context("PORT_BASE is not a port")?;
    let cluster = LocalCluster::at(
        variable("CLUSTER_DIR", ".cluster-chaos"),
        port_base,
        LocalCluster::built_binaries()?,
    )
    .for_test();
    cluster.clean()?;
    cluster.up(&variable("SET", ""))?;
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
