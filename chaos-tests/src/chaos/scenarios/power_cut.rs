//! The night of the power cut, as the third seed tells it, with its figures: 150,000 transfers everywhere; the racks cut apart by
//! network; 50,000 more on brokers 1 and 2; then both lose power. Path A prefers availability, path B waits; in the third story two
//! controllers die too. `SCALE=10` divides the figures by ten.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::unclean::offset_of;
use super::{AVAILABLE, CHAOS_BUILD, Lab, Mutation, QUICK, Scenario};
use crate::chaos::history::Event;
use crate::chaos::workload::{self, Stream};
use crate::cluster::Process;

const PATH_A_TOPIC: &str = "telemetry-logs";
const PATH_B_TOPIC: &str = "bank-transfers";
/// The number of the first transfer that only brokers 1 and 2 have.
const SUFFIX: u64 = 850_000;
/// The number of the first transfer after the power cut.
const AFTER: u64 = 900_000;
/// The rack: brokers 1 and 2 and one controller.
const RACK: [Process; 3] = [
    Process::Broker(1),
    Process::Broker(2),
    Process::Controller(1),
];

/// The figures of the story at this scale: how many everywhere, and how many more on brokers 1 and 2.
fn figures(lab: &Lab) -> (u64, u64) {
    (150_000 / lab.scale, 50_000 / lab.scale)
}

/// Everything up to the power cut itself.
async fn until_dark(lab: &Lab, topic: &str) -> Result<()> {
    let (base, more) = figures(lab);
    lab.write(Stream::numbers("everywhere", topic, 0, base))
        .end()
        .await?;
    lab.whole().await?;
    lab.partition_until(topic, "all three have everything", |one| {
        let mut ends = one.replica_states.iter();
        ends.all(|replica| replica.leo == Some(base as i64))
    })
    .await?;
    // The story has the racks' own side led by one of its brokers.
    let leader = lab.leader(topic).await?;
    if leader == 3 {
        lab.faults.kill(Process::Broker(3))?;
        lab.another_leader(topic, 3).await?;
        lab.faults.start(Process::Broker(3))?;
        lab.whole().await?;
    }
    lab.faults.separate(3)?;
    lab.partition_until(topic, "brokers 1 and 2 are alone", |one| {
        one.isr.len() == 2 && !one.isr.contains(&3)
    })
    .await?;
    lab.step(format!(
        "the racks are cut apart: offsets 0–{} everywhere",
        base - 1
    ));
    lab.write(Stream::numbers(
        "brokers 1 and 2",
        topic,
        SUFFIX,
        SUFFIX + more,
    ))
    .end()
    .await?;
    for (id, offset) in [(SUFFIX, base), (SUFFIX + more - 1, base + more - 1)] {
        let found = offset_of(lab, id)?;
        ensure!(found == offset as i64, "{id} is at {found}, not {offset}");
    }
    lab.partition_until(topic, "broker 1 and 2 both have the suffix", |one| {
        let ends = one.replica_states.iter();
        ends.filter(|replica| replica.leo == Some((base + more) as i64))
            .count()
            == 2
    })
    .await?;
    lab.step(format!(
        "{more} more, transfers {SUFFIX}–{}, at offsets {base}–{}",
        SUFFIX + more - 1,
        base + more - 1
    ));
    Ok(())
}

/// The power cut itself; what is left can reach each other again.
fn go_dark(lab: &Lab, rack: &[Process]) -> Result<()> {
    let cut = lab.faults.cut_power(rack, lab.seed)?;
    lab.faults.join(3)?;
    lab.step(format!("the rack is dark: {cut:?}"));
    Ok(())
}

/// So many writes are acknowledged by broker 3, which goes on where the suffix began.
async fn goes_on(lab: &Lab, count: u64) -> Result<()> {
    lab.write(Stream::numbers("after", PATH_A_TOPIC, AFTER, AFTER + count))
        .end()
        .await?;
    let (first, (base, _)) = (offset_of(lab, AFTER)?, figures(lab));
    ensure!(
        first == base as i64,
        "the new leader's first record has offset {first}"
    );
    Ok(())
}

pub(super) const PATH_A: Scenario = Scenario {
    name: "power-cut-path-a",
    story: "Availability is preferred: broker 3 leads at once without the suffix; what was cut is salvaged, replayed once, and a table that a consumer fills has it again.",
    guards: "R19, CONTRACTS 8: writes go on within the election time; what an unclean election takes is set aside and comes back once",
    without: "a truncation that does not set aside leaves nothing to replay; a replay without its own producer id brings records twice (duplicate)",
    fails_without: &[Mutation::CutWithoutSalvage],
    checkers: &["duplicate", "offset-immutable"],
    needs: CHAOS_BUILD,
    smoke: true,
    set: QUICK,
    run: |lab| Box::pin(path_a(lab)),
};

