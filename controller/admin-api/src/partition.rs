//! Partitions, with what their leaders say of their logs.
//! Law: what nobody could be asked about is `null`, and the page names the brokers that did not answer.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A page of partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartitionPage {
    pub items: Vec<Partition>,
    pub next_page_token: Option<String>,
    /// Brokers that were asked and did not answer in time.
    pub unreachable_brokers: Vec<i32>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Partition {
    pub topic: String,
    pub partition: i32,
    pub leader: Option<i32>,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    /// In assignment order; the first is the preferred leader. While the partition is being reassigned also those that are
    /// being added and removed.
    pub replicas: Vec<i32>,
    /// Replicas that a running reassignment adds.
    #[serde(default)]
    pub adding_replicas: Vec<i32>,
    /// Replicas that it takes away in the end.
    #[serde(default)]
    pub removing_replicas: Vec<i32>,
    /// In-sync replicas.
    pub isr: Vec<i32>,
    /// Out-of-sync replicas: assigned, but not in `isr`.
    pub osr: Vec<i32>,
    /// Eligible leader replicas (KIP-966).
    pub elr: Vec<i32>,
    /// While nobody leads: replicas that were eligible and came back without all they had, the last one last.
    #[serde(default)]
    pub last_known_elr: Vec<i32>,
    pub log_start_offset: Option<i64>,
    /// Consumers may read below this.
    pub high_watermark: Option<i64>,
    /// Consumers of committed transactions may read below this.
    pub last_stable_offset: Option<i64>,
    /// Exclusive.
    pub log_end_offset: Option<i64>,
    /// True if the offsets are the last ones known, because nobody leads the partition.
    pub stale: bool,
    /// With `stale`: how long ago the leader of then said so. What was written after that is in none of these offsets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_ms_ago: Option<u64>,
    pub replica_states: Vec<Replica>,
}

/// One replica of a partition, as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Replica {
    pub broker: i32,
    pub state: ReplicaState,
    /// Its log end offset (exclusive).
    pub leo: Option<i64>,
    /// How many records it lacks.
    pub lag: Option<i64>,
    pub last_fetch_ms_ago: Option<u64>,
    pub caught_up_ms_ago: Option<u64>,
}

/// What a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaState {
    Leader,
    InSync,
    OutOfSync,
    /// Its broker is fenced or not registered.
    Offline,
}
