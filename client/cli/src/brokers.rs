//! `kuorum brokers`: who is there, and who is to lead nothing for a while.
//! Law: draining moves leadership within the ISR and nothing else; it lasts until it is ended. A broker is forgotten only
//! when somebody says so.

use clap::Subcommand;
use kuorum_admin_api::{Broker, BrokerState};
use reqwest::Method;
use serde_json::json;

use crate::Global;
use crate::admin::Admin;
use crate::failure::Failure;
use crate::output::{Output, confirmed, counted, json, note, or_dash, say, table};

/// List, describe, drain and unregister brokers
#[derive(Debug, Subcommand)]
pub(crate) enum Brokers {
    /// List brokers
    List,
    /// Show one broker
    Describe {
        /// Its id
        id: i32,
    },
    /// Take leadership from a broker and keep it away, through restarts, until it is undrained
    Drain {
        /// Its id
        id: i32,
    },
    /// Let a broker lead again
    Undrain {
        /// Its id
        id: i32,
    },
    /// Forget a broker that holds no replicas any more and is stopped
    Unregister {
        /// Its id
        id: i32,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

impl Brokers {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let admin = Admin::new(global)?;
        match self {
            Self::List => {
                let brokers = admin.list("/brokers").await?;
                match global.output {
                    Output::Json => json(&brokers),
                    Output::Table => show(&brokers),
                }
            }
            Self::Describe { id } => {
                let broker: Broker = admin.get(&format!("/brokers/{id}")).await?;
                match global.output {
                    Output::Json => json(&broker),
                    Output::Table => describe(&broker),
                }
            }
            Self::Drain { id } => set_draining(&admin, global, id, "drain").await,
            Self::Undrain { id } => set_draining(&admin, global, id, "undrain").await,
            Self::Unregister { id, yes } => {
                confirmed(
                    &format!("The cluster will forget broker {id}, until it registers again."),
                    yes,
                )?;
                // A person may have thought about it for long: the time begins anew.
                let admin = Admin::new(global)?;
                admin.delete(&format!("/brokers/{id}")).await?;
                match global.output {
                    Output::Json => json(&json!({ "unregistered": id })),
                    Output::Table => say(&format!("broker {id} is unregistered")),
                }
            }
        }
    }
}

async fn set_draining(
    admin: &Admin,
    global: &Global,
    id: i32,
    action: &str,
) -> Result<(), Failure> {
    let path = format!("/brokers/{id}/{action}");
    let broker: Broker = admin.send(Method::POST, &path, &json!({})).await?;
    match (global.output, broker.draining) {
        (Output::Json, _) => json(&broker)?,
        (Output::Table, true) => say(&format!(
            "broker {id} is draining; it leads {}",
            broker.leaders
        ))?,
        (Output::Table, false) => say(&format!("broker {id} may lead again"))?,
    }
    match (broker.draining, broker.leaders) {
        (true, 1..) => note(&format!(
            "no other replica in sync could lead {}: they move when one can",
            counted(broker.leaders as u64, "partition", "partitions")
        )),
        (false, _) => note(
            "leadership comes back with the next automatic rebalance, or now with \
             kuorum elect-leaders --type preferred",
        ),
        _ => {}
    }
    Ok(())
}

/// Writes brokers as a table.
pub(crate) fn show(brokers: &[Broker]) -> Result<(), Failure> {
    table(
        &[
            "BROKER", "STATE", "CLIENTS", "RACK", "LEADS", "REPLICAS", "IN-SYNC", "VERSION",
        ],
        brokers.iter().map(|broker| {
            let client = broker
                .listeners
                .iter()
                .find(|listener| listener.name == "CLIENT");
            vec![
                broker.id.to_string(),
                state(broker.state).to_owned(),
                or_dash(client.map(|listener| format!("{}:{}", listener.host, listener.port))),
                or_dash(broker.rack.as_ref()),
                broker.leaders.to_string(),
                broker.replicas.to_string(),
                broker.in_sync.to_string(),
                broker.version.clone(),
            ]
        }),
    )
}

fn state(state: BrokerState) -> &'static str {
    match state {
        BrokerState::Active => "active",
        BrokerState::Draining => "draining",
        BrokerState::Fenced => "fenced",
        BrokerState::ShuttingDown => "shutting down",
    }
}

fn describe(broker: &Broker) -> Result<(), Failure> {
    say(&format!("broker {}  {}", broker.id, state(broker.state)))?;
    say(&format!("  epoch        {}", broker.broker_epoch))?;
    say(&format!("  incarnation  {}", broker.incarnation_id))?;
    say(&format!("  version      {}", broker.version))?;
    say(&format!("  rack         {}", or_dash(broker.rack.as_ref())))?;
    say(&format!("  http         {}", broker.http))?;
    for listener in &broker.listeners {
        say(&format!(
            "  listener     {}  {}:{}  {}",
            listener.name, listener.host, listener.port, listener.security_protocol
        ))?;
    }
    for directory in &broker.directories {
        say(&format!("  directory    {directory}"))?;
    }
    say(&format!(
        "  partitions   leads {}, holds {}, in sync {}",
        broker.leaders, broker.replicas, broker.in_sync
    ))
}
