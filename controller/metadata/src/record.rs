//! The language of the metadata log: every change the cluster has ever agreed on is one of these records.
//! Law: a record states what was decided, never how to decide; applying one needs nothing but the image before it.
//! Names are those of KRaft (KIP-631, KIP-858, KIP-966).

use kuorum_protocol::{
    BrokerEpoch, BrokerId, ControllerEpoch, DirectoryId, IncarnationId, LeaderEpoch, Offset,
    PartitionEpoch, PartitionIndex, ProducerId, Timestamp, TopicId,
};
use serde::{Deserialize, Serialize};

/// One decision's worth of records: one entry of the metadata log. All of it is applied, or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordBatch {
    /// The active controller that decided; a batch of a controller that has left office is skipped.
    pub controller_epoch: ControllerEpoch,
    /// When, by that controller's clock; `NONE` where nobody noted it. Only for people: two controllers' clocks may differ,
    /// so a later batch may carry an earlier time.
    #[serde(default = "unknown_time")]
    pub decided_at: Timestamp,
    /// What was decided, in order.
    pub records: Vec<MetadataRecord>,
}

fn unknown_time() -> Timestamp {
    Timestamp::NONE
}

/// One change of the cluster's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum MetadataRecord {
    /// Finalizes a feature's level; record 0 sets `metadata.version`.
    FeatureLevel { name: String, level: i16 },
    /// A controller takes office. The only record accepted under a new epoch.
    ControllerEpoch {
        epoch: ControllerEpoch,
        controller_id: u64,
    },
    /// A broker process introduces itself. It starts fenced.
    RegisterBroker(RegisterBroker),
    /// A broker is forgotten.
    UnregisterBroker {
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
    },
    /// A registered broker is fenced, unfenced, or begins its controlled shutdown.
    BrokerRegistrationChange {
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fenced: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_controlled_shutdown: Option<bool>,
        /// The directories that are online, when that changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        online_directories: Option<Vec<DirectoryId>>,
        /// Why, for people and events; as that of a [`PartitionChange`].
        #[serde(default, skip_serializing_if = "String::is_empty")]
        cause: String,
    },
    /// A broker begins or ends to be drained of leadership; it stays so through its restarts.
    BrokerDrain { broker_id: BrokerId, draining: bool },
    /// A topic is created; its partitions follow in the same batch.
    Topic { name: String, topic_id: TopicId },
    /// A topic and all its partitions are deleted.
    RemoveTopic { topic_id: TopicId },
    /// A partition is created.
    Partition(PartitionRecord),
    /// A partition changes. A field left out stays as it was.
    PartitionChange(PartitionChange),
    /// A configuration value is set, or with `None` removed.
    Config {
        resource: ConfigResource,
        name: String,
        value: Option<String>,
    },
    /// A block of producer ids was handed out; the next block begins here.
    ProducerIds {
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        next_producer_id: ProducerId,
    },
    /// Something that happened on a broker and is remembered as an event. Of the image it changes only how far the broker's
    /// reports have come.
    BrokerEvent(BrokerEvent),
    /// A salvaged item is being replayed into a topic, by a producer id that is kept for this pair alone. Written again as
    /// the replay goes on.
    SalvageReplay {
        /// The item's id.
        item: String,
        /// The topic it goes into.
        target: TopicId,
        partition: PartitionIndex,
        producer_id: ProducerId,
        /// So many records the item had when the replay was asked for.
        #[serde(default)]
        records: u64,
        /// So many records are known to be in the target.
        acknowledged: u64,
        /// It was given up, and goes on when it is asked for again.
        #[serde(default)]
        stopped: bool,
    },
    /// A replay is over: whoever asks for it again gets this result.
    SalvageReplayed {
        item: String,
        target: TopicId,
        /// How many records were replayed.
        records: u64,
        at: Timestamp,
    },
}

/// What a configuration value belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigResource {
    /// One topic's override.
    Topic(String),
    /// The default of the whole cluster, changed live (`--entity-default`).
    ClusterDefault,
    /// One broker's dynamic value.
    Broker(BrokerId),
    /// What the active controller's file said when it took office: the value recorded in the metadata log.
    ControllerFile,
}

/// An address of a broker, by listener name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// `CLIENT` or `INTERNAL`.
    pub name: String,
    /// The advertised host.
    pub host: String,
    /// The advertised port.
    pub port: u16,
    /// `PLAINTEXT` until there is another.
    pub security_protocol: String,
}

/// A broker process as it introduced itself. Its broker epoch is the offset at which this record is applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterBroker {
    pub broker_id: BrokerId,
    pub incarnation_id: IncarnationId,
    /// `None` when decided (the log knows it, the decider cannot), stated in snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_epoch: Option<BrokerEpoch>,
    pub listeners: Vec<Listener>,
    /// Where the broker serves `/livez`, `/readyz`, `/metrics`: host:port.
    pub http: String,
    pub rack: Option<String>,
    /// Online log directories.
    pub directories: Vec<DirectoryId>,
    pub fenced: bool,
    pub in_controlled_shutdown: bool,
    /// The software's version, for people.
    pub version: String,
    /// The number of its last [`BrokerEvent`]; stated in snapshots, none when it registers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub last_report: u64,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands a reference to it"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a broker has to report. Reported again it is passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerEvent {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
    /// Numbers the reports of one incarnation, from 1; one that is not higher than the last is a repetition.
    pub number: u64,
    /// When it happened, by the broker's clock.
    pub at: Timestamp,
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    pub what: BrokerEventKind,
}

