//! What brokers and controllers say to each other over HTTP: the shapes of the requests and answers.
//! Law: shapes only. Every request carries the headers below; a mismatch is refused before the body is read.

use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{
    BrokerEpoch, BrokerId, DirectoryId, IncarnationId, LeaderEpoch, PartitionEpoch, PartitionIndex,
    ProducerId, Timestamp, TopicId,
};
use serde::{Deserialize, Serialize};

use crate::record::{BrokerEventKind, LeaderRecoveryState, Listener, MetadataRecord};

/// The cluster the sender belongs to.
pub const HEADER_CLUSTER_ID: &str = "kuorum-cluster-id";

/// Whether a text may be a cluster's id: letters, digits, `-` and `_`, at most 64 of them, as it goes into a header and into
/// `meta.properties`.
pub fn is_cluster_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.len() <= 64 && text.bytes().all(is_plain)
}

/// Who sends: `broker-1`, `controller-2`.
pub const HEADER_FROM: &str = "kuorum-from";
/// Who is meant, in the same form.
pub const HEADER_TO: &str = "kuorum-to";
/// The version of these shapes: `1`.
pub const HEADER_VERSION: &str = "kuorum-rpc-version";
/// The version this build speaks.
pub const VERSION: &str = "1";

/// POST, `RegisterRequest` → `RegisterReply`.
pub const PATH_REGISTER: &str = "/rpc/v1/brokers/register";
/// POST, `HeartbeatRequest` → `HeartbeatReply`.
pub const PATH_HEARTBEAT: &str = "/rpc/v1/brokers/heartbeat";
/// POST, `SessionRequest` → an endless body, a newline a second: its end is how a death is noticed.
pub const PATH_SESSION: &str = "/rpc/v1/brokers/session";
/// POST, `SessionRequest` → `()`: the session will be closed on purpose.
pub const PATH_GOODBYE: &str = "/rpc/v1/brokers/goodbye";
/// POST, `AlterPartitionRequest` → `AlterPartitionReply`.
pub const PATH_ALTER_PARTITION: &str = "/rpc/v1/partitions/alter";
/// POST, `AssignDirectoriesRequest` → `()`.
pub const PATH_ASSIGN_DIRECTORIES: &str = "/rpc/v1/partitions/directories";
/// POST, `AllocateProducerIdsRequest` → `AllocateProducerIdsReply`.
pub const PATH_PRODUCER_IDS: &str = "/rpc/v1/producer-ids/allocate";
/// POST, `ReportEventsRequest` → `()`: what happened on a broker and is to be remembered.
pub const PATH_REPORT_EVENTS: &str = "/rpc/v1/brokers/events";
/// POST, `control::Command` → `control::CommandReply`: what a client asked a broker and a controller must decide.
pub const PATH_COMMAND: &str = "/rpc/v1/command";
/// GET `?from=OFFSET` → lines of `FeedLine`, from any controller, without end.
pub const PATH_FEED: &str = "/rpc/v1/feed";

/// Every answer's body: `{"ok": …}` or `{"err": …}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply<T> {
    Ok(T),
    Err(RpcError),
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// The Kafka error code that says it best, 41 NOT_CONTROLLER among them.
    pub code: i16,
    pub message: String,
    /// With NOT_CONTROLLER: who is active, if known.
    #[serde(default)]
    pub active_controller: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterRequest {
    pub broker_id: BrokerId,
    pub incarnation_id: IncarnationId,
    pub listeners: Vec<Listener>,
    pub http: String,
    pub rack: Option<String>,
    pub directories: Vec<DirectoryId>,
    pub version: String,
    /// Replicas that are not intact, the only ones listed: they leave ISR and ELR.
    pub not_intact: Vec<(TopicId, PartitionIndex)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterReply {
    pub broker_epoch: BrokerEpoch,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatRequest {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
    /// How far the broker's image has come.
    pub metadata_offset: i64,
    pub want_fence: bool,
    pub want_shut_down: bool,
    pub offline_directories: Vec<DirectoryId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    pub fenced: bool,
    pub caught_up: bool,
    /// The controlled shutdown is complete: go.
    pub may_shut_down: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRequest {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
}

/// A leader asks to change ISRs (KIP-497, KIP-903).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterPartitionRequest {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
    pub partitions: Vec<AlterPartition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterPartition {
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    /// Each member with the broker epoch the leader heard from it, −1 if it never did.
    pub new_isr: Vec<(BrokerId, BrokerEpoch)>,
    pub leader_recovery_state: LeaderRecoveryState,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterPartitionReply {
    pub partitions: Vec<AlterPartitionResult>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterPartitionResult {
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    /// 0, or why not.
    pub error: i16,
    pub leader: Option<BrokerId>,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    pub isr: Vec<BrokerId>,
    /// Eligible leader replicas (KIP-966): while there are any, the high watermark must not move.
    #[serde(default)]
    pub elr: Vec<BrokerId>,
    pub leader_recovery_state: LeaderRecoveryState,
}

/// A broker tells in which directories it has placed its replicas (KIP-858).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignDirectoriesRequest {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
    pub assignments: Vec<(TopicId, PartitionIndex, DirectoryId)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocateProducerIdsRequest {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocateProducerIdsReply {
    pub first: ProducerId,
    pub count: i32,
}

/// The most events in one report.
pub const REPORTED_EVENTS_MOST: usize = 256;

/// A broker reports what happened on it, in the order of the numbers. Sent again until it is acknowledged; what is recorded
/// already is passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportEventsRequest {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
    /// At most [`REPORTED_EVENTS_MOST`].
    pub events: Vec<ReportedEvent>,
}

/// One thing that happened on a broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedEvent {
    /// From 1, rising by one with everything that this process reports.
    pub number: u64,
    /// When it happened, by the broker's clock.
    pub at: Timestamp,
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    pub what: BrokerEventKind,
}

/// One line of the feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedLine {
    /// The reader is too far behind the log: start over from these records, which are the whole image as of `offset`.
    Snapshot {
        offset: i64,
        records: Vec<MetadataRecord>,
    },
    /// One committed entry that was applied. Entries come in order; offsets of skipped or internal entries are missing.
    Entry {
        offset: i64,
        records: Vec<MetadataRecord>,
    },
    /// Nothing new; the log is committed up to here. Sent at least every second.
    Idle { offset: i64 },
}

impl RpcError {
    /// A refusal with its sentence.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
            active_controller: None,
        }
    }

    /// The refusal of a controller that is not, or no longer, in office.
    pub fn not_controller(active_controller: Option<u64>) -> Self {
        Self {
            code: ErrorCode::NotController.into(),
            message: "this controller is not the active one".to_owned(),
            active_controller,
        }
    }
}