async fn path_a(lab: &Lab) -> Result<()> {
    let (base, more) = figures(lab);
    lab.topic(PATH_A_TOPIC, 1, 3, &AVAILABLE).await?;
    until_dark(lab, PATH_A_TOPIC).await?;

    lab.may_lose(PATH_A_TOPIC, 0, base as i64, (base + more) as i64);
    let dark = Instant::now();
    go_dark(lab, &RACK)?;
    lab.partition_until(PATH_A_TOPIC, "broker 3 leads", |one| one.leader == Some(3))
        .await?;
    let elected = dark.elapsed();
    goes_on(lab, 1_000).await?;
    let acknowledged = dark.elapsed();
    lab.step(format!(
        "broker 3 leads {} ms after the power went; writes are acknowledged after {} ms",
        elected.as_millis(),
        acknowledged.as_millis()
    ));
    ensure!(
        elected < Duration::from_secs(10),
        "{elected:?} without a leader"
    );

    let mut table = Table::new(lab)?;
    table.fill(lab, "table before", PATH_A_TOPIC).await?;
    let (suffix, all) = table.count(SUFFIX, SUFFIX + more)?;
    ensure!(
        (suffix, all) == (0, base + 1_000),
        "before the replay: {suffix} of the suffix, {all} rows"
    );
    lab.step(format!(
        "the table has {all} rows, and none of the {more} that were cut"
    ));

    lab.faults.start_all(&RACK)?;
    lab.whole().await?;
    let item = salvaged(lab, base, more).await?;
    let id = item["id"].as_str().context("an item has an id")?.to_owned();
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(replay(lab, &id).await?);
    }
    for answer in &answers {
        let (replayed, writer) = (&answer["replayed"], &answer["producer_id"]);
        ensure!(*replayed == more, "replayed {replayed} of {more}: {answer}");
        ensure!(
            *writer == answers[0]["producer_id"],
            "another writer: {answers:?}"
        );
    }
    lab.step(format!(
        "replayed, and asked for twice more: {}",
        answers[2]
    ));
    table.fill(lab, "table after", PATH_A_TOPIC).await?;
    let (suffix, all) = table.count(SUFFIX, SUFFIX + more)?;
    ensure!(
        (suffix, all) == (more, base + 1_000 + more),
        "after the replay: {suffix} of the suffix, {all} rows"
    );
    lab.step(format!(
        "the table has {all} rows, and each of the {more} once"
    ));
    Ok(())
}

/// The one salvage item, which must be `[base, base + more)`, held by both brokers.
async fn salvaged(lab: &Lab, base: u64, more: u64) -> Result<Value> {
    let mut last = Value::Null;
    let waited = lab
        .until("the suffix is salvaged by both brokers", async || {
            let page: Value = lab.admin.get("/api/v1/salvage").await?;
            let items = page["items"].as_array().cloned().unwrap_or_default();
            last = page;
            let [item] = items.as_slice() else {
                return Ok(false);
            };
            let mut brokers: Vec<i64> = item["brokers"]
                .as_array()
                .map(|brokers| brokers.iter().filter_map(Value::as_i64).collect())
                .unwrap_or_default();
            brokers.sort_unstable();
            Ok(item["first_offset"] == base
                && item["end_offset"] == base + more
                && item["records"] == more
                && brokers == [1, 2])
        })
        .await;
    waited.with_context(|| format!("salvage is {last}"))?;
    lab.step(format!("salvage: {}", last["items"][0]));
    Ok(last["items"][0].clone())
}

/// Asks for the replay until it is done, and returns the last answer.
async fn replay(lab: &Lab, id: &str) -> Result<Value> {
    let path = format!("/api/v1/salvage/{id}/replay");
    let mut last = Value::Null;
    lab.until("the replay is done", async || {
        last = lab.admin.post(&path, &json!({})).await?;
        Ok(last["state"] == "done")
    })
    .await
    .with_context(|| format!("the replay is {last}"))?;
    Ok(last)
}

/// What a consumer makes of a topic: a table of transfers in SQLite, by Python's own module.
#[derive(Debug)]
struct Table {
    file: std::path::PathBuf,
}

const SINK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/sqlite_sink.py");

impl Table {
    fn new(lab: &Lab) -> Result<Self> {
        let file = lab.faults.cluster.directory().join("transfers.sqlite");
        let table = Self { file };
        table.python(&["create"], "")?;
        Ok(table)
    }

    /// Reads the topic from the beginning and puts every transfer in, by its number.
    async fn fill(&mut self, lab: &Lab, reader: &str, topic: &str) -> Result<()> {
        workload::read_all(lab.bootstrap(), reader, topic, 1, &lab.history).await?;
        let mut lines = String::new();
        for entry in lab.history.entries() {
            if let Event::Polled {
                reader: by,
                id,
                offset,
                ..
            } = entry.event
                && &*by == reader
            {
                lines.push_str(&format!("{id} {offset}\n"));
            }
        }
        self.python(&["fill"], &lines).map(drop)
    }

