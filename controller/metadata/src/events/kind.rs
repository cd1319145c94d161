//! The kinds of events, each with what is special to it.
//! Law: a name, once told, means the same for ever.

use std::collections::BTreeMap;

use kuorum_protocol::{
    BrokerEpoch, BrokerId, ControllerEpoch, DirectoryId, IncarnationId, LeaderEpoch, Offset,
    PartitionEpoch, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::record::ConfigResource;

/// The kinds of events, each with what is special to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "details", rename_all = "snake_case")]
pub enum EventKind {
    /// Another controller took office.
    ControllerChanged {
        controller_id: u64,
        controller_epoch: ControllerEpoch,
        previous_controller_id: Option<u64>,
    },
    /// A feature's level was finalized.
    FeatureFinalized {
        name: String,
        level: i16,
        previous_level: i16,
    },
    /// A broker process introduced itself.
    BrokerRegistered {
        broker_epoch: BrokerEpoch,
        incarnation_id: IncarnationId,
        /// That of its predecessor, if it was known.
        previous_broker_epoch: Option<BrokerEpoch>,
        version: String,
    },
    /// A broker was forgotten.
    BrokerUnregistered { broker_epoch: BrokerEpoch },
    /// A broker leads nothing from here on, and leaves the ISRs of live leaders.
    BrokerFenced { broker_epoch: BrokerEpoch },
    /// A broker may lead again.
    BrokerUnfenced { broker_epoch: BrokerEpoch },
    /// A broker hands over its leaderships before it stops.
    ControlledShutdownStarted { broker_epoch: BrokerEpoch },
    /// An operator takes a broker's leaderships away and keeps them away.
    DrainStarted,
    /// A broker may lead again as the assignment has it.
    DrainEnded,
    /// Log directories of a broker have failed.
    LogDirectoriesOffline {
        broker_epoch: BrokerEpoch,
        offline: Vec<DirectoryId>,
        online: Vec<DirectoryId>,
    },
    /// A topic was created.
    TopicCreated {
        partitions: usize,
        replication_factor: usize,
        configs: BTreeMap<String, String>,
    },
    /// A topic was deleted.
    TopicDeleted { partitions: usize },
    /// A topic got more partitions.
    PartitionsAdded {
        partitions: usize,
        previous_partitions: usize,
    },
    /// A configuration value was set, or removed.
    ConfigChanged {
        resource: ConfigResource,
        name: String,
        value: Option<String>,
        previous_value: Option<String>,
    },
    /// A partition got another leader, or lost the one it had.
    LeaderChanged {
        leader: Option<BrokerId>,
        previous_leader: Option<BrokerId>,
        leader_epoch: LeaderEpoch,
        previous_leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        /// It may lack acknowledged records.
        unclean: bool,
    },
    /// The leader may lack acknowledged records: none of those known to have them could lead. Follows its `leader_changed`.
    UncleanElection {
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
        /// Who was in sync: what only they have is lost unless they come back and it is salvaged.
        lost_isr: Vec<BrokerId>,
        lost_elr: Vec<BrokerId>,
    },
    /// A leader elected uncleanly has put its log in order.
    LeaderRecovered { leader_epoch: LeaderEpoch },
    /// Replicas left the ISR.
    IsrShrunk(IsrChange),
    /// Replicas joined the ISR.
    IsrExpanded(IsrChange),
    /// Some replicas left the ISR and others joined it.
    IsrChanged(IsrChange),
    /// Other replicas than before are eligible to lead without being in the ISR (KIP-966).
    ElrChanged {
        elr: Vec<BrokerId>,
        previous_elr: Vec<BrokerId>,
    },
    /// Replicas begin to move.
    ReassignmentStarted {
        replicas: Vec<BrokerId>,
        adding: Vec<BrokerId>,
        removing: Vec<BrokerId>,
    },
    /// Replicas have moved.
    ReassignmentCompleted {
        replicas: Vec<BrokerId>,
        previous_replicas: Vec<BrokerId>,
    },
    /// Replicas will not move after all.
    ReassignmentCancelled {
        replicas: Vec<BrokerId>,
        previous_replicas: Vec<BrokerId>,
    },
    /// A follower cut off the end of its log; [`crate::record::BrokerEventKind::ReplicaTruncated`].
    ReplicaTruncated {
        from: Offset,
        to: Offset,
        records: i64,
        epoch: Option<LeaderEpoch>,
        leader_epoch: LeaderEpoch,
        unclean: bool,
        /// By the broker's clock.
        happened_at_ms: Timestamp,
    },
    /// A follower began its log anew; [`crate::record::BrokerEventKind::ReplicaRestarted`].
    ReplicaRestarted {
        from: Offset,
        to: Offset,
        leader_epoch: LeaderEpoch,
        /// By the broker's clock.
        happened_at_ms: Timestamp,
    },
    /// What an unclean election made a replica cut off was set aside first; [`crate::record::BrokerEventKind::SalvageSetAside`].
    SalvageSetAside {
        item: String,
        first_offset: Offset,
        end_offset: Offset,
        bytes: u64,
        complete: bool,
        /// By the broker's clock.
        happened_at_ms: Timestamp,
    },
    /// A salvaged item is gone; [`crate::record::BrokerEventKind::SalvageDeleted`].
    SalvageDeleted {
        item: String,
        records: Option<u64>,
        /// By the broker's clock.
        happened_at_ms: Timestamp,
    },
    /// A salvaged item is being replayed into a topic.
    SalvageReplayStarted { item: String },
    /// All records of a salvaged item are in that topic, once.
    SalvageReplayed { item: String, records: u64 },
    /// One entry had more events than an id can count.
    Gap { missing: usize },
}

/// The ISR before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsrChange {
    pub isr: Vec<BrokerId>,
    pub previous_isr: Vec<BrokerId>,
    pub elr: Vec<BrokerId>,
    pub leader: Option<BrokerId>,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
}

