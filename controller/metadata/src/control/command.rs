//! Everything a client may ask of the controller, and the answers, as they travel from a broker or the admin API.
//! Law: shapes only. −1 means "the default" where Kafka's messages say so.

use std::collections::BTreeMap;

use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerId, PartitionIndex, TopicId};
use serde::{Deserialize, Serialize};

use super::Refusal;
use crate::record::ConfigResource;

/// What a client asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    CreateTopics(CreateTopics),
    DeleteTopics(DeleteTopics),
    CreatePartitions(CreatePartitions),
    /// IncrementalAlterConfigs: each operation changes one value.
    AlterConfigs(AlterConfigs),
    /// AlterConfigs as it used to be: the values given replace all the resource has.
    ReplaceConfigs(ReplaceConfigs),
    ElectLeaders(ElectLeaders),
    /// AlterPartitionReassignments: begins, replaces or cancels moves of replicas.
    Reassign(Reassign),
    UnregisterBroker {
        broker_id: BrokerId,
    },
    /// Takes leadership from a broker and keeps it away, or ends that.
    DrainBroker {
        broker_id: BrokerId,
        draining: bool,
    },
}

/// The answer, of the same name as its command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandReply {
    /// One result per topic asked for, in that order.
    CreateTopics(Vec<CreateTopicResult>),
    DeleteTopics(Vec<DeleteTopicResult>),
    CreatePartitions(Vec<CreatePartitionsResult>),
    /// The answer to both ways of altering.
    AlterConfigs(Vec<AlterConfigsResult>),
    ElectLeaders(Vec<ElectLeadersResult>),
    /// One result per partition asked for, in that order.
    Reassign(Vec<ReassignResult>),
    UnregisterBroker(Outcome),
    DrainBroker(Outcome),
}

/// Whether one thing that was asked for succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Kafka's error code, 0 for success.
    pub error: i16,
    /// With an error: what was wrong.
    pub message: Option<String>,
}

impl Outcome {
    /// Success.
    pub fn ok() -> Self {
        Self::default()
    }

    /// Whether it succeeded.
    pub fn is_ok(&self) -> bool {
        self.error == 0
    }

    /// The error as Kafka names it.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::from(self.error)
    }
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        Self {
            error: refusal.code.into(),
            message: Some(refusal.message),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTopics {
    pub topics: Vec<NewTopic>,
    /// Say what would happen, and do nothing.
    pub validate_only: bool,
}

/// A topic as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTopic {
    pub name: String,
    /// −1 for `num.partitions`, and with assignments.
    pub num_partitions: i32,
    /// −1 for `default.replication.factor`, and with assignments.
    pub replication_factor: i16,
    /// The replicas of each partition, if the client wants to choose; empty otherwise.
    pub assignments: Vec<(PartitionIndex, Vec<BrokerId>)>,
    /// Overrides. `None` asks for the default.
    pub configs: Vec<(String, Option<String>)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTopicResult {
    pub name: String,
    /// Zero when it failed or was only validated.
    pub topic_id: TopicId,
    pub outcome: Outcome,
    /// −1 when it failed.
    pub num_partitions: i32,
    /// −1 when it failed.
    pub replication_factor: i16,
    /// The overrides the topic begins with.
    pub configs: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteTopics {
    pub topics: Vec<TopicSelector>,
}

/// A topic by name or by id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopicSelector {
    Name(String),
    Id(TopicId),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteTopicResult {
    /// `None` when asked by an id nobody knows.
    pub name: Option<String>,
    /// Zero when asked by a name nobody knows.
    pub topic_id: TopicId,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatePartitions {
    pub topics: Vec<NewPartitions>,
    pub validate_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewPartitions {
    pub name: String,
    /// How many the topic shall have in the end.
    pub count: i32,
    /// The replicas of each new partition, if the client wants to choose.
    pub assignments: Option<Vec<Vec<BrokerId>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatePartitionsResult {
    pub name: String,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterConfigs {
    pub resources: Vec<AlterConfigsResource>,
    pub validate_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterConfigsResource {
    pub resource: ConfigResource,
    pub ops: Vec<ConfigOp>,
}

/// One change of one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigOp {
    pub name: String,
    pub kind: ConfigOpKind,
    /// What to set, append or subtract; `None` with Delete.
    pub value: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigOpKind {
    /// 0 on the wire.
    Set,
    /// 1 on the wire: back to the default.
    Delete,
    /// 2 on the wire, lists only.
    Append,
    /// 3 on the wire, lists only.
    Subtract,
}

impl ConfigOpKind {
    /// The kind that the wire's number means.
    pub fn from_wire(kind: i8) -> Option<Self> {
        match kind {
            0 => Some(Self::Set),
            1 => Some(Self::Delete),
            2 => Some(Self::Append),
            3 => Some(Self::Subtract),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplaceConfigs {
    pub resources: Vec<ReplaceConfigsResource>,
    pub validate_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplaceConfigsResource {
    pub resource: ConfigResource,
    pub values: Vec<(String, Option<String>)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterConfigsResult {
    pub resource: ConfigResource,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectLeaders {
    pub election: ElectionType,
    /// `None` for every partition; those that need nothing are then left out of the answer.
    pub partitions: Option<Vec<(String, PartitionIndex)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ElectionType {
    /// 0 on the wire: give leadership back to the first replica of the assignment.
    Preferred,
    /// 1 on the wire: accept a leader that may lack records, where there is none.
    Unclean,
}

impl ElectionType {
    /// The type that the wire's number means.
    pub fn from_wire(kind: i8) -> Option<Self> {
        match kind {
            0 => Some(Self::Preferred),
            1 => Some(Self::Unclean),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectLeadersResult {
    pub topic: String,
    pub partition: PartitionIndex,
    pub outcome: Outcome,
}

/// Replicas are to be moved (KIP-455).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reassign {
    pub partitions: Vec<ReassignPartition>,
    /// Whether a partition may get more or fewer replicas than it has.
    pub allow_replication_factor_change: bool,
    /// Whether one refusal refuses all.
    pub all_or_nothing: bool,
    /// Bytes a second that the replicas which are added may cost each broker; as it is when `None`. It ends with the moves.
    pub throttle: Option<i64>,
    /// Say what would happen, and do nothing.
    pub validate_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReassignPartition {
    pub topic: String,
    pub partition: PartitionIndex,
    /// The replicas as they are to be, the preferred leader first; `None` cancels what is running.
    pub replicas: Option<Vec<BrokerId>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReassignResult {
    pub topic: String,
    pub partition: PartitionIndex,
    pub outcome: Outcome,
}