    /// How many rows are numbered `from..until`, and how many there are in all.
    fn count(&self, from: u64, until: u64) -> Result<(u64, u64)> {
        let text = self.python(&["count", &from.to_string(), &until.to_string()], "")?;
        let mut numbers = text.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(some)), Some(Ok(all))) => Ok((some, all)),
            _ => bail!("the table counts {text:?}"),
        }
    }

    fn python(&self, words: &[&str], input: &str) -> Result<String> {
        let mut child = Command::new("python3")
            .arg(SINK)
            .arg(&self.file)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("python3 with sqlite3 is needed for the table")?;
        let mut pipe = child.stdin.take().context("it has an input")?;
        pipe.write_all(input.as_bytes())?;
        drop(pipe);
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{SINK} {words:?} failed");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

pub(super) const PATH_B: Scenario = Scenario {
    name: "power-cut-path-b",
    story: "Consistency is preferred: the partition is offline until a broker that has everything returns; clients buffer, and nothing is lost.",
    guards: "R18, D2, P1: offline with its ISR remembered; what was acknowledged was on the disks of both that lost power",
    without: "an election outside the ISR loses the suffix (acked-is-read); that a follower reports only what it has flushed is shown by power-loss",
    fails_without: &[Mutation::UncleanWhateverThePolicy],
    checkers: &["acked-is-read", "monotone-end"],
    needs: CHAOS_BUILD,
    smoke: true,
    set: QUICK,
    run: |lab| Box::pin(path_b(lab)),
};

async fn path_b(lab: &Lab) -> Result<()> {
    let (base, more) = figures(lab);
    let configs = [
        ("min.insync.replicas", "2"),
        ("unclean.leader.election.enable", "false"),
    ];
    lab.topic(PATH_B_TOPIC, 1, 3, &configs).await?;
    until_dark(lab, PATH_B_TOPIC).await?;

    go_dark(lab, &RACK)?;
    let offline = lab
        .partition_until(PATH_B_TOPIC, "the partition is offline", |one| {
            one.leader.is_none()
        })
        .await?;
    ensure!(
        !offline.isr.contains(&3),
        "broker 3 is not taken for in sync: {offline:?}"
    );
    lab.until("health names it", async || {
        let health = lab.admin.health().await?;
        let mut samples = health.reasons.iter().flat_map(|reason| &reason.sample);
        Ok(!health.healthy && samples.any(|one| one.contains(PATH_B_TOPIC)))
    })
    .await?;
    let buffered = lab.write(Stream {
        count: 2_000,
        rate: Some(1_000),
        ..Stream::numbers("clients that buffer", PATH_B_TOPIC, AFTER, AFTER + 1)
    });
    lab.until("clients have buffered", async || {
        Ok(buffered.progress.sent() == 2_000)
    })
    .await?;
    ensure!(
        buffered.progress.acknowledged() == 0,
        "nobody may acknowledge"
    );
    lab.step("offline; 2,000 writes wait in the client");
    lab.faults.start_all(&RACK)?;
    let led = lab
        .partition_until(PATH_B_TOPIC, "somebody leads", |one| one.leader.is_some())
        .await?;
    ensure!(led.leader != Some(3) || led.isr.len() > 1, "{led:?}");
    buffered.end().await?;
    lab.ensure_no_failed_write()?;
    let first = offset_of(lab, AFTER)?;
    ensure!(first == (base + more) as i64, "{AFTER} is at {first}");
    lab.step(format!(
        "broker {:?} leads; the buffered writes follow at offset {first}",
        led.leader
    ));
    Ok(())
}

pub(super) const TWO_CONTROLLERS: Scenario = Scenario {
    name: "power-cut-two-controllers",
    story: "Two controllers die with the rack: nobody is elected, not even uncleanly, until the quorum returns.",
    guards: "CONTRACTS 1: no election without a quorum of controllers",
    without: "a lone controller that decides elects broker 3, and the controllers that return know nothing of it (metadata-digests)",
    fails_without: &[Mutation::OneControllerDecides],
    checkers: &["one-leader-per-epoch", "metadata-digests"],
    needs: CHAOS_BUILD,
    smoke: false,
    set: QUICK,
    run: |lab| Box::pin(two_controllers(lab)),
};

async fn two_controllers(lab: &Lab) -> Result<()> {
    let (base, more) = figures(lab);
    lab.topic(PATH_A_TOPIC, 1, 3, &AVAILABLE).await?;
    until_dark(lab, PATH_A_TOPIC).await?;
    lab.may_lose(PATH_A_TOPIC, 0, base as i64, (base + more) as i64);
    let rack = [RACK[0], RACK[1], RACK[2], Process::Controller(2)];
    go_dark(lab, &rack)?;
    // That something does not happen can only be watched for: more than a session and an election.
    let watch = Instant::now();
    while watch.elapsed() < Duration::from_secs(8) {
        if let Ok(one) = lab.admin.partition(PATH_A_TOPIC, 0).await {
            ensure!(
                one.leader != Some(3),
                "one controller of three elected broker 3"
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    lab.step("two controllers of three are gone: nobody was elected in 8 s");
    let returned = Instant::now();
    lab.faults.start(Process::Controller(2))?;
    lab.partition_until(PATH_A_TOPIC, "broker 3 leads", |one| one.leader == Some(3))
        .await?;
    lab.step(format!(
        "the quorum is back; broker 3 leads after {} ms",
        returned.elapsed().as_millis()
    ));
    goes_on(lab, 100).await?;
    lab.faults.start_all(&RACK)?;
    Ok(())
}
