//! Moving replicas to other brokers (KIP-455).
//! Law: what is asked for is decided for all its partitions or for none.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /reassignments`: either `partitions`, or `topics` and `brokers`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReassignmentRequest {
    /// Each partition with the replicas it is to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<Vec<PartitionAssignment>>,
    /// Topics all of whose partitions are to lie on `brokers`; where exactly is planned here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topics: Option<Vec<String>>,
    /// The brokers to plan for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brokers: Option<Vec<i32>>,
    /// Bytes a second that copying may cost each broker, in each direction; gone when the moves have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<i64>,
    /// Whether a partition may get more or fewer replicas than it has.
    #[serde(default)]
    pub allow_replication_factor_change: bool,
    /// Say what would be moved, and move nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// One partition and the replicas it is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartitionAssignment {
    pub topic: String,
    pub partition: i32,
    /// The preferred leader first.
    pub replicas: Vec<i32>,
}

/// What is moved, or would be; 202 when it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReassignmentReport {
    pub items: Vec<PlannedReassignment>,
    pub throttle: Option<i64>,
    pub dry_run: bool,
}

/// One partition of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedReassignment {
    pub topic: String,
    pub partition: i32,
    /// As it was when it was asked for.
    pub before: Vec<i32>,
    /// As it is to be.
    pub replicas: Vec<i32>,
    pub adding: Vec<i32>,
    pub removing: Vec<i32>,
    /// This very move was under way before it was asked for: `before` is what it goes back to if it is cancelled.
    #[serde(default)]
    pub under_way: bool,
}

/// A page of running reassignments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReassignmentPage {
    pub items: Vec<Reassignment>,
    pub next_page_token: Option<String>,
    /// Bytes a second that copying may cost each broker, if that is limited for the whole cluster.
    pub throttle: Option<i64>,
    /// Brokers that were asked and did not answer in time.
    pub unreachable_brokers: Vec<i32>,
}

/// One running reassignment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reassignment {
    pub topic: String,
    pub partition: i32,
    pub leader: Option<i32>,
    /// All that hold the partition now, those that leave among them.
    pub replicas: Vec<i32>,
    /// As it is to be.
    pub target: Vec<i32>,
    /// What it goes back to if it is cancelled.
    pub original: Vec<i32>,
    pub adding: Vec<i32>,
    pub removing: Vec<i32>,
    pub isr: Vec<i32>,
    /// Bytes of the leader's log; `null` when it could not be asked.
    pub size_bytes: Option<u64>,
    /// How far each added replica has come.
    pub progress: Vec<ReassignmentProgress>,
}

/// How far one added replica has come; what its leader could not be asked is `null`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReassignmentProgress {
    pub broker: i32,
    pub in_sync: bool,
    /// Its log end offset (exclusive).
    pub log_end_offset: Option<i64>,
    /// How many records it lacks.
    pub lag: Option<i64>,
    /// About how many bytes it lacks.
    pub bytes_remaining: Option<u64>,
}
