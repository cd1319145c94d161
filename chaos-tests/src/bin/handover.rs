//! SIGTERM of a broker that leads everything, under 1,000 acks=all writes a second: no failed write, the slowest within
//! 300 ms, the process gone within 10 s. Usage: `handover [ROUNDS]`, with CLUSTER_DIR, PORT_BASE and SET as for `make up`.
#![allow(clippy::print_stdout)] // a person watches

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use kuorum_chaos_tests::cluster::LocalCluster;
use kuorum_chaos_tests::handover::Handover;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let rounds = match std::env::args().nth(1) {
        Some(word) => word.parse().context("usage: handover [ROUNDS]")?,
        None => 1,
    };
    let variable =
        |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let port_base = variable("PORT_BASE", "30092")
        .parse()
        .context("PORT_BASE is not a port")?;
    let cluster = LocalCluster::at(
        variable("CLUSTER_DIR", ".cluster-handover"),
        port_base,
        LocalCluster::built_binaries()?,
    )
    .for_test();
    let mut holds = true;
    for round in 1..=rounds {
        cluster.clean()?;
        cluster.up(&variable("SET", ""))?;
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
