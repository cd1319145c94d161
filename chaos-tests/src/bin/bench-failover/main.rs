//! `make bench-failover`: how long writes stop when a leader dies or freezes, for our own producer and for other people's, and where each
//! millisecond goes.
#![allow(clippy::print_stdout)] // a person watches

mod page;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use kuorum_chaos_tests::chaos::history::{Event, Outcome};
use kuorum_chaos_tests::chaos::lab::{Lab, Options};
use kuorum_chaos_tests::chaos::stock::{self, Kind, Streaming};
use kuorum_chaos_tests::chaos::workload::Stream;
use kuorum_chaos_tests::chaos::{sandbox, watch};
use kuorum_chaos_tests::cluster::{LocalCluster, Process};
use kuorum_chaos_tests::workload::Progress;
use page::{Account, Freeze, Phases, Series};

const TOPIC: &str = "failover";
/// Records a second of our own producer, and of each other one.
const RATE: u64 = 1_000;
const STOCK_RATE: u64 = 200;
const OURS: &str = "our own producer";
/// How often another client connects anew while the leader is frozen.
const FRESH_EVERY: Duration = Duration::from_millis(250);

/// Kills and freezes leaders under streams of acks=all writes, and measures the time without an acknowledgement.
#[derive(Debug, Parser)]
struct Arguments {
    /// How often the leader is killed.
    #[arg(long, env = "KILLS", default_value_t = 50)]
    kills: u32,
    /// How often it is frozen.
    #[arg(long, env = "PAUSES", default_value_t = 5)]
    pauses: u32,
    /// In how many of the kills, the first ones, other people's clients write as well; 0 for none.
    #[arg(long, env = "STOCK_KILLS", default_value_t = 50)]
    stock_kills: u32,
    /// In how many of the freezes, the first ones; each lasts until they no longer wait for the frozen broker, which is a minute.
    #[arg(long, env = "STOCK_PAUSES", default_value_t = 1)]
    stock_pauses: u32,
    /// Where other people's clients are, or are fetched to.
    #[arg(long, env = "CONFORMANCE_DIR", default_value_os_t = stock::usual_folder())]
    clients: PathBuf,
    /// Where the page is written.
    #[arg(long, default_value = ".bench/failover.html")]
    report: PathBuf,
    /// Where the cluster lives.
    #[arg(long, env = "CHAOS_DIR", default_value = ".cluster-chaos")]
    folder: PathBuf,
    /// The folder of the brokers' and controllers' programs; this program's own if left out.
    #[arg(long)]
    binaries: Option<PathBuf>,
    /// The first port, where nodes share the loopback device.
    #[arg(long, env = "CHAOS_PORT_BASE", default_value_t = 29_092)]
    port_base: u16,
}

impl Arguments {
    fn wants_stock(&self) -> bool {
        self.kills.min(self.stock_kills) + self.pauses.min(self.stock_pauses) > 0
    }
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
    };
    // There is no network inside the sandbox.
    if !sandbox::inside() && arguments.wants_stock() {
        runtime()?.block_on(fetch(&arguments.clients));
    }
    sandbox::enter()?;
    runtime()?.block_on(async {
        tokio::select! {
            done = run(&arguments) => done,
            _ = tokio::signal::ctrl_c() => Ok(ExitCode::FAILURE),
        }
    })
}

/// Fetches other people's clients. What cannot be had is left out of the figures.
async fn fetch(folder: &Path) {
    for kind in stock::ALL {
        if let Err(problem) = stock::install(kind, folder).await {
            println!("{} is not measured: {problem:#}", kind.name);
        }
    }
}

