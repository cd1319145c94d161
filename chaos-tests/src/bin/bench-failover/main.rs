//! `make bench-failover`: how long writes stop when a leader dies or freezes, and where each millisecond goes.
#![allow(clippy::print_stdout)] // a person watches

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use kuorum_chaos_tests::chaos::history::{Event, Outcome};
use kuorum_chaos_tests::chaos::lab::{Lab, Options};
use kuorum_chaos_tests::chaos::workload::Stream;
use kuorum_chaos_tests::chaos::{report, sandbox, watch};
use kuorum_chaos_tests::cluster::{LocalCluster, Process};

const TOPIC: &str = "failover";
const RATE: u64 = 1_000;
const PHASES: [(&str, &str, &str); 4] = [
    (
        "detect",
        "detect",
        "from SIGKILL until the active controller has fenced the broker",
    ),
    (
        "elect",
        "elect",
        "until another leader is decided and in the metadata log",
    ),
    (
        "publish",
        "publish",
        "until that broker knows that it leads",
    ),
    (
        "refresh",
        "client refresh",
        "until a client has found it and has a write acknowledged",
    ),
];
const KILLED_MEDIAN: f64 = 1_000.0;
const KILLED_WORST: f64 = 2_000.0;

/// Kills and freezes leaders under a stream of acks=all writes, and measures the time without an acknowledgement.
#[derive(Debug, Parser)]
struct Arguments {
    /// How often the leader is killed.
    #[arg(long, env = "KILLS", default_value_t = 50)]
    kills: u32,
    /// How often it is frozen.
    #[arg(long, env = "PAUSES", default_value_t = 5)]
    pauses: u32,
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

/// From a fault to the next acknowledgement, phase by phase, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Phases([f64; 4]);

impl Phases {
    fn total(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// One freeze: the phases of a write on a fresh connection, and how long a client with a request in flight waited.
#[derive(Clone, Copy, Debug, Default)]
struct Freeze {
    fresh: Phases,
    in_flight: f64,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    sandbox::enter()?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(async {
            tokio::select! {
                done = run(&arguments) => done,
                _ = tokio::signal::ctrl_c() => Ok(ExitCode::FAILURE),
            }
        })
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
    let lab = Lab::begin("bench-failover", "", &options).await?;
    lab.quiet_topic(TOPIC, 1, 3, &[("min.insync.replicas", "2")])
        .await?;
    let stream = lab.write(Stream::endless("stream", TOPIC, RATE));
    let mut kills = Vec::new();
    for round in 1..=arguments.kills {
        lab.flow(&stream, RATE / 4).await?;
        let kill = kill(&lab).await.with_context(|| format!("kill {round}"))?;
        println!(
            "kill {round:>3}: {:5.0} ms = {}",
            kill.total(),
            shown(&kill.0)
        );
        kills.push(kill);
        lab.whole().await?;
    }
    stream.stop().await?;
    let before = lab.longest_pause();
    let mut pauses = Vec::new();
    for round in 1..=arguments.pauses {
        let pause = freeze(&lab, u64::from(round)).await?;
        println!(
            "freeze {round:>2}: a fresh connection {:6.0} ms = {}; a client with a request in flight {:6.0} ms",
            pause.fresh.total(),
            shown(&pause.fresh.0),
            pause.in_flight
        );
        pauses.push(pause);
    }
    lab.finish().await?;
    let ended = lab.judge();
    let lost: Vec<&str> = ended
        .verdicts
        .iter()
        .filter(|verdict| !verdict.wrong.is_empty())
        .map(|verdict| verdict.name)
        .collect();
    let totals = sorted(kills.iter().map(Phases::total));
    let fresh = sorted(pauses.iter().map(|pause| pause.fresh.total()));
    let session = 9_000.0;
    let held = lost.is_empty()
        && percentile(&totals, 50) <= KILLED_MEDIAN
        && percentile(&totals, 100) <= KILLED_WORST
        && percentile(&fresh, 100) <= session + 1_000.0;
    let table = table(&kills, &pauses);
    println!("\n{table}");
    println!(
        "longest pause of the stream over all kills: {} ms",
        before.as_millis()
    );
    println!(
        "broken promises: {}",
        if lost.is_empty() {
            "none".to_owned()
        } else {
            lost.join(", ")
        }
    );
    if let Some(folder) = arguments.report.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&arguments.report, page(&kills, &pauses, held))?;
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

/// Kills the leader, waits for the next acknowledgement and brings the broker back.
async fn kill(lab: &Lab) -> Result<Phases> {
    let leader = lab.leader(TOPIC).await?;
    let (wall, at) = (watch::wall_clock(), lab.history.now());
    lab.faults.kill(Process::Broker(leader))?;
    lab.another_leader(TOPIC, leader).await?;
    let mut acknowledged = None;
    lab.until("the next leader acknowledges", async || {
        let Some(led) = leads_since(lab, wall)? else {
            return Ok(false);
        };
        acknowledged = first_acknowledged(lab, "stream", at + led - wall);
        Ok(acknowledged.is_some())
    })
    .await?;
    let acknowledged = acknowledged.context("a write was acknowledged")? - at;
    let phases = phases(lab, leader, wall, acknowledged)?;
    lab.faults.start(Process::Broker(leader))?;
    Ok(phases)
}

/// What lay between a fault at `wall` and an acknowledgement so many milliseconds later, by the logs of controllers and brokers.
fn phases(lab: &Lab, leader: i32, wall: f64, acknowledged: f64) -> Result<Phases> {
    let leader = i64::from(leader);
    let fenced = controllers_said(lab, wall, "broker fenced", |line| {
        line.number("broker") == Some(leader)
    })?;
    let elected = controllers_said(lab, wall, "partition changed", |line| {
        line.text("topic") == Some(TOPIC) && line.number("leader").is_some_and(|now| now != leader)
    })?;
    let moments = [
        fenced.context("no controller said that it fenced the broker")? - wall,
        elected.context("no controller said who leads")? - wall,
        leads_since(lab, wall)?.context("no broker said that it leads")? - wall,
        acknowledged,
    ];
    let mut phases = Phases::default();
    let mut last: f64 = 0.0;
    for (phase, moment) in phases.0.iter_mut().zip(moments) {
        // Logs of several processes are written a moment after what they tell.
        let moment = moment.max(last);
        *phase = moment - last;
        last = moment;
    }
    Ok(phases)
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

fn controllers_said(
    lab: &Lab,
    wall: f64,
    message: &str,
    matches: impl Fn(&watch::LogLine) -> bool,
) -> Result<Option<f64>> {
    said(lab, Process::Controller, wall, message, matches)
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
    let entries = lab.history.last(10_000).into_iter();
    entries
        .filter(|entry| entry.at >= since)
        .find_map(|entry| match &entry.event {
            Event::Wrote {
                stream: of,
                outcome: Outcome::Acked,
                ..
            } if &**of == stream => Some(entry.at),
            _ => None,
        })
}

/// Freezes the leader under a client with requests in flight, and writes once on a fresh connection.
async fn freeze(lab: &Lab, round: u64) -> Result<Freeze> {
    let first = round * 1_000_000_000_000;
    let in_flight = lab.write(Stream {
        first,
        ..Stream::endless("in flight", TOPIC, RATE)
    });
    lab.flow(&in_flight, RATE / 4).await?;
    let leader = lab.leader(TOPIC).await?;
    let (wall, at) = (watch::wall_clock(), lab.history.now());
    lab.faults.pause(Process::Broker(leader))?;
    let other = first + 500_000_000_000;
    let fresh = Stream::numbers("fresh", TOPIC, other, other + 1);
    lab.write(fresh).end().await?;
    let acknowledged = lab.history.now() - at;
    let mut waited = None;
    lab.until("the client in flight goes on", async || {
        waited = leads_since(lab, wall)?
            .and_then(|led| first_acknowledged(lab, "in flight", at + led - wall));
        Ok(waited.is_some())
    })
    .await?;
    let waited = waited.context("it went on")? - at;
    let fresh = phases(lab, leader, wall, acknowledged)?;
    lab.faults.resume(Process::Broker(leader))?;
    lab.whole().await?;
    in_flight.stop().await?;
    Ok(Freeze {
        fresh,
        in_flight: waited,
    })
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The smallest value that so many percent do not exceed; 0 of nothing.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(place).copied().unwrap_or(0.0)
}

fn shown(phases: &[f64; 4]) -> String {
    let words: Vec<String> = PHASES
        .iter()
        .zip(phases)
        .map(|((_, name, _), millis)| format!("{name} {millis:.0}"))
        .collect();
    words.join(" + ")
}

/// Every row of the table: what, then median, 90 %, worst.
fn rows(kills: &[Phases], pauses: &[Freeze]) -> Vec<(String, Vec<f64>)> {
    let mut rows: Vec<(String, Vec<f64>)> = PHASES
        .iter()
        .enumerate()
        .map(|(index, (_, name, _))| {
            let values = sorted(kills.iter().map(|kill| kill.0[index]));
            ((*name).to_owned(), values)
        })
        .collect();
    rows.push((
        "SIGKILL to acknowledged".to_owned(),
        sorted(kills.iter().map(Phases::total)),
    ));
    for (index, (_, name, _)) in PHASES.iter().enumerate() {
        let values = sorted(pauses.iter().map(|pause| pause.fresh.0[index]));
        rows.push((format!("{name} (SIGSTOP)"), values));
    }
    rows.push((
        "SIGSTOP, fresh connection".to_owned(),
        sorted(pauses.iter().map(|pause| pause.fresh.total())),
    ));
    rows.push((
        "SIGSTOP, request in flight".to_owned(),
        sorted(pauses.iter().map(|pause| pause.in_flight)),
    ));
    rows
}

fn table(kills: &[Phases], pauses: &[Freeze]) -> String {
    let mut text = format!(
        "{:<28} {:>6} {:>9} {:>9} {:>9}\n",
        "ms", "times", "median", "90 %", "worst"
    );
    for (name, values) in rows(kills, pauses) {
        writeln!(
            text,
            "{name:<28} {:>6} {:>9.1} {:>9.1} {:>9.1}",
            values.len(),
            percentile(&values, 50),
            percentile(&values, 90),
            percentile(&values, 100)
        )
        .expect("writing to memory does not fail");
    }
    text
}

fn page(kills: &[Phases], pauses: &[Freeze], held: bool) -> String {
    let (class, word) = if held {
        ("good", "held")
    } else {
        ("bad", "missed")
    };
    let mut body = format!(
        "<h1>Failover <span class=\"badge {class}\">{word}</span></h1><p>A stream of {RATE} acks=all writes a second into one partition on three brokers, min.insync.replicas=2, every timeout the product's own. Wanted: from SIGKILL to the next acknowledged write at most {:.0} s in the median and {:.0} s at worst; from SIGSTOP at most a session timeout and a second on a fresh connection.</p>",
        KILLED_MEDIAN / 1e3,
        KILLED_WORST / 1e3
    );
    body.push_str("<figure>");
    body.push_str(&picture(kills));
    body.push_str("<figcaption class=\"legend\">");
    for (class, name, says) in PHASES {
        write!(
            body,
            "<span class=\"key {class}\"><b>{name}</b> {says}</span>"
        )
        .expect("writing to memory does not fail");
    }
    body.push_str("</figcaption></figure><table><tr><th>in milliseconds</th><th class=\"number\">times</th><th class=\"number\">median</th><th class=\"number\">90 %</th><th class=\"number\">worst</th></tr>");
    for (name, values) in rows(kills, pauses) {
        write!(
            body,
            "<tr><td>{name}</td><td class=\"number\">{}</td><td class=\"number\">{:.1}</td><td class=\"number\">{:.1}</td><td class=\"number\">{:.1}</td></tr>",
            values.len(),
            percentile(&values, 50),
            percentile(&values, 90),
            percentile(&values, 100)
        )
        .expect("writing to memory does not fail");
    }
    body.push_str("</table><p class=\"quiet\">A client whose request lies in the frozen broker's socket waits for its own request timeout as well: that is the last row, and no broker can shorten it.</p>");
    report::page("Failover", &body)
}

/// A bar for every kill, its phases one after the other.
fn picture(kills: &[Phases]) -> String {
    const WIDTH: f64 = 1_000.0;
    const LEFT: f64 = 50.0;
    const BAR: f64 = 9.0;
    let longest = kills.iter().map(Phases::total).fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - 70.0) / longest;
    let height = 30.0 + BAR * kills.len() as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"the phases of every failover\">"
    );
    let mut put = |what: std::fmt::Arguments<'_>| {
        svg.write_fmt(what)
            .expect("writing to memory does not fail");
    };
    for (index, kill) in kills.iter().enumerate() {
        let y = 4.0 + BAR * index as f64;
        let mut x = LEFT;
        if index % 5 == 4 || index == 0 {
            put(format_args!(
                "<text class=\"label\" x=\"{:.0}\" y=\"{:.1}\">{}</text>",
                LEFT - 8.0,
                y + 8.0,
                index + 1
            ));
        }
        for ((class, name, _), millis) in PHASES.iter().zip(kill.0) {
            let width = millis * scale;
            put(format_args!(
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>kill {}: {name} {millis:.1} ms</title></rect>",
                width.max(0.4),
                BAR - 2.0,
                index + 1
            ));
            x += width;
        }
        put(format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\">{:.0}</text>",
            x + 5.0,
            y + 7.5,
            kill.total()
        ));
    }
    let step = [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0]
        .into_iter()
        .find(|step| longest / step <= 10.0)
        .unwrap_or(5_000.0);
    let mut at = 0.0;
    while at <= longest {
        put(format_args!(
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{at:.0} ms</text>",
            LEFT + at * scale,
            height - 6.0
        ));
        at += step;
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(percentile(&values, 50), 2.0);
        assert_eq!(percentile(&values, 90), 4.0);
        assert_eq!(percentile(&values, 100), 4.0);
        assert_eq!(percentile(&[], 50), 0.0);
    }

    #[test]
    fn the_page_has_a_row_for_each_phase_and_a_bar_for_each_kill() {
        let kills = [Phases([250.0, 5.0, 2.0, 40.0]); 3];
        let page = page(&kills, &[Freeze::default()], true);
        assert_eq!(page.matches("<rect").count(), 12);
        for (_, name, _) in PHASES {
            assert!(page.contains(&format!("<td>{name}</td>")), "{name}");
        }
        assert!(table(&kills, &[]).contains("297.0"));
    }
}
