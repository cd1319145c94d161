//! `kuorum elect-leaders`: preferred leaders, or unclean ones.
//! Law: an unclean election may lose acknowledged records, so it is asked for partition by partition.

use clap::{Args, ValueEnum};
use kuorum_admin_api::{
    ElectionReport, ElectionRequest, ElectionType, Partition, PartitionPage, ReplicaState,
    TopicPartition,
};
use reqwest::Method;

use crate::Global;
use crate::admin::{Admin, escaped};
use crate::failure::Failure;
use crate::output::{Output, confirmed, counted, json, list, note, or_dash, table};
use crate::time;

/// Elect preferred leaders, or unclean ones
#[derive(Debug, Args)]
pub(crate) struct ElectLeaders {
    /// preferred: the first replica, if it is in sync; unclean: any live replica of a leaderless partition
    #[arg(long = "type", value_enum)]
    kind: Kind,
    /// The topic, together with --partition; preferred leaders are elected for all topics by default
    #[arg(long, requires = "partition")]
    topic: Option<String>,
    /// The partitions of the topic, separated by commas
    #[arg(long, value_delimiter = ',', requires = "topic")]
    partition: Vec<i32>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Preferred,
    Unclean,
}

impl ElectLeaders {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let partitions = self.topic.as_ref().map(|topic| {
            let partitions = self.partition.iter();
            partitions
                .map(|p| TopicPartition {
                    topic: topic.clone(),
                    partition: *p,
                })
                .collect()
        });
        let (kind, confirm) = match self.kind {
            Kind::Preferred => (ElectionType::Preferred, None),
            Kind::Unclean if partitions.is_none() => {
                return Err(Failure::usage(
                    "an unclean election needs --topic and --partition",
                ));
            }
            Kind::Unclean => {
                let topic = self.topic.clone().unwrap_or_default();
                if !self.yes {
                    let admin = Admin::new(global)?;
                    let mut leaderless = false;
                    for index in &self.partition {
                        let path = format!("/topics/{}/partitions/{index}", escaped(&topic));
                        let page: PartitionPage = admin.get(&path).await?;
                        for partition in &page.items {
                            note(&at_stake(partition));
                            leaderless |= partition.leader.is_none();
                        }
                    }
                    if !leaderless {
                        note("Nothing was changed, and nothing is lost.");
                        return match global.output {
                            Output::Json => json(&ElectionReport { items: Vec::new() }),
                            Output::Table => Ok(()),
                        };
                    }
                }
                confirmed(
                    &format!(
                        "Records of {topic} that the elected replica does not have will be lost, acknowledged or not."
                    ),
                    self.yes,
                )?;
                (ElectionType::Unclean, Some(topic))
            }
        };
        let request = ElectionRequest {
            kind,
            partitions,
            confirm,
        };
        let admin = Admin::new(global)?;
        let report: ElectionReport = admin.send(Method::POST, "/elections", &request).await?;
        match global.output {
            Output::Json => json(&report)?,
            Output::Table if report.items.is_empty() => {
                note(
                    "nothing to elect: every partition is led by its preferred leader, or that one is out of sync",
                );
            }
            Output::Table => table(
                &[
                    "TOPIC",
                    "PARTITION",
                    "ELECTED",
                    "LEADER",
                    "EPOCH",
                    "WHY NOT",
                    "",
                ],
                report.items.iter().map(|item| {
                    vec![
                        item.topic.clone(),
                        item.partition.to_string(),
                        if item.elected { "yes" } else { "no" }.to_owned(),
                        or_dash(item.leader),
                        or_dash(item.leader_epoch),
                        or_dash(item.error.as_ref()),
                        item.message.clone().unwrap_or_default(),
                    ]
                }),
            )?,
        }
        for item in &report.items {
            if let Some(loss) = &item.loss {
                note(&format!(
                    "{}-{}: {}",
                    item.topic, item.partition, loss.summary
                ));
            }
        }
        let not_needed = |error: &str| error == "ELECTION_NOT_NEEDED";
        if self.kind == Kind::Unclean {
            let mut led = report.items.iter();
            if led.all(|item| item.error.as_deref().is_some_and(not_needed)) {
                note(
                    "nobody was elected and nothing is lost: an unclean election is only for partitions without a leader",
                );
            }
        }
        let failed = report
            .items
            .iter()
            .filter(|item| {
                item.error
                    .as_deref()
                    .is_some_and(|error| !not_needed(error))
            })
            .count();
        match failed {
            0 => Ok(()),
            failed if failed == report.items.len() => {
                Err(Failure::refused("no leader was elected"))
            }
            failed => Err(Failure::partial(format!(
                "{} not elected",
                counted(failed as u64, "leader was", "leaders were")
            ))),
        }
    }
}

