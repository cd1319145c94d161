//! The end-to-end half of `make bench`: a real cluster of three nodes, each figure beside what this machine can do at most, measured in the
//! same run. Usage: `bench DIRECTORY`; RDKAFKA_PERFORMANCE names librdkafka's producer, without which its rows are left out.
#![allow(clippy::print_stdout)] // the table is this program's purpose

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kuorum_chaos_tests::admin::Admin;
use kuorum_chaos_tests::cluster::{LocalCluster, Process};
use kuorum_chaos_tests::stories::KillTheLeader;

const PORT_BASE: u16 = 28_092;
const KIB: usize = 1024;
/// The topic whose records no acknowledgement waits for on a disk.
const CACHED: &str = "bench-cache";

#[tokio::main]
async fn main() -> Result<()> {
    let folder = PathBuf::from(std::env::args().nth(1).context("usage: bench DIRECTORY")?);
    let binaries = LocalCluster::built_binaries()?;
    let mut machine = Machine::new(&binaries, folder.join("limits"))?;

    let cluster = LocalCluster::at(folder.join("cluster"), PORT_BASE, &binaries).for_test();
    cluster.clean()?;
    let start = Instant::now();
    cluster.up("")?;
    row(
        "six processes, from nothing to healthy",
        &seconds(start.elapsed()),
        "aim 2 s after their start",
    );
    row(
        "resident memory of a broker, idle",
        &memory(&cluster)?,
        "aim 25 MB",
    );

    let admin = Admin::new(cluster.admin()?)?;
    let bootstrap = cluster.bootstrap()?;
    if let Ok(producer) = std::env::var("RDKAFKA_PERFORMANCE") {
        for (name, partitions, durability) in [
            (CACHED, 12, "page.cache"),
            ("bench-flushed", 12, "flushed"),
            ("bench-one", 1, "flushed"),
        ] {
            admin
                .create_topic(
                    name,
                    partitions,
                    &[
                        ("acks.durability", durability),
                        ("min.insync.replicas", "2"),
                    ],
                )
                .await?;
        }
        let load = Load {
            producer,
            bootstrap,
        };
        for (topic, limit, what) in [
            (CACHED, "append-hop", "page.cache"),
            ("bench-flushed", "flushed-append", "flushed"),
        ] {
            let before = machine.limit(&[limit])?;
            let rate = load.run(topic, KIB, 500_000)?.megabytes;
            let most = (before + machine.limit(&[limit])?) / 2.0;
            row(
                &format!("acks=all, {what}, 12 partitions, 1 KiB"),
                &format!("{rate:.0} MiB/s"),
                &format!("{:.0} % of {limit}, {most:.0} MiB/s", rate * 100.0 / most),
            );
        }
        row(
            "acks=all, flushed, 12 partitions, 100 B",
            &format!(
                "{:.0} records/s",
                load.run("bench-flushed", 100, 2_000_000)?.records
            ),
            "",
        );
        row(
            "acks=all, flushed, 1 partition, 100 B",
            &format!(
                "{:.0} records/s",
                load.run("bench-one", 100, 2_000_000)?.records
            ),
            "",
        );
        let floor = ["fdatasync", "round-trip"];
        let before = machine.limit(&floor)?;
        let median = load.latency("bench-one", &folder)?;
        let least = (before + machine.limit(&floor)?) / 2.0;
        row(
            "acks=all, flushed, 50 records/s: median",
            &format!("{median:.3} ms"),
            &format!(
                "{:.1} × (fdatasync + round-trip, {least:.3} ms)",
                median / least
            ),
        );
        restart(&cluster, &admin, "bench-flushed").await?;
    }

    let start = Instant::now();
    let some = async |first: usize| -> Result<()> {
        for i in (first..1_000).step_by(4) {
            admin.create_topic(&format!("many-{i:04}"), 1, &[]).await?;
        }
        Ok(())
    };
    tokio::try_join!(some(0), some(1), some(2), some(3))?;
    row(
        "1,000 topics created, each led",
        &seconds(start.elapsed()),
        "aim 5 s",
    );
    row(
        "resident memory of a broker, 1,000 partitions",
        &memory(&cluster)?,
        "aim 80 MB",
    );
    drop(cluster);

    let cluster = LocalCluster::at(folder.join("cluster"), PORT_BASE, &binaries).for_test();
    cluster.clean()?;
    cluster.up("")?;
    let story = KillTheLeader {
        rounds: 10,
        rate: 500,
        settle: Duration::from_secs(60),
    };
    let report = story.run(&cluster, |_| ()).await?;
    if !report.holds() {
        bail!("a promise was broken while measuring: {report}");
    }
    let mut times = report.until_next_write;
    times.sort_unstable();
    row(
        "SIGKILL of the leader to the next acknowledged write, median of 10",
        &seconds(times[times.len() / 2]),
        "aim 1 s, at most 2 s",
    );
    Ok(())
}

