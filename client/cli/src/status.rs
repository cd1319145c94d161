//! `kuorum status`: is everything well, and if not, what to do.
//! Law: reads only; what is not well gives exit code 4.

use clap::Args;
use kuorum_admin_api::{Broker, Health, Page, Quorum, QuorumRole};
use serde_json::json;

use crate::Global;
use crate::admin::Admin;
use crate::brokers;
use crate::failure::{Exit, Failure};
use crate::output::{Output, json, note, or_dash, say, table};

/// Show the cluster's health, its controllers and its brokers
#[derive(Debug, Args)]
pub(crate) struct Status {}

impl Status {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let admin = Admin::new(global)?;
        let health: Health = admin.get("/cluster/health").await?;
        let quorum: Quorum = admin.get("/quorum").await?;
        // Without an active controller nobody lists brokers; what is known all the same is shown.
        let brokers: Result<Vec<Broker>, Failure> = match lacks_a_controller(&health) {
            true => admin
                .get_now::<Page<Broker>>("/brokers")
                .await
                .map(|page| page.items),
            false => admin.list("/brokers").await,
        };
        match global.output {
            Output::Json => {
                let brokers = brokers.as_ref().ok();
                json(&json!({ "health": health, "quorum": quorum, "brokers": brokers }))?;
            }
            Output::Table => show(&health, &quorum, brokers.as_deref().ok())?,
        }
        if let Err(why) = brokers {
            note(&format!("the brokers are not known: {}", why.message));
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

fn lacks_a_controller(health: &Health) -> bool {
    let mut reasons = health.reasons.iter();
    reasons.any(|reason| reason.code == "NO_ACTIVE_CONTROLLER")
}

/// The first of so many things, and how many more there are.
fn sample(shown: &[String], count: usize) -> String {
    let more = count.saturating_sub(shown.len());
    let shown = shown.join(", ");
    match more {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn show(health: &Health, quorum: &Quorum, brokers: Option<&[Broker]>) -> Result<(), Failure> {
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
            say(&format!("  {}", sample(&reason.sample, reason.count)))?;
        }
        say(&format!("  {}", reason.cure))?;
    }
    for chosen in &health.notes {
        say(&format!("\nnote: {}", chosen.meaning))?;
        say(&format!("  {}", sample(&chosen.sample, chosen.count)))?;
    }
    say("")?;
    table(
        &["CONTROLLER", "ROLE", "ADDRESS", "END", "LAG"],
        quorum.voters.iter().map(|voter| {
            let silent = voter.reachable == Some(false);
            let role = match voter.role {
                _ if silent => "unreachable",
                QuorumRole::Leader => "active",
                QuorumRole::Follower => "follower",
            };
            vec![
                voter.id.to_string(),
                role.to_owned(),
                voter.address.clone(),
                or_dash(voter.log_end_offset),
                // How far it was when it last answered says nothing of now.
                or_dash(voter.lag.filter(|_| !silent)),
            ]
        }),
    )?;
    match brokers {
        Some(brokers) => {
            say("")?;
            brokers::show(brokers)
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shown_is_counted() {
        let shown = ["a".to_owned(), "b".to_owned()];
        assert_eq!(sample(&shown, 2), "a, b");
        assert_eq!(sample(&shown, 5), "a, b and 3 more");
    }
}
