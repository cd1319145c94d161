//! `kuorum reassignments`: replicas move to other brokers.
//! Law: `plan` changes nothing, and what it writes as JSON is what `run --file` reads.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use kuorum_admin_api::{
    PartitionAssignment, Reassignment, ReassignmentPage, ReassignmentReport, ReassignmentRequest,
};
use reqwest::Method;
use serde::Deserialize;

use crate::Global;
use crate::admin::Admin;
use crate::failure::Failure;
use crate::output::{Output, counted, json, list, note, or_dash, say, table};

/// Move replicas to other brokers
#[derive(Debug, Subcommand)]
pub(crate) enum Reassignments {
    /// Show where the replicas of topics would go; with -o json, as run --file reads it
    Plan(Targets),
    /// Move replicas
    Run(Run),
    /// Show what is on the move, and how far it is
    List,
    /// Take moves back
    Cancel(Cancel),
}

/// Which topics go where.
#[derive(Clone, Debug, Args)]
pub(crate) struct Targets {
    /// The topics, separated by commas
    #[arg(long, value_delimiter = ',', required = true)]
    topics: Vec<String>,
    /// The brokers that are to hold them, and no others
    #[arg(long, value_delimiter = ',', required = true)]
    brokers: Vec<i32>,
}

// The group names its members: one of the struct's own would have all of its arguments in it, also --throttle.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["topics", "file", "partition"])))]
pub(crate) struct Run {
    /// The topics to plan for, separated by commas, together with --brokers
    #[arg(long, value_delimiter = ',', requires = "brokers", conflicts_with_all = ["file", "partition"])]
    topics: Vec<String>,
    /// The brokers that are to hold them, and no others
    #[arg(long, value_delimiter = ',', requires = "topics")]
    brokers: Vec<i32>,
    /// A plan: what plan -o json wrote, or the JSON of kafka-reassign-partitions
    #[arg(long)]
    file: Option<PathBuf>,
    /// One partition and its replicas, the preferred leader first: payments:0=4,5,6; may be repeated
    #[arg(long, value_parser = assignment, conflicts_with = "file")]
    partition: Vec<PartitionAssignment>,
    /// Bytes a second that copying may cost each broker, in each direction
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..))]
    throttle: Option<i64>,
    /// Partitions may get more or fewer replicas than they have
    #[arg(long)]
    allow_replication_factor_change: bool,
    /// Say what would be moved, and move nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).args(["topic", "all"])))]
pub(crate) struct Cancel {
    /// The topic, together with --partition
    #[arg(long, requires = "partition")]
    topic: Option<String>,
    /// The partitions of the topic, separated by commas
    #[arg(long, value_delimiter = ',', requires = "topic")]
    partition: Vec<i32>,
    /// Everything that is on the move
    #[arg(long)]
    all: bool,
}

/// A plan's file. Kafka's has `version`, and `log_dirs` with each partition.
#[derive(Debug, Deserialize)]
struct Plan {
    #[serde(alias = "items")]
    partitions: Vec<PlanItem>,
}

#[derive(Debug, Deserialize)]
struct PlanItem {
    topic: String,
    partition: i32,
    replicas: Vec<i32>,
}

impl Reassignments {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let admin = Admin::new(global)?;
        match self {
            Self::Plan(targets) => {
                let request = ReassignmentRequest {
                    topics: Some(targets.topics),
                    brokers: Some(targets.brokers),
                    dry_run: true,
                    ..ReassignmentRequest::default()
                };
                ask(&admin, &request, global.output).await
            }
            Self::Run(run) => ask(&admin, &run.request()?, global.output).await,
            Self::List => {
                let (moving, throttle, unreachable) = moving(&admin).await?;
                match global.output {
                    Output::Json => json(&moving),
                    Output::Table => show(&moving, throttle, &unreachable),
                }
            }
            Self::Cancel(cancel) => cancel.run(&admin).await,
        }
    }
}

impl Run {
    fn request(self) -> Result<ReassignmentRequest, Failure> {
        let partitions = match &self.file {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    Failure::usage(format!("--file {}: {error}", path.display()))
                })?;
                let plan: Plan = serde_json::from_str(&text).map_err(|error| {
                    Failure::usage(format!("--file {}: {error}", path.display()))
                })?;
                let items = plan.partitions.into_iter().map(|item| PartitionAssignment {
                    topic: item.topic,
                    partition: item.partition,
                    replicas: item.replicas,
                });
                items.collect()
            }
            None => self.partition,
        };
        let planned = !self.topics.is_empty();
        Ok(ReassignmentRequest {
            partitions: (!planned).then_some(partitions),
            topics: planned.then_some(self.topics),
            brokers: planned.then_some(self.brokers),
            throttle: self.throttle,
            allow_replication_factor_change: self.allow_replication_factor_change,
            dry_run: self.dry_run,
        })
    }
}

