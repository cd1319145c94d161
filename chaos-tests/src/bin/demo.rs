//! `make demo`: 100,000 bank transfers with acks=all, and the leader of a partition killed half-way.
#![allow(clippy::print_stdout)] // a person watches

use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use kuorum_chaos_tests::admin::Admin;
use kuorum_chaos_tests::cluster::{LocalCluster, Place, Process};
use kuorum_chaos_tests::history::judge;
use kuorum_chaos_tests::workload::{self, Progress, Stream};

const TRANSFERS: u64 = 100_000;
/// Transfers a second: slow enough to watch, and to be in full flow when the leader dies.
const RATE: u64 = 10_000;
const PARTITIONS: i32 = 6;

/// Writes 100,000 bank transfers with acks=all, kills the leader of a partition half-way, and counts what was lost.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    place: Place,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let place = Arguments::parse().place;
    let cluster = place.cluster(".cluster", 9_092)?;

    println!("Starting the local cluster …");
    let start = Instant::now();
    cluster.up(&place.set)?;
    let bootstrap = cluster.bootstrap()?;
    println!(
        "  up and healthy after {:.1} s: {bootstrap}",
        start.elapsed().as_secs_f64()
    );

    let admin = Admin::new(cluster.admin()?)?;
    let seconds = std::time::SystemTime::UNIX_EPOCH.elapsed()?.as_secs();
    let topic = format!("bank-transfers-{seconds}");
    admin
        .create_topic(&topic, PARTITIONS, &[("min.insync.replicas", "2")])
        .await?;
    println!(
        "  topic {topic}: {PARTITIONS} partitions, 3 replicas each, acks=all on at least 2 disks\n"
    );

    println!("Writing {TRANSFERS} bank transfers, each acknowledged only when it is safe …");
    let progress = Progress::default();
    let stream = Stream {
        topic: topic.clone(),
        first: 0,
        count: TRANSFERS,
        rate: Some(RATE),
    };
    let bar = bar("acknowledged")?;
    let writer = tokio::spawn({
        let (bootstrap, progress) = (bootstrap.clone(), progress.clone());
        async move { workload::write(&bootstrap, stream, progress).await }
    });
    let victim = loop {
        bar.set_position(progress.acknowledged());
        if progress.acknowledged() >= TRANSFERS / 2 || writer.is_finished() {
            break admin
                .partition(&topic, 0)
                .await?
                .leader
                .context("partition 0 has no leader")?;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let before = admin.partition(&topic, 0).await?;
    cluster.kill(Process::Broker(victim))?;
    let killed = Instant::now();
    say(
        &bar,
        &format!(
            "  kill -9 of broker {victim}, the leader of partition 0 (epoch {})",
            before.leader_epoch
        ),
    );
    admin
        .wait_until(
            Duration::from_secs(30),
            "another broker leads partition 0",
            async || {
                Ok(admin
                    .partition(&topic, 0)
                    .await?
                    .leader
                    .is_some_and(|leader| leader != victim))
            },
        )
        .await?;
    let after = admin.partition(&topic, 0).await?;
    say(
        &bar,
        &format!(
            "  broker {} leads partition 0 since {} ms after the kill (epoch {})",
            after.leader.unwrap_or(-1),
            killed.elapsed().as_millis(),
            after.leader_epoch,
        ),
    );
    let mut restarted = false;
    while !writer.is_finished() {
        bar.set_position(progress.acknowledged());
        if !restarted && progress.acknowledged() >= TRANSFERS * 3 / 4 {
            cluster.start(Process::Broker(victim))?;
            say(&bar, &format!("  broker {victim} is started again"));
            restarted = true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let writes = writer.await??;
    bar.finish_and_clear();
    if !restarted {
        cluster.start(Process::Broker(victim))?;
        println!("  broker {victim} is started again");
    }
    admin
        .wait_until_whole(&topic, Duration::from_secs(60))
        .await?;
    println!("  broker {victim} has caught up: all replicas are in sync\n");

    println!("Reading everything back …");
    let bar = self::bar("read")?;
    let seen = AtomicU64::new(0);
    let reads = workload::read_all(&bootstrap, &topic, PARTITIONS, &seen).await?;
    bar.finish_and_clear();
    let verdict = judge(&writes, &reads);
    println!("{verdict}\n");

    let binaries = LocalCluster::built_binaries()?;
    let folder = binaries.display();
    println!("The cluster is still running. Try next:");
    if !bootstrap.contains(":9092,") {
        // What `kuorum` takes for granted is the usual ports.
        let admin = cluster.admin()?.join(",");
        println!("  export KUORUM_BOOTSTRAP={bootstrap} KUORUM_ADMIN={admin}");
    }
    let here = cluster.make_variables()?;
    println!("  make status{here}");
    println!("  {folder}/kuorum topics describe {topic}");
    println!("  {folder}/kuorum consume -t {topic} -c 3");
    println!("  make kill-node ID=2{here}     # a broker and a controller at once");
    println!("  make down{here}               # stop it; `make up` brings it back with its data");
    Ok(
        if verdict.holds() && verdict.acknowledged as u64 == TRANSFERS {
            ExitCode::SUCCESS
        } else {
            println!("\nThis is not what was promised: {verdict:?}");
            ExitCode::FAILURE
        },
    )
}

/// A line above the bar, or alone where there is no terminal to draw one on.
fn say(bar: &ProgressBar, line: &str) {
    if bar.is_hidden() {
        println!("{line}");
    } else {
        bar.println(line);
    }
}

fn bar(what: &str) -> Result<ProgressBar> {
    let style =
        ProgressStyle::with_template(&format!("  {{bar:40}} {{pos}}/{{len}} {what}, {{per_sec}}"))?;
    Ok(ProgressBar::new(TRANSFERS).with_style(style))
}
