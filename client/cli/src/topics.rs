//! `kuorum topics`: create, list, describe, delete, add partitions.
//! Law: what cannot be undone is asked for, unless --yes says so.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use kuorum_admin_api::durability::{ACKS_DURABILITY, survives};
use kuorum_admin_api::{
    AddPartitions, AddPartitionsReport, ConfigEntry, ConfigSource, CreateTopic, Epoch, EpochPage,
    Partition, PartitionPage, Topic,
};
use reqwest::Method;
use serde_json::json;

use crate::Global;
use crate::admin::{Admin, escaped};
use crate::failure::{Exit, Failure};
use crate::output::{Output, confirmed, counted, json, list, note, or_dash, say, table};
use crate::time;

/// Create, list, describe, delete and grow topics
#[derive(Debug, Subcommand)]
pub(crate) enum Topics {
    /// Create a topic
    Create(Create),
    /// List topics
    List(List),
    /// Show a topic's partitions and settings
    Describe(Describe),
    /// Show who led a partition in which epoch, from where, since when and why
    Epochs(Epochs),
    /// Delete topics with all their records
    Delete(Delete),
    /// Add partitions to a topic; keys will move
    AddPartitions(Add),
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// The topic's name
    name: String,
    /// How many partitions; the cluster's num.partitions by default
    #[arg(long)]
    partitions: Option<i32>,
    /// How many replicas; the cluster's default.replication.factor by default
    #[arg(long)]
    replication_factor: Option<i16>,
    /// A setting of the topic
    #[arg(long, value_name = "NAME=VALUE")]
    config: Vec<String>,
    /// Only check
    #[arg(long)]
    dry_run: bool,
    /// A topic that is there already is no mistake
    #[arg(long)]
    if_not_exists: bool,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Also the cluster's own topics
    #[arg(long)]
    internal: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Describe {
    /// The topic's name
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Epochs {
    /// The topic's name
    name: String,
    /// The partition
    #[arg(short, long)]
    partition: i32,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The topics' names
    #[arg(required = true)]
    names: Vec<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The topic's name
    name: String,
    /// How many partitions there are to be in all
    #[arg(long, visible_alias = "partitions")]
    count: i32,
    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl Topics {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let admin = Admin::new(global)?;
        match self {
            Self::Create(command) => command.run(&admin, global.output).await,
            Self::List(command) => command.run(&admin, global.output).await,
            Self::Describe(command) => command.run(&admin, global.output).await,
            Self::Epochs(command) => command.run(&admin, global.output).await,
            Self::Delete(command) => command.run(&admin).await,
            Self::AddPartitions(command) => command.run(&admin, global).await,
        }
    }
}

fn partitions_of(count: usize) -> String {
    counted(count as u64, "partition", "partitions")
}

/// `3 replicas`, or `2–3 replicas` where partitions differ.
fn replicas_of(topic: &Topic) -> String {
    match (topic.fewest_replicas, topic.most_replicas) {
        (Some(fewest), Some(most)) => format!("{fewest}–{most} replicas"),
        _ => counted(topic.replication_factor as u64, "replica", "replicas"),
    }
}

impl Create {
    async fn run(self, admin: &Admin, output: Output) -> Result<(), Failure> {
        let configs = self
            .config
            .iter()
            .map(|config| match config.split_once('=') {
                Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
                None => Err(Failure::usage(format!(
                    "config {config:?} is not NAME=VALUE"
                ))),
            })
            .collect::<Result<BTreeMap<_, _>, _>>()?;
        let set = configs.clone();
        let request = CreateTopic {
            name: self.name.clone(),
            partitions: self.partitions,
            replication_factor: self.replication_factor,
            configs,
            dry_run: self.dry_run,
        };
        let topic: Topic = match admin.send(Method::POST, "/topics", &request).await {
            Ok(topic) => topic,
            Err(failure)
                if self.if_not_exists
                    && failure.exit == Exit::Refused
                    && failure.message.starts_with("TOPIC_ALREADY_EXISTS") =>
            {
                note(&format!("topic {} is there already", self.name));
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        note_of_settings(&set, Some(topic.replication_factor));
        match output {
            Output::Json => json(&topic),
            Output::Table => say(&format!(
                "{} {}: {}, {} each{}",
                topic.name,
                if self.dry_run {
                    "could be created"
                } else {
                    "created"
                },
                partitions_of(topic.partitions),
                replicas_of(&topic),
                match self.dry_run {
                    true => String::new(),
                    false => format!(", id {}", topic.topic_id),
                },
            )),
        }
    }
}

impl List {
    async fn run(self, admin: &Admin, output: Output) -> Result<(), Failure> {
        let mut topics: Vec<Topic> = admin.list("/topics").await?;
        topics.retain(|topic| self.internal || !topic.internal);
        match output {
            Output::Json => json(&topics),
            Output::Table if topics.is_empty() => {
                note("there are no topics");
                Ok(())
            }
            Output::Table => table(
                &[
                    "TOPIC",
                    "PARTITIONS",
                    "REPLICAS",
                    "LEADERLESS",
                    "UNDER-REPLICATED",
                    "UNDER-MIN-ISR",
                ],
                topics.into_iter().map(|topic| {
                    vec![
                        topic.name,
                        topic.partitions.to_string(),
                        match (topic.fewest_replicas, topic.most_replicas) {
                            (Some(fewest), Some(most)) => format!("{fewest}–{most}"),
                            _ => topic.replication_factor.to_string(),
                        },
                        topic.leaderless.to_string(),
                        topic.under_replicated.to_string(),
                        topic.under_min_isr.to_string(),
                    ]
                }),
            ),
        }
    }
}

impl Describe {
    async fn run(self, admin: &Admin, output: Output) -> Result<(), Failure> {
        let path = format!("/topics/{}", escaped(&self.name));
        let topic: Topic = admin.get(&path).await?;
        let (partitions, unreachable) = partitions(admin, &path).await?;
        let configs: Vec<ConfigEntry> = admin.list(&format!("{path}/configs")).await?;
        let fewest = topic.fewest_replicas.unwrap_or(topic.replication_factor);
        match output {
            Output::Json => json(&json!({
                "topic": topic,
                "partitions": partitions,
                "configs": configs,
                "acknowledged_records_survive": surviving(&configs, fewest),
                "unreachable_brokers": unreachable,
            }))?,
            Output::Table => {
                say(&format!(
                    "{}  id {}  {}  {} each",
                    topic.name,
                    topic.topic_id,
                    partitions_of(topic.partitions),
                    replicas_of(&topic)
                ))?;
                for line in settings(&configs, fewest) {
                    say(&format!("  {line}"))?;
                }
                say("")?;
                table(
                    &[
                        "PARTITION",
                        "LEADER",
                        "EPOCH",
                        "REPLICAS",
                        "ISR",
                        "OUT-OF-SYNC",
                        "ELR",
                        "START",
                        "HIGH-WATERMARK",
                        "END",
                        "",
                    ],
                    partitions.iter().map(row),
                )?;
            }
        }
        warn(
            &configs,
            topic.most_replicas.unwrap_or(topic.replication_factor),
        );
        warn_of_refusals(&configs, &partitions);
        if unreachable.is_empty() {
            return Ok(());
        }
        let brokers = list(&unreachable);
        Err(Failure::partial(format!(
            "no answer from broker {brokers}: what only it knows is missing"
        )))
    }
}

impl Epochs {
    async fn run(self, admin: &Admin, output: Output) -> Result<(), Failure> {
        let list = format!(
            "/topics/{}/partitions/{}/epochs",
            escaped(&self.name),
            self.partition
        );
        let mut epochs: Vec<Epoch> = Vec::new();
        let mut token: Option<String> = None;
        let unreachable = loop {
            let path = match &token {
                None => list.clone(),
                Some(token) => format!("{list}?page_token={}", escaped(token)),
            };
            let page: EpochPage = admin.get(&path).await?;
            epochs.extend(page.items);
            token = page.next_page_token;
            if token.is_none() {
                break page.unreachable_brokers;
            }
        };
        match output {
            Output::Json => json(&epochs)?,
            Output::Table => table(
                &["EPOCH", "LEADER", "START", "END", "SINCE", "CAUSE", "EVENT"],
                epochs.into_iter().map(|epoch| {
                    vec![
                        epoch.epoch.to_string(),
                        or_dash(epoch.leader),
                        or_dash(epoch.start_offset),
                        or_dash(epoch.end_offset),
                        or_dash(epoch.since_ms.map(time::text)),
                        or_dash(epoch.cause.map(|cause| cause_of(cause, epoch.unclean))),
                        or_dash(epoch.event_id),
                    ]
                }),
            )?,
        }
        match unreachable.as_slice() {
            [] => Ok(()),
            brokers => Err(Failure::partial(format!(
                "no answer from broker {}: where the epochs begin is missing",
                crate::output::list(brokers)
            ))),
        }
    }
}

/// Why an epoch began, and that it was uncleanly, said once.
fn cause_of(cause: String, unclean: Option<bool>) -> String {
    match unclean {
        Some(true) if !cause.contains("unclean") => cause + ", unclean",
        _ => cause,
    }
}

/// Says what settings that were just accepted do not do; `replicas` is how many each partition has, if that is known.
pub(crate) fn note_of_settings(set: &BTreeMap<String, String>, replicas: Option<usize>) {
    for text in notes_of_settings(set, replicas) {
        note(&format!("note: {text}"));
    }
}

fn notes_of_settings(set: &BTreeMap<String, String>, replicas: Option<usize>) -> Vec<String> {
    let mut notes = Vec::new();
    for key in ["cleanup.policy", "log.cleanup.policy"] {
        if let Some(policy) = set.get(key)
            && policy.split(',').any(|one| one.trim() == "compact")
        {
            notes.push(format!(
                "{key}={policy} is accepted, but nothing is compacted yet: every record is kept, or goes by retention if \
                 delete is named too"
            ));
        }
    }
    let min_isr = set.get("min.insync.replicas");
    if let Some(min_isr) = min_isr.and_then(|value| value.trim().parse::<usize>().ok())
        && let Some(replicas) = replicas
    {
        notes.extend(capped(min_isr, replicas));
    }
    notes
}

/// What a minimum means that is more than there are replicas.
fn capped(min_isr: usize, replicas: usize) -> Option<String> {
    (min_isr > replicas).then(|| {
        let all = counted(replicas as u64, "replica", "replicas");
        format!(
            "min.insync.replicas={min_isr} on {all} means {replicas}: acks=all is refused as soon as one of them is out of sync"
        )
    })
}

fn row(partition: &Partition) -> Vec<String> {
    vec![
        partition.partition.to_string(),
        or_dash(partition.leader),
        partition.leader_epoch.to_string(),
        list(&partition.replicas),
        list(&partition.isr),
        list(&partition.osr),
        list(&partition.elr),
        or_dash(partition.log_start_offset),
        or_dash(partition.high_watermark),
        or_dash(partition.log_end_offset),
        remarks(partition).join("; "),
    ]
}

fn remarks(partition: &Partition) -> Vec<String> {
    let mut remarks = Vec::new();
    if !partition.adding_replicas.is_empty() {
        remarks.push(format!("adding {}", list(&partition.adding_replicas)));
    }
    if !partition.removing_replicas.is_empty() {
        remarks.push(format!("removing {}", list(&partition.removing_replicas)));
    }
    if partition.stale {
        remarks.push(match partition.known_ms_ago {
            Some(ms) => format!("as last known {} ago", time::span(ms)),
            None => "as last known".to_owned(),
        });
    }
    remarks
}

/// All pages of a topic's partitions, and the brokers that did not answer.
async fn partitions(admin: &Admin, topic: &str) -> Result<(Vec<Partition>, Vec<i32>), Failure> {
    let (mut items, mut unreachable) = (Vec::new(), Vec::new());
    let mut token: Option<String> = None;
    loop {
        let path = match &token {
            None => format!("{topic}/partitions"),
            Some(token) => format!("{topic}/partitions?page_token={}", escaped(token)),
        };
        let page: PartitionPage = admin.get(&path).await?;
        items.extend(page.items);
        unreachable.extend(page.unreachable_brokers);
        token = page.next_page_token;
        if token.is_none() {
            unreachable.sort_unstable();
            unreachable.dedup();
            return Ok((items, unreachable));
        }
    }
}

pub(crate) fn source(source: ConfigSource) -> &'static str {
    match source {
        ConfigSource::Topic => "topic",
        ConfigSource::Broker => "broker",
        ConfigSource::ClusterDefault => "cluster default",
        ConfigSource::ControllerFile => "controllers' file",
        ConfigSource::Default => "default",
    }
}

/// What decides over loss and availability is shown wherever it comes from; of the rest what somebody has set.
const ALWAYS_SHOWN: [&str; 3] = [
    ACKS_DURABILITY,
    "min.insync.replicas",
    "unclean.leader.election.enable",
];

/// The settings worth a line each, and what they mean for acknowledged records.
fn settings(configs: &[ConfigEntry], replicas: usize) -> Vec<String> {
    let line = |entry: &ConfigEntry| {
        let value = or_dash(entry.value.as_ref());
        format!("{} = {value}  ({})", entry.name, source(entry.source))
    };
    let always = ALWAYS_SHOWN
        .iter()
        .filter_map(|name| configs.iter().find(|entry| entry.name == *name))
        .map(line);
    let survival = surviving(configs, replicas)
        .map(|survives| format!("an acknowledged record (acks=all) survives {survives}"));
    let others = configs.iter().filter(|entry| {
        entry.source != ConfigSource::Default && !ALWAYS_SHOWN.contains(&entry.name.as_str())
    });
    always.chain(survival).chain(others.map(line)).collect()
}

/// What a record of this topic survives that acks=all has acknowledged, where a partition has as few as `replicas`.
fn surviving(configs: &[ConfigEntry], replicas: usize) -> Option<String> {
    let unclean = value(configs, "unclean.leader.election.enable") == Some("true");
    let min_isr = min_isr(configs).min(replicas);
    survives(value(configs, ACKS_DURABILITY)?, min_isr, unclean)
}

fn value<'a>(configs: &'a [ConfigEntry], name: &str) -> Option<&'a str> {
    let entry = configs.iter().find(|entry| entry.name == name)?;
    entry.value.as_deref()
}

fn min_isr(configs: &[ConfigEntry]) -> usize {
    value(configs, "min.insync.replicas")
        .and_then(|value| value.parse().ok())
        .unwrap_or(1)
}

/// Says where writes are refused although there is a leader.
fn warn_of_refusals(configs: &[ConfigEntry], partitions: &[Partition]) {
    let wanted = min_isr(configs);
    for partition in partitions {
        let min_isr = wanted.min(partition.replicas.len());
        if partition.leader.is_some() && partition.isr.len() < min_isr {
            note(&format!(
                "note: partition {} refuses acks=all (NOT_ENOUGH_REPLICAS): {} of {min_isr} replicas are in sync",
                partition.partition,
                partition.isr.len()
            ));
        }
    }
}

/// Says what two settings together do not do.
fn warn(configs: &[ConfigEntry], replicas: usize) {
    let wanted = min_isr(configs);
    if let Some(text) = capped(wanted, replicas) {
        note(&format!("note: {text}"));
    }
    let min_isr = wanted.min(replicas);
    if value(configs, "unclean.leader.election.enable") == Some("true") && min_isr > 1 {
        note(&format!(
            "note: an unclean election may give this topic a leader, but writes with acks=all still wait for \
             {min_isr} replicas in sync (min.insync.replicas)"
        ));
    }
}

impl Delete {
    async fn run(self, admin: &Admin) -> Result<(), Failure> {
        let names = self.names.join(", ");
        confirmed(
            &format!("All records of {names} will be deleted."),
            self.yes,
        )?;
        let mut failures = Vec::new();
        for name in &self.names {
            match admin.delete(&format!("/topics/{}", escaped(name))).await {
                Ok(()) => say(&format!("{name} deleted"))?,
                Err(failure) => {
                    note(&format!("{name}: {}", failure.message));
                    failures.push(failure.exit);
                }
            }
        }
        match failures.as_slice() {
            [] => Ok(()),
            [exit, ..] if failures.len() == self.names.len() => Err(Failure {
                exit: *exit,
                message: String::new(),
            }),
            _ => Err(Failure::partial("not all topics were deleted")),
        }
    }
}

impl Add {
    async fn run(self, admin: &Admin, global: &Global) -> Result<(), Failure> {
        let path = format!("/topics/{}/partitions", escaped(&self.name));
        let request = |dry_run: bool| AddPartitions {
            count: self.count,
            dry_run,
            confirm: (!dry_run).then(|| self.name.clone()),
        };
        let plan: AddPartitionsReport = admin.send(Method::POST, &path, &request(true)).await?;
        note(&format!(
            "{}: from {} to {}. {:.0} % of all keys will go to another partition than before and lose their \
             order with earlier records. Kuorum's own producer with a PinnedPartitioner of {} keeps every key in place.",
            plan.topic,
            partitions_of(plan.partitions_before.unsigned_abs() as usize),
            plan.partitions_after,
            plan.keys_moved * 100.0,
            counted(plan.partitions_before.unsigned_abs(), "bucket", "buckets"),
        ));
        let report = if self.dry_run {
            plan
        } else {
            confirmed("This cannot be undone.", self.yes)?;
            // A person may have thought about it for long: the time begins anew.
            Admin::new(global)?
                .send(Method::POST, &path, &request(false))
                .await?
        };
        match (global.output, report.dry_run) {
            (Output::Json, _) => json(&report),
            (Output::Table, true) => say("nothing was changed"),
            (Output::Table, false) => say(&format!(
                "{} has {}",
                report.topic,
                partitions_of(report.partitions_after.unsigned_abs() as usize)
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_do_not_do_what_they_say() {
        for (key, value, replicas, words) in [
            (
                "cleanup.policy",
                "compact",
                Some(3),
                Some("nothing is compacted"),
            ),
            (
                "cleanup.policy",
                "delete,compact",
                None,
                Some("nothing is compacted"),
            ),
            ("cleanup.policy", "delete", Some(3), None),
            (
                "min.insync.replicas",
                "5",
                Some(3),
                Some("on 3 replicas means 3"),
            ),
            ("min.insync.replicas", "3", Some(3), None),
            ("min.insync.replicas", "5", None, None),
        ] {
            let set = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            let notes = notes_of_settings(&set, replicas);
            match words {
                Some(words) => assert!(notes.len() == 1 && notes[0].contains(words), "{notes:?}"),
                None => assert!(notes.is_empty(), "{notes:?}"),
            }
        }
    }

    #[test]
    fn what_decides_over_loss_is_always_shown() {
        let entry = |name: &str, value: &str, source| ConfigEntry {
            name: name.to_owned(),
            value: Some(value.to_owned()),
            source,
            default: None,
            fallback: None,
            read_only: false,
            doc: String::new(),
        };
        let rows = [
            (
                "flushed",
                ConfigSource::Default,
                "(default)",
                "the power failing everywhere at once, and the loss of any one disk",
            ),
            (
                "page.cache",
                ConfigSource::Topic,
                "(topic)",
                "not the power failing everywhere at once",
            ),
        ];
        for (value, source, from, words) in rows {
            let configs = [
                entry("acks.durability", value, source),
                entry("min.insync.replicas", "2", ConfigSource::ControllerFile),
                entry("retention.ms", "604800000", ConfigSource::Default),
                entry("segment.bytes", "1048576", ConfigSource::Topic),
                entry(
                    "unclean.leader.election.enable",
                    "false",
                    ConfigSource::Default,
                ),
            ];
            let lines = settings(&configs, 3);
            assert_eq!(lines.len(), 5, "{lines:?}");
            assert_eq!(lines[0], format!("acks.durability = {value}  {from}"));
            assert_eq!(lines[1], "min.insync.replicas = 2  (controllers' file)");
            assert_eq!(
                lines[2],
                "unclean.leader.election.enable = false  (default)"
            );
            assert!(
                lines[3].contains("acks=all") && lines[3].contains(words),
                "{lines:?}"
            );
            assert_eq!(lines[4], "segment.bytes = 1048576  (topic)");
        }
    }

    #[test]
    fn an_unclean_cause_is_said_once() {
        for (cause, unclean, expected) in [
            ("unclean election", Some(true), "unclean election"),
            (
                "reassignment cancelled",
                Some(true),
                "reassignment cancelled, unclean",
            ),
            ("broker fenced", Some(false), "broker fenced"),
            ("broker fenced", None, "broker fenced"),
        ] {
            assert_eq!(cause_of(cause.to_owned(), unclean), expected);
        }
    }
}