/// SIGKILL of a broker that holds a replica of `topic`, until its replicas are in sync again; beside it what it has read for that.
async fn restart(cluster: &LocalCluster, admin: &Admin, topic: &str) -> Result<()> {
    let broker = Process::Broker(1);
    cluster.kill(broker)?;
    let limit = Duration::from_secs(60);
    admin
        .wait_until(limit, "the dead broker is out of sync", async || {
            let partitions = admin.partitions(topic).await?;
            Ok(partitions.iter().all(|p| !p.isr.contains(&1)))
        })
        .await?;
    let held = logs(&cluster.broker_data(1), "")?;
    let never_flushed = logs(&cluster.broker_data(1), CACHED)?;
    let start = Instant::now();
    cluster.start(broker)?;
    admin.wait_until_whole(topic, limit).await?;
    let elapsed = start.elapsed();
    let io = std::fs::read_to_string(format!("/proc/{}/io", pid(cluster, 1)?))?;
    let read: u64 = io
        .lines()
        .find_map(|line| line.strip_prefix("rchar: "))
        .context("no rchar")?
        .parse()?;
    row(
        "a broker after SIGKILL, from its start to in sync",
        &seconds(elapsed),
        &format!(
            "has read {:.0} of {:.0} MB, {:.0} of them never flushed",
            read as f64 / 1e6,
            held as f64 / 1e6,
            never_flushed as f64 / 1e6
        ),
    );
    Ok(())
}

/// The bytes of the `.log` files of a broker's partitions of topics whose name begins like this.
fn logs(data: &Path, topic: &str) -> Result<u64> {
    let mut bytes = 0;
    for partition in std::fs::read_dir(data)? {
        let partition = partition?;
        let is_wanted = partition.file_name().to_string_lossy().starts_with(topic);
        if !is_wanted || !partition.file_type()?.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(partition.path())? {
            let file = file?;
            if file.path().extension().is_some_and(|name| name == "log") {
                bytes += file.metadata()?.len();
            }
        }
    }
    Ok(bytes)
}

fn pid(cluster: &LocalCluster, id: i32) -> Result<String> {
    let file = cluster.directory().join(format!("broker-{id}/pid"));
    Ok(std::fs::read_to_string(file)?.trim().to_owned())
}

fn row(what: &str, value: &str, beside: &str) {
    println!("{what:<68} {value:>18}   {beside}");
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

/// What `limits` measures, just before a load and just after it. What it writes stays until the end of the run.
struct Machine {
    program: PathBuf,
    folder: PathBuf,
    measured: u32,
}

impl Machine {
    fn new(binaries: &Path, folder: PathBuf) -> Result<Self> {
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        Ok(Self {
            program: binaries.join("limits"),
            folder,
            measured: 0,
        })
    }

    /// The sum of the limits with these names.
    fn limit(&mut self, names: &[&str]) -> Result<f64> {
        self.measured += 1;
        let output = Command::new(&self.program)
            .arg(self.folder.join(self.measured.to_string()))
            .args(names)
            .output()?;
        if !output.status.success() {
            bail!("limits: {}", String::from_utf8_lossy(&output.stderr));
        }
        let text = String::from_utf8(output.stdout)?;
        let value = |line: &str| -> Result<f64> {
            Ok(line
                .split(' ')
                .nth(1)
                .context("a limit has a value")?
                .parse()?)
        };
        text.lines().map(value).sum()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // What cannot be removed now is removed when the next run begins.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The largest of the three brokers.
fn memory(cluster: &LocalCluster) -> Result<String> {
    let mut largest = 0;
    for id in 1..=3 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pid(cluster, id)?))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
        largest = largest.max(kib);
    }
    Ok(format!("{:.1} MB", largest as f64 * 1024.0 / 1e6))
}

/// librdkafka's own producer.
struct Load {
    producer: String,
    bootstrap: String,
}

struct Throughput {
    records: f64,
    megabytes: f64,
}

impl Load {
    fn command(&self, topic: &str, size: usize, count: u64) -> Command {
        let mut command = Command::new(&self.producer);
        command.args(["-P", "-t", topic, "-b", &self.bootstrap, "-a", "-1", "-q"]);
        command.args(["-s", &size.to_string(), "-c", &count.to_string()]);
        command.args([
            "-X",
            "linger.ms=5",
            "-X",
            "queue.buffering.max.messages=500000",
        ]);
        command
    }

    /// Writes `count` records of `size` bytes and waits for every acknowledgement.
    fn run(&self, topic: &str, size: usize, count: u64) -> Result<Throughput> {
        let start = Instant::now();
        let output = self.command(topic, size, count).output()?;
        let elapsed = start.elapsed().as_secs_f64();
        if !output.status.success() {
            bail!(
                "rdkafka_performance: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(Throughput {
            records: count as f64 / elapsed,
            megabytes: (count * size as u64) as f64 / elapsed / (1 << 20) as f64,
        })
    }

    /// The median time from handing a record over to its acknowledgement at 50 records a second, in milliseconds.
    fn latency(&self, topic: &str, folder: &Path) -> Result<f64> {
        let file = folder.join("latency.txt");
        let mut command = self.command(topic, 100, 500);
        command
            .args(["-X", "linger.ms=0", "-r", "50", "-l", "-A"])
            .arg(&file);
        command.output()?;
        let text = std::fs::read_to_string(&file)?;
        let mut micros: Vec<f64> = text
            .lines()
            .filter_map(|line| line.split_whitespace().last()?.parse().ok())
            .collect();
        micros.sort_by(f64::total_cmp);
        let median = micros
            .get(micros.len() / 2)
            .context("no latencies were written")?;
        Ok(median / 1e3)
    }
}
