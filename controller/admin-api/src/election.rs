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
    /// An unclean election may lose acknowledged records: the topic's name, repeated, says that this is understood.
    #[serde(default)]
    pub confirm: Option<String>,
}

/// Which leader to elect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ElectionType {
    /// The first replica of the assignment, if it is in sync.
    Preferred,
    /// Any live replica, for partitions of one topic that have no leader.
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
    /// Who leads now, if this election changed that.
    #[serde(default)]
    pub leader: Option<i32>,
    #[serde(default)]
    pub leader_epoch: Option<i32>,
    /// After an unclean election: what is known to be lost.
    #[serde(default)]
    pub loss: Option<Loss>,
}

/// What an unclean election cost, as far as the controllers know. What the leader before had written since it was last
/// asked is not in these numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Loss {
    /// Where the log of the new leader ended when it was elected: its first record gets this offset.
    pub elected_end_offset: Option<i64>,
    /// Where the log of the leader before ended when it was last asked.
    pub known_end_offset: Option<i64>,
    /// Where its high watermark was then: records below were visible, and acknowledged with acks=all.
    pub known_high_watermark: Option<i64>,
    /// How long ago that was.
    pub known_ms_ago: Option<u64>,
    /// Records known to have been written that the new leader lacks.
    pub records: Option<i64>,
    /// How many of them were below the known high watermark.
    pub acknowledged: Option<i64>,
    /// The same in words.
    pub summary: String,
}