impl EventKind {
    /// Every kind's name, as in `type`.
    pub const NAMES: [&str; 31] = [
        "controller_changed",
        "feature_finalized",
        "broker_registered",
        "broker_unregistered",
        "broker_fenced",
        "broker_unfenced",
        "controlled_shutdown_started",
        "drain_started",
        "drain_ended",
        "log_directories_offline",
        "topic_created",
        "topic_deleted",
        "partitions_added",
        "config_changed",
        "leader_changed",
        "unclean_election",
        "leader_recovered",
        "isr_shrunk",
        "isr_expanded",
        "isr_changed",
        "elr_changed",
        "reassignment_started",
        "reassignment_completed",
        "reassignment_cancelled",
        "replica_truncated",
        "replica_restarted",
        "salvage_set_aside",
        "salvage_deleted",
        "salvage_replay_started",
        "salvage_replayed",
        "gap",
    ];

    /// The kind's name, as in `type`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ControllerChanged { .. } => "controller_changed",
            Self::FeatureFinalized { .. } => "feature_finalized",
            Self::BrokerRegistered { .. } => "broker_registered",
            Self::BrokerUnregistered { .. } => "broker_unregistered",
            Self::BrokerFenced { .. } => "broker_fenced",
            Self::BrokerUnfenced { .. } => "broker_unfenced",
            Self::ControlledShutdownStarted { .. } => "controlled_shutdown_started",
            Self::DrainStarted => "drain_started",
            Self::DrainEnded => "drain_ended",
            Self::LogDirectoriesOffline { .. } => "log_directories_offline",
            Self::TopicCreated { .. } => "topic_created",
            Self::TopicDeleted { .. } => "topic_deleted",
            Self::PartitionsAdded { .. } => "partitions_added",
            Self::ConfigChanged { .. } => "config_changed",
            Self::LeaderChanged { .. } => "leader_changed",
            Self::UncleanElection { .. } => "unclean_election",
            Self::LeaderRecovered { .. } => "leader_recovered",
            Self::IsrShrunk(_) => "isr_shrunk",
            Self::IsrExpanded(_) => "isr_expanded",
            Self::IsrChanged(_) => "isr_changed",
            Self::ElrChanged { .. } => "elr_changed",
            Self::ReassignmentStarted { .. } => "reassignment_started",
            Self::ReassignmentCompleted { .. } => "reassignment_completed",
            Self::ReassignmentCancelled { .. } => "reassignment_cancelled",
            Self::ReplicaTruncated { .. } => "replica_truncated",
            Self::ReplicaRestarted { .. } => "replica_restarted",
            Self::SalvageSetAside { .. } => "salvage_set_aside",
            Self::SalvageDeleted { .. } => "salvage_deleted",
            Self::SalvageReplayStarted { .. } => "salvage_replay_started",
            Self::SalvageReplayed { .. } => "salvage_replayed",
            Self::Gap { .. } => "gap",
        }
    }

    /// Whether a broker had a part in it beyond being what the event is about.
    pub(super) fn involves(&self, broker: BrokerId) -> bool {
        let differs =
            |one: &[BrokerId], other: &[BrokerId]| one.contains(&broker) != other.contains(&broker);
        match self {
            Self::LeaderChanged {
                leader,
                previous_leader,
                ..
            } => *leader == Some(broker) || *previous_leader == Some(broker),
            Self::UncleanElection {
                leader,
                lost_isr,
                lost_elr,
                ..
            } => *leader == broker || lost_isr.contains(&broker) || lost_elr.contains(&broker),
            Self::IsrShrunk(change) | Self::IsrExpanded(change) | Self::IsrChanged(change) => {
                differs(&change.isr, &change.previous_isr)
            }
            Self::ElrChanged { elr, previous_elr } => differs(elr, previous_elr),
            Self::ReassignmentStarted {
                adding, removing, ..
            } => adding.contains(&broker) || removing.contains(&broker),
            Self::ReassignmentCompleted {
                replicas,
                previous_replicas,
            }
            | Self::ReassignmentCancelled {
                replicas,
                previous_replicas,
            } => differs(replicas, previous_replicas),
            _ => false,
        }
    }
}
