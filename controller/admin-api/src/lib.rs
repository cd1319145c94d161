//! The words of the HTTP admin API (base `/api/v1`): what is sent and what is answered, shared by controllers and clients.
//! Law: shapes only. A field is never renamed or removed, only added; offsets and sizes are JSON integers below 2^53.

mod broker;
mod cluster;
mod config;
pub mod durability;
mod election;
mod event;
mod page;
mod partition;
mod problem;
mod quorum;
mod reassignment;
mod salvage;
mod topic;

pub use broker::{Broker, BrokerState, ListenerAddress};
pub use cluster::{Health, HealthNote, HealthReason};
pub use config::{ConfigEntry, ConfigPatch, ConfigSource};
pub use election::{
    ElectionOutcome, ElectionReport, ElectionRequest, ElectionType, Loss, TopicPartition,
};
pub use event::{Epoch, EpochPage, Event, EventOrder, EventPage, EventQuery};
pub use page::{MAX_PAGE_SIZE, Page, PageQuery};
pub use partition::{Partition, PartitionPage, Replica, ReplicaState};
pub use problem::{FieldError, KafkaError, Problem};
pub use quorum::{Quorum, QuorumRole, QuorumVoter};
pub use reassignment::{
    PartitionAssignment, PlannedReassignment, Reassignment, ReassignmentPage, ReassignmentProgress,
    ReassignmentReport, ReassignmentRequest,
};
pub use salvage::{
    ReplaySalvage, ReplayState, SalvageDeleted, SalvageDetail, SalvageEpoch, SalvageHeader,
    SalvageItem, SalvagePage, SalvageRecord, SalvageRecords, SalvageReplay,
};
pub use topic::{AddPartitions, AddPartitionsReport, CreateTopic, Topic};

/// Where every path begins.
pub const BASE_PATH: &str = "/api/v1";
/// The media type of a [`Problem`] (RFC 9457).
pub const PROBLEM_JSON: &str = "application/problem+json";
/// Counts how often a request was passed on between controllers; one hop is allowed.
pub const HEADER_HOPS: &str = "x-forwarded-hops";
/// The offset of the metadata an answer was read from.
pub const HEADER_METADATA_OFFSET: &str = "kuorum-metadata-offset";
