//! A broker as the controllers know it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A registered broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Broker {
    pub id: i32,
    pub state: BrokerState,
    /// Leadership is kept away from it until `POST /brokers/{id}/undrain`, whatever its state.
    #[serde(default)]
    pub draining: bool,
    /// The metadata offset of its registration (KIP-631).
    pub broker_epoch: i64,
    /// Which run of the process this is.
    pub incarnation_id: String,
    pub rack: Option<String>,
    pub listeners: Vec<ListenerAddress>,
    /// Where it serves health and metrics: host:port.
    pub http: String,
    /// Its online log directories.
    pub directories: Vec<String>,
    /// The version of its software.
    pub version: String,
    /// How many partitions it leads.
    pub leaders: usize,
    /// How many replicas are assigned to it.
    pub replicas: usize,
    /// How many of these are in sync.
    pub in_sync: usize,
}

/// What a broker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BrokerState {
    /// Registered and serving.
    Active,
    /// Serving as a follower: leadership was taken from it, and only comes to it where nobody else could lead.
    Draining,
    /// Registered, but not heard from, or not caught up yet: it leads nothing.
    Fenced,
    /// Handing over its leaderships before it stops.
    ShuttingDown,
}

/// An address of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListenerAddress {
    /// `CLIENT` or `INTERNAL`.
    pub name: String,
    pub host: String,
    pub port: u16,
    pub security_protocol: String,
}
