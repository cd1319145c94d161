//! Electing leaders on demand.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /elections`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ElectionRequest {
    #[serde(rename = "type")]
    pub kind: ElectionType,
    /// Which partitions; all of the cluster's when left out (preferred elections only).
    #[serde(default)]
    pub partitions: Option<Vec<TopicPartition>>,
    /// An unclean election loses acknowledged records: `"unclean"` says that this is understood.
    #[serde(default)]
    pub confirm: Option<String>,
}

/// Which leader to elect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ElectionType {
    /// The first replica of the assignment, if it is in sync.
    Preferred,
    /// Any live replica, for a partition that has no leader.
    Unclean,
}

/// A partition by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicPartition {
    pub topic: String,
    pub partition: i32,
}

/// What became of each partition; the status is 200 if any was elected or needed none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ElectionReport {
    pub items: Vec<ElectionOutcome>,
}

/// What became of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ElectionOutcome {
    pub topic: String,
    pub partition: i32,
    pub elected: bool,
    /// `null`, or Kafka's name of why not: `ELECTION_NOT_NEEDED`.
    pub error: Option<String>,
    pub message: Option<String>,
}