/// The kinds of things that happen on brokers. Each has its namesake in [`crate::events::EventKind`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BrokerEventKind {
    /// A follower cut off the end of its log, because its leader does not have it.
    ReplicaTruncated {
        /// The log ended here (exclusive).
        from: Offset,
        /// It ends here now (exclusive).
        to: Offset,
        /// The newest epoch that was cut into.
        epoch: Option<LeaderEpoch>,
        /// The leader's epoch for whose sake it was cut.
        leader_epoch: LeaderEpoch,
        /// Committed records may be among what was cut: it was written before the partition's last unclean election.
        unclean: bool,
    },
    /// A follower that was too far behind dropped its log and begins anew where its leader's log begins.
    ReplicaRestarted {
        /// The log ended here (exclusive).
        from: Offset,
        /// It begins here now.
        to: Offset,
        /// The leader's epoch for whose sake it begins anew.
        leader_epoch: LeaderEpoch,
    },
    /// What an unclean election made a replica cut off was set aside first.
    SalvageSetAside {
        /// The item's id.
        item: String,
        first_offset: Offset,
        /// Exclusive.
        end_offset: Offset,
        /// Bytes of its batches.
        bytes: u64,
        /// Whether it holds all that was cut.
        complete: bool,
    },
    /// A salvaged item is gone.
    SalvageDeleted {
        /// The item's id.
        item: String,
        /// How many records it held, where they had been counted.
        records: Option<u64>,
        /// The bound it went for, or that somebody asked for it.
        reason: String,
    },
}

/// Whether a leader may still be putting its log in order after an unclean election (KIP-704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaderRecoveryState {
    /// In order.
    #[default]
    Recovered,
    /// Elected uncleanly; the ISR may not grow yet.
    Recovering,
}

/// A partition at its creation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRecord {
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    /// In assignment order; the first is the preferred leader.
    pub replicas: Vec<BrokerId>,
    /// The directory of each replica, in the order of `replicas`; zero while the broker has not chosen.
    pub directories: Vec<DirectoryId>,
    pub isr: Vec<BrokerId>,
    /// `None` when nobody leads.
    pub leader: Option<BrokerId>,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    #[serde(default)]
    pub leader_recovery_state: LeaderRecoveryState,
    /// Eligible leader replicas (KIP-966).
    #[serde(default)]
    pub elr: Vec<BrokerId>,
    #[serde(default)]
    pub last_known_elr: Vec<BrokerId>,
    /// The leader epoch of the last unclean election.
    #[serde(default)]
    pub last_unclean_epoch: Option<LeaderEpoch>,
    #[serde(default)]
    pub adding_replicas: Vec<BrokerId>,
    #[serde(default)]
    pub removing_replicas: Vec<BrokerId>,
    /// While a reassignment runs: the replicas to go back to if it is cancelled, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub original_replicas: Vec<BrokerId>,
}

impl PartitionRecord {
    /// A partition as it begins: every replica is in sync, the first one leads, and no directory is known.
    pub fn of(topic_id: TopicId, partition: PartitionIndex, replicas: Vec<BrokerId>) -> Self {
        Self {
            topic_id,
            partition,
            directories: vec![DirectoryId::ZERO; replicas.len()],
            isr: replicas.clone(),
            leader: replicas.first().copied(),
            replicas,
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
            leader_recovery_state: LeaderRecoveryState::Recovered,
            elr: Vec::new(),
            last_known_elr: Vec::new(),
            last_unclean_epoch: None,
            adding_replicas: Vec::new(),
            removing_replicas: Vec::new(),
            original_replicas: Vec::new(),
        }
    }
}

/// A change of a partition; every one raises the partition epoch by one, and `leader_epoch` is stated when it rises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionChange {
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    /// The epoch after this change.
    pub partition_epoch: PartitionEpoch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_epoch: Option<LeaderEpoch>,
    /// `Some(None)` takes the leader away.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nullable")]
    pub leader: Option<Option<BrokerId>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isr: Option<Vec<BrokerId>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Vec<BrokerId>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directories: Option<Vec<DirectoryId>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_recovery_state: Option<LeaderRecoveryState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elr: Option<Vec<BrokerId>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_known_elr: Option<Vec<BrokerId>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_unclean_epoch: Option<LeaderEpoch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adding_replicas: Option<Vec<BrokerId>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removing_replicas: Option<Vec<BrokerId>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_replicas: Option<Vec<BrokerId>>,
    /// Why, for people and events: `broker fenced`, `isr shrink`, `preferred election` …
    #[serde(default)]
    pub cause: String,
}

impl PartitionChange {
    /// A change of nothing but the epoch, to be filled in.
    pub fn of(
        topic_id: TopicId,
        partition: PartitionIndex,
        partition_epoch: PartitionEpoch,
        cause: impl Into<String>,
    ) -> Self {
        Self {
            topic_id,
            partition,
            partition_epoch,
            leader_epoch: None,
            leader: None,
            isr: None,
            replicas: None,
            directories: None,
            leader_recovery_state: None,
            elr: None,
            last_known_elr: None,
            last_unclean_epoch: None,
            adding_replicas: None,
            removing_replicas: None,
            original_replicas: None,
            cause: cause.into(),
        }
    }
}

/// JSON cannot tell "absent" from "null" by itself: absent is `None`, null is `Some(None)`.
mod nullable {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(
        value: &Option<Option<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value
            .as_ref()
            .and_then(Option::as_ref)
            .serialize(serializer)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Option<T>>, D::Error> {
        Option::deserialize(deserializer).map(Some)
    }
}