impl Cancel {
    async fn run(self, admin: &Admin) -> Result<(), Failure> {
        let partitions: Vec<(String, i32)> = match self.topic {
            Some(topic) => {
                let partitions = self.partition.into_iter();
                partitions.map(|index| (topic.clone(), index)).collect()
            }
            None => {
                let (moving, _, _) = moving(admin).await?;
                let moving = moving.into_iter();
                moving.map(|one| (one.topic, one.partition)).collect()
            }
        };
        let mut failed = Vec::new();
        for (topic, index) in &partitions {
            match admin
                .delete(&format!("/reassignments/{topic}/{index}"))
                .await
            {
                Ok(()) => note(&format!("{topic}-{index} goes back to where it was")),
                Err(failure) => failed.push(failure),
            }
        }
        let (all, count) = (partitions.len(), failed.len());
        match failed.into_iter().next() {
            None => say(&counted(all as u64, "move taken back", "moves taken back")),
            Some(first) if count == all => Err(first),
            Some(first) => {
                first.report();
                Err(Failure::partial(format!(
                    "{} not taken back",
                    counted(count as u64, "move was", "moves were")
                )))
            }
        }
    }
}

async fn ask(admin: &Admin, request: &ReassignmentRequest, output: Output) -> Result<(), Failure> {
    let report: ReassignmentReport = admin.send(Method::POST, "/reassignments", request).await?;
    match output {
        Output::Json => json(&report)?,
        Output::Table => table(
            &[
                "TOPIC",
                "PARTITION",
                "BEFORE",
                "AFTER",
                "ADDING",
                "REMOVING",
                "",
            ],
            report.items.iter().map(|item| {
                vec![
                    item.topic.clone(),
                    item.partition.to_string(),
                    list(&item.before),
                    list(&item.replicas),
                    list(&item.adding),
                    list(&item.removing),
                    if item.under_way { "under way" } else { "" }.to_owned(),
                ]
            }),
        )?,
    }
    note(&told(&report));
    Ok(())
}

/// What was done, or would be, in a sentence.
fn told(report: &ReassignmentReport) -> String {
    let (under_way, others): (Vec<_>, Vec<_>) =
        report.items.iter().partition(|item| item.under_way);
    let under_way = under_way.len();
    let (new, here): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|item| !(item.adding.is_empty() && item.removing.is_empty()));
    let new = new.len();
    let there = here
        .iter()
        .filter(|item| item.before == item.replicas)
        .count();
    let reordered = here.len() - there;
    let of = |count: usize| counted(count as u64, "partition", "partitions");
    if report.items.len() == there {
        return "everything lies there already".to_owned();
    }
    let mut parts = Vec::new();
    match (new, report.dry_run) {
        (0, _) => {}
        (new, true) => parts.push(format!("{} would move", of(new))),
        (new, false) => parts.push(format!("{} on the move", of(new))),
    }
    match (reordered, report.dry_run) {
        (0, _) => {}
        (_, true) => parts.push(format!("{} would prefer another leader", of(reordered))),
        (_, false) => parts.push(format!("{} in a new order of preference", of(reordered))),
    }
    if under_way > 0 {
        parts.push(format!("{} under way already", of(under_way)));
    }
    if there > 0 {
        parts.push(format!("{} there already", of(there)));
    }
    if let Some(throttle) = report.throttle {
        let limit = format!("{throttle} bytes a second, broker and direction");
        parts.push(match report.dry_run {
            true => format!("the limit would be {limit}"),
            false => format!("the limit is {limit}"),
        });
    }
    match report.dry_run {
        true => parts.push("nothing was changed".to_owned()),
        false if new + under_way == 0 => {}
        false => parts.push("kuorum reassignments list shows how far".to_owned()),
    }
    parts.join("; ")
}

/// Everything on the move, the limit on it, and who did not say how far it is.
async fn moving(admin: &Admin) -> Result<(Vec<Reassignment>, Option<i64>, Vec<i32>), Failure> {
    let (mut items, mut unreachable) = (Vec::new(), Vec::new());
    let mut path = "/reassignments".to_owned();
    loop {
        let page: ReassignmentPage = admin.get(&path).await?;
        items.extend(page.items);
        unreachable.extend(page.unreachable_brokers);
        match page.next_page_token {
            // A token is hexadecimal digits.
            Some(token) => path = format!("/reassignments?page_token={token}"),
            None => {
                unreachable.sort_unstable();
                unreachable.dedup();
                return Ok((items, page.throttle, unreachable));
            }
        }
    }
}

