//! The quorum of controllers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The quorum as the active controller sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quorum {
    pub cluster_id: String,
    /// The active controller.
    pub leader: Option<u64>,
    /// The epoch recorded in the metadata log; it rises with every controller that takes office.
    pub controller_epoch: i32,
    /// The Raft term.
    pub term: u64,
    /// How far the log is committed and applied here (exclusive).
    pub high_watermark: i64,
    /// Where the log ends here (exclusive).
    pub log_end_offset: i64,
    /// The first offset still in the log here.
    pub log_start_offset: i64,
    /// How long ago a majority answered the leader.
    pub quorum_acked_ms_ago: Option<u64>,
    pub voters: Vec<QuorumVoter>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuorumVoter {
    pub id: u64,
    pub role: QuorumRole,
    /// Whether it answers the controller that answers here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reachable: Option<bool>,
    /// The quorum listener: host:port.
    pub address: String,
    pub directory_id: String,
    /// Where its log ends (exclusive), as far as the leader knows; `null` if it never answered.
    pub log_end_offset: Option<i64>,
    /// How many records it lacks.
    pub lag: Option<i64>,
}

/// What a controller is in the quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuorumRole {
    Leader,
    Follower,
}