async fn run(arguments: &Arguments) -> Result<ExitCode> {
    let options = Options {
        folder: arguments.folder.clone(),
        port_base: arguments.port_base,
        binaries: match &arguments.binaries {
            Some(folder) => folder.clone(),
            None => LocalCluster::built_binaries()?,
        },
        seed: 1,
        scale: 1,
        hosts: false,
    };
    let mut kinds: Vec<&'static Kind> = Vec::new();
    for kind in stock::ALL {
        if arguments.wants_stock() && stock::installed(kind, &arguments.clients).await {
            kinds.push(kind);
        }
    }
    let lab = Lab::begin("bench-failover", "", &options).await?;
    lab.quiet_topic(TOPIC, 1, 3, &[("min.insync.replicas", "2")])
        .await?;
    for kind in kinds.iter().filter(|kind| !kind.idempotent) {
        lab.may_repeat(kind.name);
    }
    let mut series = vec![Series::new(OURS, None)];
    series.extend(kinds.iter().map(|kind| Series::new(kind.name, Some(kind))));
    kill_rounds(&lab, arguments, &kinds, &mut series).await?;
    freeze_rounds(&lab, arguments, &kinds, &mut series).await?;
    lab.finish().await?;
    let ended = lab.judge();
    let broken: Vec<&str> = ended
        .verdicts
        .iter()
        .filter(|verdict| !verdict.wrong.is_empty())
        .map(|verdict| verdict.name)
        .collect();
    let accounts: Vec<Account> = series
        .iter()
        .map(|one| Account::of(one.name, &ended.entries))
        .collect();
    let held = broken.is_empty() && series.iter().all(Series::held);
    println!("\n{}", page::table(&series));
    println!("{}", page::accounts(&accounts));
    println!(
        "broken promises: {}",
        if broken.is_empty() {
            "none".to_owned()
        } else {
            broken.join(", ")
        }
    );
    for verdict in &ended.verdicts {
        for complaint in verdict.wrong.iter().take(5) {
            println!("  {}: {complaint}", verdict.name);
        }
    }
    if let Some(folder) = arguments.report.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&arguments.report, page::page(&series, &accounts, held))?;
    println!(
        "{}: {}",
        if held { "held" } else { "FAILED" },
        arguments.report.display()
    );
    Ok(if held {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Kills leaders while all the producers write.
async fn kill_rounds(
    lab: &Lab,
    arguments: &Arguments,
    kinds: &[&'static Kind],
    series: &mut [Series],
) -> Result<()> {
    if arguments.kills == 0 {
        return Ok(());
    }
    let stream = lab.write(Stream::endless(OURS, TOPIC, RATE));
    let mut others = match arguments.stock_kills {
        0 => Vec::new(),
        _ => begin_all(lab, arguments, kinds, 1)?,
    };
    for round in 1..=arguments.kills {
        if round > arguments.stock_kills {
            stop_all(std::mem::take(&mut others)).await?;
        }
        lab.flow(&stream, RATE / 4).await?;
        flow_all(lab, &others).await?;
        let count = 1 + others.len();
        let names: Vec<&str> = series[..count].iter().map(|one| one.name).collect();
        let kills = kill(lab, &names)
            .await
            .with_context(|| format!("kill {round}"))?;
        let refreshes: Vec<String> = kills
            .iter()
            .map(|kill| format!("{:.0}", kill.0[3]))
            .collect();
        println!(
            "kill {round:>3}: {:5.0} ms = {}; client refresh {}",
            kills[0].total(),
            page::shown(&kills[0].0[..3]),
            refreshes.join(" / ")
        );
        for (one, kill) in series.iter_mut().zip(kills) {
            one.kills.push(kill);
        }
        lab.whole().await?;
    }
    stop_all(others).await?;
    stream.stop().await
}

/// Freezes leaders while producers have requests in flight.
async fn freeze_rounds(
    lab: &Lab,
    arguments: &Arguments,
    kinds: &[&'static Kind],
    series: &mut [Series],
) -> Result<()> {
    let mut others = match arguments.pauses.min(arguments.stock_pauses) {
        0 => Vec::new(),
        _ => begin_all(lab, arguments, kinds, 101)?,
    };
    for round in 1..=arguments.pauses {
        if round > arguments.stock_pauses {
            stop_all(std::mem::take(&mut others)).await?;
        }
        flow_all(lab, &others).await?;
        let pauses = freeze(lab, round, &mut others)
            .await
            .with_context(|| format!("freeze {round}"))?;
        for (one, pause) in series.iter_mut().zip(pauses) {
            println!(
                "freeze {round:>2}, {}: a fresh connection {:6.0} ms = {}; with a request in flight {:6.0} ms",
                one.name,
                pause.fresh.total(),
                page::shown(&pause.fresh.0),
                pause.in_flight
            );
            one.pauses.push(pause);
        }
    }
    stop_all(others).await
}

/// Numbers that no other producer uses: a range each.
const RANGE: u64 = 1_000_000_000_000;

fn begin_all(
    lab: &Lab,
    arguments: &Arguments,
    kinds: &[&'static Kind],
    range: u64,
) -> Result<Vec<Streaming>> {
    let begun = kinds.iter().zip(range..).map(|(kind, range)| {
        let stream = stock::Stream {
            name: kind.name,
            topic: TOPIC,
            first: range * RANGE,
            rate: STOCK_RATE,
        };
        let log = format!("{}-{range}.log", kind.name.replace(' ', "-"));
        Streaming::begin(kind, &arguments.clients, lab, stream, &log)
    });
    begun.collect()
}

async fn flow_all(lab: &Lab, others: &[Streaming]) -> Result<()> {
    for one in others {
        let what = format!("writes of {} are acknowledged", one.kind.name);
        let enough = one.progress.acknowledged() + STOCK_RATE / 4;
        let flows = |progress: &Progress| progress.acknowledged() >= enough;
        lab.until(&what, async || Ok(flows(&one.progress))).await?;
    }
    Ok(())
}

async fn stop_all(others: Vec<Streaming>) -> Result<()> {
    for one in others {
        one.stop().await?;
    }
    Ok(())
}

/// Kills the leader, waits for the next acknowledgement of each stream and brings the broker back.
async fn kill(lab: &Lab, streams: &[&str]) -> Result<Vec<Phases>> {
    let leader = lab.leader(TOPIC).await?;
    let (wall, at) = (watch::wall_clock(), lab.history.now());
    lab.faults.kill(Process::Broker(leader))?;
    lab.another_leader(TOPIC, leader).await?;
    let acknowledged = acknowledged_by(lab, streams, (wall, at)).await?;
    let moments = moments(lab, leader, wall)?;
    lab.faults.start(Process::Broker(leader))?;
    let phases = acknowledged.into_iter();
    Ok(phases.map(|last| phases_until(moments, last)).collect())
}

/// Waits until each stream has an acknowledgement of the new leader's, and says how long after the fault that was.
async fn acknowledged_by(lab: &Lab, streams: &[&str], (wall, at): (f64, f64)) -> Result<Vec<f64>> {
    let mut led = None;
    let mut found = vec![None; streams.len()];
    let waited = lab
        .until("the next leader acknowledges", async || {
            if led.is_none() {
                led = leads_since(lab, wall)?;
            }
            let Some(led) = led else { return Ok(false) };
            for (stream, found) in streams.iter().zip(&mut found) {
                *found = found.or_else(|| first_acknowledged(lab, stream, at + led - wall));
            }
            Ok(found.iter().all(Option::is_some))
        })
        .await;
    waited.with_context(|| format!("acknowledgements of {streams:?}: {found:?}"))?;
    Ok(found.into_iter().flatten().map(|when| when - at).collect())
}

/// From a fault at `wall`: until the broker was fenced, another leader decided, and that one knew. By the logs of controllers and brokers.
fn moments(lab: &Lab, leader: i32, wall: f64) -> Result<[f64; 3]> {
    let leader = i64::from(leader);
    let fenced = said(lab, Process::Controller, wall, "broker fenced", |line| {
        line.number("broker") == Some(leader)
    })?;
    let elected = said(
        lab,
        Process::Controller,
        wall,
        "partition changed",
        |line| {
            line.text("topic") == Some(TOPIC)
                && line.number("leader").is_some_and(|now| now != leader)
        },
    )?;
    Ok([
        fenced.context("no controller said that it fenced the broker")? - wall,
        elected.context("no controller said who leads")? - wall,
        leads_since(lab, wall)?.context("no broker said that it leads")? - wall,
    ])
}

fn phases_until(moments: [f64; 3], acknowledged: f64) -> Phases {
    let mut phases = Phases::default();
    let mut last: f64 = 0.0;
    let moments = moments.into_iter().chain([acknowledged]);
    for (phase, moment) in phases.0.iter_mut().zip(moments) {
        // Logs of several processes are written a moment after what they tell.
        let moment = moment.max(last);
        *phase = moment - last;
        last = moment;
    }
    phases
}

/// When a broker began to lead the topic, after `wall`.
fn leads_since(lab: &Lab, wall: f64) -> Result<Option<f64>> {
    said(
        lab,
        Process::Broker,
        wall,
        "a partition's leader changed",
        |line| line.text("topic") == Some(TOPIC) && line.fields.get("leads") == Some(&true.into()),
    )
}

/// When one of the processes first said this, after `wall`.
fn said(
    lab: &Lab,
    process: impl Fn(i32) -> Process,
    wall: f64,
    message: &str,
    matches: impl Fn(&watch::LogLine) -> bool,
) -> Result<Option<f64>> {
    let mut first: Option<f64> = None;
    for id in 1..=3 {
        for home in lab.faults.homes(process(id)) {
            for line in watch::log_lines(&home)? {
                if line.at >= wall && line.message == message && matches(&line) {
                    first = Some(first.map_or(line.at, |before| before.min(line.at)));
                }
            }
        }
    }
    Ok(first)
}

/// When a stream's first acknowledgement came, after `since` in the history's time.
fn first_acknowledged(lab: &Lab, stream: &str, since: f64) -> Option<f64> {
    lab.history.first(since, |event| {
        matches!(event, Event::Wrote { stream: of, outcome: Outcome::Acked, .. } if &**of == stream)
    })
}

/// When the first of these records was acknowledged, after `since`.
fn acknowledged(lab: &Lab, numbers: &Range<u64>, since: f64) -> Option<f64> {
    lab.history.first(since, |event| match event {
        Event::Wrote { id, outcome, .. } => *outcome == Outcome::Acked && numbers.contains(id),
        _ => false,
    })
}

/// Freezes the leader under clients with requests in flight. Meanwhile our own client writes once on a fresh connection, and each of the others
/// again and again, each time as a client that has just been started.
async fn freeze(lab: &Lab, round: u32, others: &mut [Streaming]) -> Result<Vec<Freeze>> {
    let first = (201 + u64::from(round)) * RANGE;
    let (in_flight_name, fresh_name): (Arc<str>, Arc<str>) = (
        format!("{OURS}, in flight").into(),
        stock::fresh(OURS, first).into(),
    );
    let in_flight = lab.write(Stream {
        first,
        ..Stream::endless(&in_flight_name, TOPIC, RATE)
    });
    lab.flow(&in_flight, RATE / 4).await?;
    let leader = lab.leader(TOPIC).await?;
    let (wall, at) = (watch::wall_clock(), lab.history.now());
    lab.faults.pause(Process::Broker(leader))?;
    let ours = async {
        let first = first + RANGE / 2;
        let fresh = Stream::numbers(&fresh_name, TOPIC, first, first + 1);
        lab.write(fresh).end().await?;
        let acknowledged = first_acknowledged(lab, &fresh_name, at);
        acknowledged.context("the write on a fresh connection was not acknowledged")
    };
    let numbers: Vec<u64> = (0..others.len() as u64)
        .map(|index| (301 + 10 * u64::from(round) + index) * RANGE)
        .collect();
    let (ours, theirs) = tokio::try_join!(ours, write_fresh(lab, others, &numbers, at))?;
    let mut names: Vec<&str> = vec![&in_flight_name];
    names.extend(others.iter().map(|one| one.kind.name));
    let in_flight_waits = acknowledged_by(lab, &names, (wall, at)).await?;
    let moments = moments(lab, leader, wall)?;
    let at_once: Vec<Option<f64>> = numbers
        .iter()
        .map(|number| acknowledged(lab, &(*number..*number + 1), at).map(|when| when - at))
        .collect();
    lab.faults.resume(Process::Broker(leader))?;
    lab.whole().await?;
    in_flight.stop().await?;
    let fresh = [ours].into_iter().chain(theirs);
    let at_once = [Some(ours - at)].into_iter().chain(at_once);
    let pauses = fresh.zip(at_once).zip(in_flight_waits);
    Ok(pauses
        .map(|((fresh, at_once), in_flight)| Freeze {
            fresh: phases_until(moments, fresh - at),
            at_once,
            in_flight,
        })
        .collect())
}

/// Has clients start anew and write one record each, numbered from these on, until one of each kind is acknowledged.
async fn write_fresh(
    lab: &Lab,
    others: &mut [Streaming],
    numbers: &[u64],
    since: f64,
) -> Result<Vec<f64>> {
    let mut found = vec![None; others.len()];
    let mut tick = tokio::time::interval(FRESH_EVERY);
    let mut written = 0;
    let looked = tokio::time::timeout(kuorum_chaos_tests::chaos::lab::SETTLE, async {
        while found.iter().any(Option::is_none) {
            tick.tick().await;
            for ((one, number), found) in others.iter_mut().zip(numbers).zip(&mut found) {
                let numbers = *number..*number + written;
                *found = acknowledged(lab, &numbers, since);
                if found.is_none() {
                    one.write_fresh(number + written).await?;
                }
            }
            written += 1;
        }
        anyhow::Ok(())
    })
    .await;
    looked.with_context(|| format!("fresh connections of other clients: {found:?}"))??;
    Ok(found.into_iter().flatten().collect())
}