/// What an unclean election of this partition would cost, as far as anybody knows.
fn at_stake(partition: &Partition) -> String {
    let name = format!("{}-{}", partition.topic, partition.partition);
    if let Some(leader) = partition.leader {
        return format!("{name}: broker {leader} leads it, so nobody is elected.");
    }
    // As the controllers would choose: the last to have had everything, or else in assignment order.
    let alive = |id: &&i32| {
        let mut states = partition.replica_states.iter();
        states.any(|replica| replica.broker == **id && replica.state != ReplicaState::Offline)
    };
    let heir = partition
        .last_known_elr
        .iter()
        .rev()
        .find(alive)
        .or_else(|| partition.replicas.iter().find(alive));
    let Some(heir) = heir else {
        return format!("{name}: no replica is alive, so nobody can be elected.");
    };
    let complete: Vec<i32> = [&partition.isr[..], &partition.elr[..]].concat();
    let instead = match complete.is_empty() {
        true => String::new(),
        false => format!(
            " Nothing is lost if broker {} comes back instead.",
            list(&complete).replace(',', " or ")
        ),
    };
    let (Some(end), Some(ms_ago)) = (partition.log_end_offset, partition.known_ms_ago) else {
        return format!(
            "{name}: broker {heir} would lead. How much is lost is not known: nobody had asked the leader before.{instead}"
        );
    };
    let age = time::span(ms_ago);
    let watermark = or_dash(partition.high_watermark);
    let had = partition
        .replica_states
        .iter()
        .find(|replica| replica.broker == *heir)
        .and_then(|replica| replica.leo);
    let lost = match had {
        Some(had) => {
            let below = |end: i64| end.saturating_sub(had).max(0);
            let acknowledged = partition.high_watermark.map_or(0, below);
            format!(
                "the log of broker {heir}, which would lead, ended at {had}: at least {} would be lost, {acknowledged} of them below the \
                 high watermark, unless it fetched them since",
                counted(below(end).unsigned_abs(), "record", "records")
            )
        }
        None => format!(
            "what broker {heir}, which would lead, has of that is not known: what it lacks is lost"
        ),
    };
    format!(
        "{name}: as known {age} ago, the log ended at {end} (high watermark {watermark}); {lost}. Whatever was written after \
         that is lost too.{instead}"
    )
}

#[cfg(test)]
mod tests {
    use kuorum_admin_api::Replica;

    use super::*;

    fn partition(states: &[(i32, ReplicaState, Option<i64>)]) -> Partition {
        Partition {
            topic: "t".to_owned(),
            partition: 0,
            leader: None,
            leader_epoch: 3,
            partition_epoch: 7,
            replicas: states.iter().map(|(broker, _, _)| *broker).collect(),
            adding_replicas: Vec::new(),
            removing_replicas: Vec::new(),
            isr: vec![1],
            osr: vec![2, 3],
            elr: vec![2],
            last_known_elr: Vec::new(),
            log_start_offset: Some(0),
            high_watermark: Some(90),
            last_stable_offset: None,
            log_end_offset: Some(100),
            stale: true,
            known_ms_ago: Some(43_000),
            replica_states: states
                .iter()
                .map(|(broker, state, leo)| Replica {
                    broker: *broker,
                    state: *state,
                    leo: *leo,
                    lag: None,
                    last_fetch_ms_ago: None,
                    caught_up_ms_ago: None,
                })
                .collect(),
        }
    }

    #[test]
    fn what_is_at_stake_is_said_before_it_is_asked() {
        use ReplicaState::{Offline, OutOfSync};
        let known = partition(&[
            (1, Offline, None),
            (2, Offline, None),
            (3, OutOfSync, Some(80)),
        ]);
        let rows = [
            (
                known.clone(),
                &[
                    "as known 43 s ago",
                    "which would lead, ended at 80",
                    "at least 20 records",
                    "10 of them below",
                    "after that is lost too",
                    "if broker 1 or 2 comes back",
                ][..],
            ),
            (
                partition(&[(1, Offline, None), (3, OutOfSync, None)]),
                &["ended at 100", "has of that is not known"][..],
            ),
            (
                Partition {
                    log_end_offset: None,
                    known_ms_ago: None,
                    ..known.clone()
                },
                &["broker 3 would lead", "nobody had asked"][..],
            ),
            (
                partition(&[(1, Offline, None), (2, Offline, None)]),
                &["no replica is alive"][..],
            ),
            (
                Partition {
                    leader: Some(2),
                    ..known
                },
                &["broker 2 leads it"][..],
            ),
        ];
        for (partition, parts) in rows {
            let text = at_stake(&partition);
            for part in parts {
                assert!(text.contains(part), "{part:?} is missing in {text}");
            }
        }
    }
}
