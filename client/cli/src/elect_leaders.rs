//! `kuorum elect-leaders`: preferred leaders, or unclean ones.
//! Law: an unclean election may lose acknowledged records, so it is asked for partition by partition.

use clap::{Args, ValueEnum};
use kuorum_admin_api::{ElectionReport, ElectionRequest, ElectionType, TopicPartition};
use reqwest::Method;

use crate::Global;
use crate::admin::Admin;
use crate::failure::Failure;
use crate::output::{Output, confirmed, counted, json, note, or_dash, table};

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
                let topic = self.topic.clone();
                confirmed(
                    &format!(
                        "Records of {} that no live replica has will be lost, acknowledged or not.",
                        topic.as_deref().unwrap_or_default()
                    ),
                    self.yes,
                )?;
                (ElectionType::Unclean, topic)
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
