//! The state of the cluster as of one offset of the metadata log.
//! Law: an image is the fold of its records. Applying is total and deterministic: the same records give the same image
//! on every node, a record that names nothing known changes nothing, and a clone costs a few pointers.

mod apply;
pub mod configs;
mod snapshot_records;

use std::sync::Arc;

use imbl::OrdMap;
use kuorum_protocol::{
    BrokerEpoch, BrokerId, ControllerEpoch, DirectoryId, IncarnationId, LeaderEpoch,
    PartitionEpoch, PartitionIndex, ProducerId, Timestamp, TopicId,
};

pub use apply::Applied;
pub use configs::{ConfigSource, ConfigSynonym, EffectiveValue, is_internal_topic};

use crate::record::{ConfigResource, LeaderRecoveryState, Listener};

/// The feature whose level says which record types may be written.
pub const METADATA_VERSION: &str = "metadata.version";

/// Everything the cluster has agreed on, as of [`MetadataImage::offset`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataImage {
    /// The last offset applied, −1 before the first.
    pub(crate) offset: i64,
    pub(crate) controller_epoch: ControllerEpoch,
    pub(crate) controller_id: Option<u64>,
    pub(crate) features: OrdMap<String, i16>,
    pub(crate) brokers: OrdMap<BrokerId, Arc<BrokerImage>>,
    pub(crate) topics: OrdMap<TopicId, Arc<TopicImage>>,
    pub(crate) topic_ids: OrdMap<String, TopicId>,
    pub(crate) configs: OrdMap<ConfigResource, OrdMap<String, String>>,
    pub(crate) producer_ids: Option<ProducerIdsImage>,
    /// By item and target.
    pub(crate) salvage_replays: OrdMap<(String, TopicId), SalvageReplayImage>,
}

/// A registered broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    pub id: BrokerId,
    pub incarnation_id: IncarnationId,
    /// The offset of its registration.
    pub epoch: BrokerEpoch,
    pub listeners: Vec<Listener>,
    /// host:port of its health and metrics.
    pub http: String,
    pub rack: Option<String>,
    /// Its online log directories.
    pub directories: Vec<DirectoryId>,
    /// A fenced broker leads nothing and is in no ISR that has a leader.
    pub fenced: bool,
    pub in_controlled_shutdown: bool,
    /// Leadership is taken from it and not given to it, until somebody says otherwise; restarts do not end it.
    pub draining: bool,
    pub version: String,
    /// The number of the last [`crate::record::BrokerEvent`] that this incarnation reported, 0 before the first.
    pub last_report: u64,
}

/// A topic and its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicImage {
    pub name: String,
    pub id: TopicId,
    pub partitions: OrdMap<PartitionIndex, Arc<PartitionImage>>,
}

/// A partition's state; the fields are those of [`crate::record::PartitionRecord`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionImage {
    /// In assignment order; the first is the preferred leader.
    pub replicas: Vec<BrokerId>,
    /// In the order of `replicas`; zero where the broker has not told yet.
    pub directories: Vec<DirectoryId>,
    pub isr: Vec<BrokerId>,
    pub leader: Option<BrokerId>,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    pub leader_recovery_state: LeaderRecoveryState,
    /// Eligible leader replicas (KIP-966).
    pub elr: Vec<BrokerId>,
    pub last_known_elr: Vec<BrokerId>,
    /// The leader epoch of the last unclean election.
    pub last_unclean_epoch: Option<LeaderEpoch>,
    pub adding_replicas: Vec<BrokerId>,
    pub removing_replicas: Vec<BrokerId>,
    /// While a reassignment runs: the replicas to go back to if it is cancelled, in their order.
    pub original_replicas: Vec<BrokerId>,
}

/// The last block of producer ids that was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdsImage {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
    /// Where the next block begins.
    pub next: ProducerId,
}

/// The replay of a salvaged item into a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SalvageReplayImage {
    pub partition: PartitionIndex,
    /// Who writes; its sequence is the record's index.
    pub producer_id: ProducerId,
    /// So many records the item had when it was asked for: a shorter copy is not all of it.
    pub records: u64,
    /// So many records are known to be in the target.
    pub acknowledged: u64,
    /// It was given up, and goes on when it is asked for again.
    pub stopped: bool,
    /// How it ended, if it has.
    pub replayed: Option<SalvageReplayedImage>,
}

/// The end of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SalvageReplayedImage {
    pub records: u64,
    pub at: Timestamp,
}

impl Default for MetadataImage {
    fn default() -> Self {
        Self {
            offset: -1,
            controller_epoch: ControllerEpoch(0),
            controller_id: None,
            features: OrdMap::new(),
            brokers: OrdMap::new(),
            topics: OrdMap::new(),
            topic_ids: OrdMap::new(),
            configs: OrdMap::new(),
            producer_ids: None,
            salvage_replays: OrdMap::new(),
        }
    }
}

impl MetadataImage {
    /// The last offset applied, −1 before the first.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// The epoch of the controller in office, 0 before the first.
    pub fn controller_epoch(&self) -> ControllerEpoch {
        self.controller_epoch
    }