fn show(
    moving: &[Reassignment],
    throttle: Option<i64>,
    unreachable: &[i32],
) -> Result<(), Failure> {
    if moving.is_empty() {
        return say("nothing is on the move");
    }
    table(
        &[
            "TOPIC",
            "PARTITION",
            "NOW",
            "TARGET",
            "ADDING",
            "IN SYNC",
            "LAG",
            "BYTES LEFT",
            "OF",
        ],
        moving.iter().flat_map(|one| {
            let line = |adding: String, in_sync: String, lag: String, left: String| {
                vec![
                    one.topic.clone(),
                    one.partition.to_string(),
                    list(&one.replicas),
                    list(&one.target),
                    adding,
                    in_sync,
                    lag,
                    left,
                    or_dash(one.size_bytes),
                ]
            };
            if one.progress.is_empty() {
                let dash = || "-".to_owned();
                return vec![line(dash(), dash(), dash(), dash())];
            }
            let progress = one.progress.iter();
            progress
                .map(|replica| {
                    let in_sync = if replica.in_sync { "yes" } else { "no" };
                    line(
                        replica.broker.to_string(),
                        in_sync.to_owned(),
                        or_dash(replica.lag),
                        or_dash(replica.bytes_remaining),
                    )
                })
                .collect()
        }),
    )?;
    if let Some(rate) = throttle {
        note(&format!(
            "limited to {rate} bytes a second, broker and direction"
        ));
    }
    if !unreachable.is_empty() {
        note(&format!("not reachable: broker {}", list(unreachable)));
    }
    Ok(())
}

/// `payments:0=4,5,6`.
fn assignment(text: &str) -> Result<PartitionAssignment, String> {
    let parsed = text.split_once('=').and_then(|(partition, replicas)| {
        let (topic, partition) = partition.rsplit_once(':')?;
        let replicas: Result<Vec<i32>, _> =
            replicas.split(',').map(|id| id.trim().parse()).collect();
        Some(PartitionAssignment {
            topic: topic.to_owned(),
            partition: partition.trim().parse().ok()?,
            replicas: replicas.ok()?,
        })
    });
    parsed.ok_or_else(|| "not of the form topic:partition=broker,broker,…".to_owned())
}

#[cfg(test)]
mod tests {
    use kuorum_admin_api::PlannedReassignment;

    use super::*;

    #[test]
    fn partitions_on_the_command_line() {
        let parsed = assignment("bank-transfers:3=4,5,6").expect("it is well formed");
        assert_eq!(
            (parsed.topic.as_str(), parsed.partition),
            ("bank-transfers", 3)
        );
        assert_eq!(parsed.replicas, [4, 5, 6]);
        for text in ["", "t", "t:1", "t=1", "t:x=1", "t:1=", "t:1=a", "t:1=1,,2"] {
            assert!(assignment(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_said_of_a_move() {
        let item = |under_way| PlannedReassignment {
            topic: "t".to_owned(),
            partition: 0,
            before: vec![1],
            replicas: vec![4],
            adding: vec![4],
            removing: vec![1],
            under_way,
        };
        for (items, throttle, dry_run, expected) in [
            (&[][..], None, false, "everything lies there already"),
            (
                &[false],
                None,
                false,
                "1 partition on the move; kuorum reassignments list shows how far",
            ),
            (
                &[true, true],
                Some(7),
                false,
                "2 partitions under way already; the limit is 7 bytes a second, broker and direction; kuorum reassignments \
                 list shows how far",
            ),
            (
                &[false, true],
                None,
                true,
                "1 partition would move; 1 partition under way already; nothing was changed",
            ),
        ] {
            let report = ReassignmentReport {
                items: items.iter().map(|under_way| item(*under_way)).collect(),
                throttle,
                dry_run,
            };
            assert_eq!(told(&report), expected);
        }
        // What moves nothing: where it lies, and only a new order.
        for (replicas, expected) in [
            (&[1, 2][..], "everything lies there already"),
            (&[2, 1], "1 partition in a new order of preference"),
        ] {
            let report = ReassignmentReport {
                items: vec![PlannedReassignment {
                    before: vec![1, 2],
                    replicas: replicas.to_vec(),
                    adding: Vec::new(),
                    removing: Vec::new(),
                    ..item(false)
                }],
                throttle: None,
                dry_run: false,
            };
            assert_eq!(told(&report), expected);
        }
    }

    #[test]
    fn plans_of_ours_and_of_kafka() {
        let kafka = r#"{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[4],"log_dirs":["any"]}]}"#;
        let ours = r#"{"items":[{"topic":"t","partition":0,"before":[1],"replicas":[4],"adding":[4],"removing":[1]}],
                       "throttle":null,"dry_run":true}"#;
        for text in [kafka, ours] {
            let plan: Plan = serde_json::from_str(text).expect("a plan");
            assert_eq!(plan.partitions[0].replicas, [4], "{text}");
        }
    }
}
