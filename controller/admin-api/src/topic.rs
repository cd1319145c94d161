//! Topics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A topic in a list: what the metadata knows, nothing that must be asked of brokers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Topic {
    pub name: String,
    pub topic_id: String,
    pub partitions: usize,
    /// The replicas of its first partition.
    pub replication_factor: usize,
    /// The replicas of the partition that has most, where they have different numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_replicas: Option<usize>,
    /// The replicas of the partition that has fewest, where they have different numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fewest_replicas: Option<usize>,
    /// Whether it belongs to the cluster itself.
    pub internal: bool,
    /// Partitions without a leader.
    pub leaderless: usize,
    /// Partitions with a replica out of sync.
    pub under_replicated: usize,
    /// Partitions with fewer in-sync replicas than `min.insync.replicas`.
    pub under_min_isr: usize,
    /// Partitions that are being reassigned.
    #[serde(default)]
    pub reassigning: usize,
}

/// `POST /topics`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTopic {
    pub name: String,
    /// `num.partitions` when left out.
    #[serde(default)]
    pub partitions: Option<i32>,
    /// `default.replication.factor` when left out.
    #[serde(default)]
    pub replication_factor: Option<i16>,
    #[serde(default)]
    pub configs: BTreeMap<String, String>,
    /// Only check, create nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// `POST /topics/{t}/partitions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddPartitions {
    /// How many partitions there shall be in all.
    pub count: i32,
    /// Only say what would happen.
    #[serde(default)]
    pub dry_run: bool,
    /// The topic's name, repeated: keys will move to other partitions, and their order with them.
    #[serde(default)]
    pub confirm: Option<String>,
}

/// What adding partitions does, or would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AddPartitionsReport {
    pub topic: String,
    pub partitions_before: i32,
    pub partitions_after: i32,
    /// The share of keys, from 0 to 1, whose next record goes to another partition than the last one.
    pub keys_moved: f64,
    pub dry_run: bool,
}