    /// The node id of the controller that took office last.
    pub fn controller_id(&self) -> Option<u64> {
        self.controller_id
    }

    /// A finalized feature's level, 0 if it was never finalized.
    pub fn feature(&self, name: &str) -> i16 {
        self.features.get(name).copied().unwrap_or(0)
    }

    /// All finalized features, by name.
    pub fn features(&self) -> impl Iterator<Item = (&str, i16)> {
        self.features
            .iter()
            .map(|(name, level)| (name.as_str(), *level))
    }

    /// The registered brokers, by id, fenced ones among them.
    pub fn brokers(&self) -> impl Iterator<Item = &Arc<BrokerImage>> {
        self.brokers.values()
    }

    /// One registered broker.
    pub fn broker(&self, id: BrokerId) -> Option<&Arc<BrokerImage>> {
        self.brokers.get(&id)
    }

    /// Whether a broker is registered and may lead and be in an ISR.
    pub fn is_active(&self, id: BrokerId) -> bool {
        self.broker(id).is_some_and(|broker| broker.is_active())
    }

    /// All topics, by name.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.topic_ids.values().filter_map(|id| self.topics.get(id))
    }

    /// How many topics there are.
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// One topic by its name.
    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topics.get(self.topic_ids.get(name)?)
    }

    /// One topic by its id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics.get(&id)
    }

    /// One partition.
    pub fn partition(&self, id: TopicId, index: PartitionIndex) -> Option<&Arc<PartitionImage>> {
        self.topics.get(&id)?.partitions.get(&index)
    }

    /// All partitions of all topics, by topic id and index.
    pub fn partitions(
        &self,
    ) -> impl Iterator<Item = (&Arc<TopicImage>, PartitionIndex, &Arc<PartitionImage>)> {
        self.topics.values().flat_map(|topic| {
            topic
                .partitions
                .iter()
                .map(move |(index, partition)| (topic, *index, partition))
        })
    }

    /// The replay of a salvaged item into a topic, if there ever was one.
    pub fn salvage_replay(&self, item: &str, target: TopicId) -> Option<SalvageReplayImage> {
        self.salvage_replays
            .get(&(item.to_owned(), target))
            .copied()
    }

    /// Every replay of an item, by target.
    pub fn salvage_replays(
        &self,
        item: &str,
    ) -> impl Iterator<Item = (TopicId, SalvageReplayImage)> {
        self.salvage_replays
            .range((item.to_owned(), TopicId::ZERO)..)
            .take_while(move |((of, _), _)| of == item)
            .map(|((_, target), replay)| (*target, *replay))
    }

    /// Every replay that the controller in office has to carry on: neither over nor given up.
    pub fn running_replays(&self) -> impl Iterator<Item = (&str, TopicId, SalvageReplayImage)> {
        self.salvage_replays
            .iter()
            .filter(|(_, replay)| replay.replayed.is_none() && !replay.stopped)
            .map(|((item, target), replay)| (item.as_str(), *target, *replay))
    }

    /// The last block of producer ids that was handed out.
    pub fn producer_ids(&self) -> Option<ProducerIdsImage> {
        self.producer_ids
    }
}

impl BrokerImage {
    /// Whether it may lead and be in an ISR: unfenced, not shutting down, and with a directory that works.
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown && !self.directories.is_empty()
    }

    /// Its advertised address on a listener.
    pub fn listener(&self, name: &str) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.name == name)
    }
}

impl TopicImage {
    /// One partition.
    pub fn partition(&self, index: PartitionIndex) -> Option<&Arc<PartitionImage>> {
        self.partitions.get(&index)
    }
}

impl PartitionImage {
    /// The directory in which a replica lives; `None` if the broker holds no replica or has not told yet.
    pub fn directory(&self, broker: BrokerId) -> Option<DirectoryId> {
        let place = self
            .replicas
            .iter()
            .position(|replica| *replica == broker)?;
        self.directories
            .get(place)
            .copied()
            .filter(|directory| !directory.is_zero())
    }

    /// Whether replicas are on their way to other brokers (KIP-455).
    pub fn is_reassigning(&self) -> bool {
        !self.adding_replicas.is_empty() || !self.removing_replicas.is_empty()
    }

    /// The replicas as they are to be: those there are, without the ones that leave, in assignment order.
    pub fn target_replicas(&self) -> Vec<BrokerId> {
        let leaves = |replica: &BrokerId| self.removing_replicas.contains(replica);
        let replicas = self.replicas.iter().copied();
        replicas.filter(|replica| !leaves(replica)).collect()
    }

    /// How many replicas the partition is to have; what min.insync.replicas is held against.
    pub fn replication_factor(&self) -> usize {
        let leaves = |replica: &&BrokerId| self.removing_replicas.contains(replica);
        self.replicas
            .iter()
            .filter(|replica| !leaves(replica))
            .count()
    }

    /// The replica that leads when all is well: the first of the assignment.
    pub fn preferred_leader(&self) -> Option<BrokerId> {
        self.replicas.first().copied()
    }
}
