//! `kuorum status`: is everything well, and if not, what to do.
//! Law: reads only; what is not well gives exit code 4.

use clap::Args;
use kuorum_admin_api::{Broker, Health, Quorum, QuorumRole};
use serde_json::json;

use crate::Global;
use crate::admin::Admin;
use crate::brokers;
use crate::failure::{Exit, Failure};
use crate::output::{Output, json, or_dash, say, table};

/// Show the cluster's health, its controllers and its brokers
#[derive(Debug, Args)]
pub(crate) struct Status {}

impl Status {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let admin = Admin::new(global)?;
        let health: Health = admin.get("/cluster/health").await?;
        let quorum: Quorum = admin.get("/quorum").await?;
        let brokers: Vec<Broker> = admin.list("/brokers").await?;
        match global.output {
            Output::Json => {
                json(&json!({ "health": health, "quorum": quorum, "brokers": brokers }))?;
            }
            Output::Table => show(&health, &quorum, &brokers)?,
        }
        match health.healthy {
            true => Ok(()),
            false => Err(Failure {
                exit: Exit::Partial,
                message: String::new(),
            }),
        }
    }
}

fn show(health: &Health, quorum: &Quorum, brokers: &[Broker]) -> Result<(), Failure> {
    let word = if health.healthy {
        "healthy"
    } else {
        "not healthy"
    };
    say(&format!("cluster {}: {word}", quorum.cluster_id))?;
    for reason in &health.reasons {
        say(&format!(
            "\n{} ({}): {}",
            reason.code, reason.count, reason.cause
        ))?;
        if !reason.sample.is_empty() {
            say(&format!("  {}", reason.sample.join(", ")))?;
        }
        say(&format!("  {}", reason.cure))?;
    }
    say("")?;
    table(
        &["CONTROLLER", "ROLE", "ADDRESS", "END", "LAG"],
        quorum.voters.iter().map(|voter| {
            let role = match voter.role {
                QuorumRole::Leader => "active",
                QuorumRole::Follower => "follower",
            };
            vec![
                voter.id.to_string(),
                role.to_owned(),
                voter.address.clone(),
                or_dash(voter.log_end_offset),
                or_dash(voter.lag),
            ]
        }),
    )?;
    say("")?;
    brokers::show(brokers)
}
