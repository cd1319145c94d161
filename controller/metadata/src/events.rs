//! What happened in the cluster, as people ask for it: every leader change, ISR change, fencing, truncation and the like.
//! Law: events are derived from the committed records and from nothing else, by one function, so that every controller
//! derives the same ones under the same ids. An id only grows.

mod history;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use kuorum_protocol::{
    BrokerEpoch, BrokerId, ControllerEpoch, DirectoryId, IncarnationId, LeaderEpoch, Offset,
    PartitionEpoch, PartitionIndex, Timestamp, TopicId,
};
use serde::{Deserialize, Serialize};

pub use history::{History, Overrun};

use crate::delta::MetadataDelta;
use crate::image::{MetadataImage, PartitionImage};
use crate::record::{
    BrokerEventKind, ConfigResource, LeaderRecoveryState, MetadataRecord, PartitionChange,
};

/// Bits of an id that count the events of one entry.
const PLACE_BITS: u32 = 16;
/// The most events one entry may have; the last of more says how many are missing.
const PLACES: usize = (1 << PLACE_BITS) - 1;

/// An event's id: the offset of its entry in the metadata log, and its place among the events of that entry, from 1.
///
/// It fits a number of JavaScript (below 2^53) for the first 2^37 entries: a thousand a second for four years.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct EventId(pub i64);

impl EventId {
    /// The id of an entry's event. Place 0 is before all of them.
    pub fn new(offset: i64, place: usize) -> Self {
        Self((offset << PLACE_BITS) | place.min(PLACES) as i64)
    }

    /// The offset of the entry.
    pub fn offset(self) -> i64 {
        self.0 >> PLACE_BITS
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub id: EventId,
    /// When the controllers decided or recorded it; see [`crate::RecordBatch::decided_at`].
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    /// The topic it is about. `None` also if the topic was gone by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<TopicId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<PartitionIndex>,
    /// The broker it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker: Option<BrokerId>,
    /// Why it happened.
    pub cause: String,
    #[serde(flatten)]
    pub what: EventKind,
}

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
    /// A follower cut off the end of its log; [`BrokerEventKind::ReplicaTruncated`].
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
    /// A follower began its log anew; [`BrokerEventKind::ReplicaRestarted`].
    ReplicaRestarted {
        from: Offset,
        to: Offset,
        leader_epoch: LeaderEpoch,
        /// By the broker's clock.
        happened_at_ms: Timestamp,
    },
    /// What an unclean election made a replica cut off was set aside first; [`BrokerEventKind::SalvageSetAside`].
    SalvageSetAside {
        item: String,
        first_offset: Offset,
        end_offset: Offset,
        bytes: u64,
        complete: bool,
        /// By the broker's clock.
        happened_at_ms: Timestamp,
    },
    /// A salvaged item is gone; [`BrokerEventKind::SalvageDeleted`].
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
    fn involves(&self, broker: BrokerId) -> bool {
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

/// Which events somebody wants to see; what is left empty excludes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Names of kinds.
    pub kinds: BTreeSet<String>,
    pub topic: Option<String>,
    pub partition: Option<PartitionIndex>,
    /// Events about this broker, and those it had a part in: it led, joined, left.
    pub broker: Option<BrokerId>,
    /// Not before this moment.
    pub since: Option<Timestamp>,
}

impl EventFilter {
    /// Whether an event is wanted. A gap is always told.
    pub fn matches(&self, event: &Event) -> bool {
        if matches!(event.what, EventKind::Gap { .. }) {
            return true;
        }
        (self.kinds.is_empty() || self.kinds.contains(event.what.name()))
            && (self.topic.is_none() || self.topic == event.topic)
            && (self.partition.is_none() || self.partition == event.partition)
            && self
                .broker
                .is_none_or(|broker| event.broker == Some(broker) || event.what.involves(broker))
            && self.since.is_none_or(|since| event.at >= since)
    }
}

/// The events of one applied entry: its offset, the time it was decided, its records, and the image before it.
pub fn derive(
    before: &MetadataImage,
    offset: i64,
    at: Timestamp,
    records: &[MetadataRecord],
) -> Vec<Event> {
    let mut derivation = Derivation {
        image: before.clone(),
        delta: MetadataDelta::default(),
        offset,
        found: Vec::new(),
        created: BTreeMap::new(),
        grown: BTreeMap::new(),
    };
    for record in records {
        derivation.step(record);
    }
    let mut found = derivation.found;
    if found.len() > PLACES {
        let missing = found.len() - (PLACES - 1);
        found.truncate(PLACES - 1);
        found.push(Found::of(
            "one decision had too many consequences to list",
            EventKind::Gap { missing },
        ));
    }
    found
        .into_iter()
        .enumerate()
        .map(|(place, found)| Event {
            id: EventId::new(offset, place + 1),
            at,
            topic: found.topic,
            topic_id: found.topic_id,
            partition: found.partition,
            broker: found.broker,
            cause: found.cause,
            what: found.what,
        })
        .collect()
}

/// An event before it has its id and time.
struct Found {
    topic: Option<String>,
    topic_id: Option<TopicId>,
    partition: Option<PartitionIndex>,
    broker: Option<BrokerId>,
    cause: String,
    what: EventKind,
}

impl Found {
    fn of(cause: &str, what: EventKind) -> Self {
        Self {
            topic: None,
            topic_id: None,
            partition: None,
            broker: None,
            cause: cause.to_owned(),
            what,
        }
    }

    fn about_broker(self, broker: BrokerId) -> Self {
        Self {
            broker: Some(broker),
            ..self
        }
    }

    fn about_topic(self, topic: &str, topic_id: Option<TopicId>) -> Self {
        Self {
            topic: Some(topic.to_owned()),
            topic_id,
            ..self
        }
    }

    fn about_partition(
        self,
        image: &MetadataImage,
        id: TopicId,
        partition: PartitionIndex,
    ) -> Self {
        Self {
            topic: image.topic_by_id(id).map(|topic| topic.name.clone()),
            topic_id: Some(id),
            partition: Some(partition),
            ..self
        }
    }
}

/// The walk through one entry.
struct Derivation {
    /// The image before the record at hand.
    image: MetadataImage,
    delta: MetadataDelta,
    offset: i64,
    found: Vec<Found>,
    /// Where in `found` the topics are that this entry creates, and those it adds partitions to.
    created: BTreeMap<TopicId, usize>,
    grown: BTreeMap<TopicId, usize>,
}

impl Derivation {
    fn step(&mut self, record: &MetadataRecord) {
        match record {
            MetadataRecord::PartitionChange(change) => return self.partition_change(change),
            MetadataRecord::Partition(partition) => {
                self.partition(partition.topic_id, partition.replicas.len());
            }
            MetadataRecord::Config {
                resource,
                name,
                value,
            } => self.config(resource, name, value.as_ref()),
            MetadataRecord::Topic { name, topic_id } => {
                self.created.insert(*topic_id, self.found.len());
                let what = EventKind::TopicCreated {
                    partitions: 0,
                    replication_factor: 0,
                    configs: BTreeMap::new(),
                };
                let found = Found::of("topic created", what).about_topic(name, Some(*topic_id));
                self.found.push(found);
            }
            MetadataRecord::RemoveTopic { topic_id } => {
                if let Some(topic) = self.image.topic_by_id(*topic_id) {
                    let what = EventKind::TopicDeleted {
                        partitions: topic.partitions.len(),
                    };
                    let found =
                        Found::of("topic deleted", what).about_topic(&topic.name, Some(*topic_id));
                    self.found.push(found);
                }
            }
            MetadataRecord::RegisterBroker(_)
            | MetadataRecord::UnregisterBroker { .. }
            | MetadataRecord::BrokerRegistrationChange { .. }
            | MetadataRecord::BrokerDrain { .. } => self.broker(record),
            MetadataRecord::SalvageReplay {
                item,
                target,
                partition,
                ..
            } => {
                let known = self.image.salvage_replay(item, *target);
                if known.is_none() && self.image.topic_by_id(*target).is_some() {
                    let what = EventKind::SalvageReplayStarted { item: item.clone() };
                    self.replay(*target, *partition, what);
                }
            }
            MetadataRecord::SalvageReplayed {
                item,
                target,
                records,
                ..
            } => {
                if let Some(replay) = self.image.salvage_replay(item, *target) {
                    let what = EventKind::SalvageReplayed {
                        item: item.clone(),
                        records: *records,
                    };
                    self.replay(*target, replay.partition, what);
                }
            }
            MetadataRecord::BrokerEvent(event) => {
                if self.image.is_news(event) {
                    let (cause, what) = reported(&event.what, event.at);
                    let found = Found::of(cause, what)
                        .about_partition(&self.image, event.topic_id, event.partition)
                        .about_broker(event.broker_id);
                    self.found.push(found);
                }
            }
            MetadataRecord::ControllerEpoch {
                epoch,
                controller_id,
            } => {
                let what = EventKind::ControllerChanged {
                    controller_id: *controller_id,
                    controller_epoch: *epoch,
                    previous_controller_id: self.image.controller_id(),
                };
                self.found.push(Found::of("controller took office", what));
            }
            MetadataRecord::FeatureLevel { name, level } => {
                let what = EventKind::FeatureFinalized {
                    name: name.clone(),
                    level: *level,
                    previous_level: self.image.feature(name),
                };
                self.found.push(Found::of("feature finalized", what));
            }
            MetadataRecord::ProducerIds { .. } => {}
        }
        self.apply(record);
    }

    fn apply(&mut self, record: &MetadataRecord) {
        self.image.apply(self.offset, record, &mut self.delta);
    }

    /// A new partition belongs to the event of its topic's creation, or of its growth.
    fn partition(&mut self, topic_id: TopicId, replicas: usize) {
        let Some(topic) = self.image.topic_by_id(topic_id) else {
            return;
        };
        if let Some(place) = self.created.get(&topic_id) {
            if let EventKind::TopicCreated {
                partitions,
                replication_factor,
                ..
            } = &mut self.found[*place].what
            {
                *partitions += 1;
                *replication_factor = replicas;
            }
            return;
        }
        let before = topic.partitions.len();
        let place = *self.grown.entry(topic_id).or_insert_with(|| {
            let what = EventKind::PartitionsAdded {
                partitions: before,
                previous_partitions: before,
            };
            let found =
                Found::of("partitions added", what).about_topic(&topic.name, Some(topic_id));
            self.found.push(found);
            self.found.len() - 1
        });
        if let EventKind::PartitionsAdded { partitions, .. } = &mut self.found[place].what {
            *partitions += 1;
        }
    }

    /// What a topic is created with belongs to its creation.
    fn config(&mut self, resource: &ConfigResource, name: &str, value: Option<&String>) {
        let topic = match resource {
            ConfigResource::Topic(topic) => Some(topic),
            _ => None,
        };
        let topic_id = topic
            .and_then(|topic| self.image.topic(topic))
            .map(|topic| topic.id);
        if let Some(place) = topic_id.and_then(|id| self.created.get(&id))
            && let EventKind::TopicCreated { configs, .. } = &mut self.found[*place].what
        {
            configs.extend(value.map(|value| (name.to_owned(), value.clone())));
            return;
        }
        let previous_value = self
            .image
            .configs_of(resource)
            .and_then(|values| values.get(name))
            .cloned();
        if previous_value.as_ref() == value {
            return;
        }
        let cause = match resource {
            ConfigResource::ControllerFile => "the active controller's file says so",
            _ => "changed on request",
        };
        let what = EventKind::ConfigChanged {
            resource: resource.clone(),
            name: name.to_owned(),
            value: value.cloned(),
            previous_value,
        };
        let mut found = Found::of(cause, what);
        if let Some(topic) = topic {
            found = found.about_topic(topic, topic_id);
        }
        if let ConfigResource::Broker(broker) = resource {
            found = found.about_broker(*broker);
        }
        self.found.push(found);
    }

    fn replay(&mut self, target: TopicId, partition: PartitionIndex, what: EventKind) {
        let found = Found::of("asked for by an operator", what).about_partition(
            &self.image,
            target,
            partition,
        );
        self.found.push(found);
    }

    fn broker(&mut self, record: &MetadataRecord) {
        let mut push = |broker, cause: &str, what| {
            self.found.push(Found::of(cause, what).about_broker(broker));
        };
        match record {
            MetadataRecord::RegisterBroker(broker) => {
                let known = self.image.broker(broker.broker_id);
                let cause = match known {
                    None => "first registration",
                    Some(known) if known.incarnation_id == broker.incarnation_id => {
                        "registered again"
                    }
                    Some(_) => "broker restarted",
                };
                let what = EventKind::BrokerRegistered {
                    broker_epoch: broker.broker_epoch.unwrap_or(BrokerEpoch(self.offset)),
                    incarnation_id: broker.incarnation_id,
                    previous_broker_epoch: known.map(|known| known.epoch),
                    version: broker.version.clone(),
                };
                push(broker.broker_id, cause, what);
            }
            MetadataRecord::UnregisterBroker {
                broker_id,
                broker_epoch,
            } => {
                let known = self.image.broker(*broker_id);
                if known.is_some_and(|known| known.epoch == *broker_epoch) {
                    let broker_epoch = *broker_epoch;
                    let what = EventKind::BrokerUnregistered { broker_epoch };
                    push(*broker_id, "broker unregistered", what);
                }
            }
            MetadataRecord::BrokerDrain {
                broker_id,
                draining,
            } => {
                let known = self.image.broker(*broker_id);
                if known.is_some_and(|known| known.draining != *draining) {
                    let what = match draining {
                        true => EventKind::DrainStarted,
                        false => EventKind::DrainEnded,
                    };
                    push(*broker_id, "asked for by an operator", what);
                }
            }
            MetadataRecord::BrokerRegistrationChange {
                broker_id,
                broker_epoch,
                fenced,
                in_controlled_shutdown,
                online_directories,
                cause,
            } => {
                let known = self.image.broker(*broker_id);
                let Some(known) = known.filter(|known| known.epoch == *broker_epoch) else {
                    return;
                };
                let broker_epoch = *broker_epoch;
                if *in_controlled_shutdown == Some(true) && !known.in_controlled_shutdown {
                    let what = EventKind::ControlledShutdownStarted { broker_epoch };
                    push(*broker_id, cause, what);
                }
                if let Some(online) = online_directories {
                    let mut offline = known.directories.clone();
                    offline.retain(|directory| !online.contains(directory));
                    let online = online.clone();
                    if !offline.is_empty() {
                        let what = EventKind::LogDirectoriesOffline {
                            broker_epoch,
                            offline,
                            online,
                        };
                        push(*broker_id, "log directory offline", what);
                    }
                }
                match (*fenced, known.fenced) {
                    (Some(true), false) => {
                        push(*broker_id, cause, EventKind::BrokerFenced { broker_epoch });
                    }
                    (Some(false), true) => {
                        let cause = "heard from, and caught up with the metadata log";
                        push(
                            *broker_id,
                            cause,
                            EventKind::BrokerUnfenced { broker_epoch },
                        );
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Told from the partition before and after, whatever the record states.
    fn partition_change(&mut self, change: &PartitionChange) {
        let (id, index) = (change.topic_id, change.partition);
        let before = self.image.partition(id, index).map(Arc::clone);
        self.apply(&MetadataRecord::PartitionChange(change.clone()));
        let after = self.image.partition(id, index);
        let (Some(before), Some(after)) = (before, after) else {
            return;
        };
        for what in differences(&before, after) {
            let found = Found::of(&change.cause, what).about_partition(&self.image, id, index);
            self.found.push(found);
        }
    }
}

/// What happened to a partition between two images of it.
fn differences(before: &PartitionImage, after: &PartitionImage) -> Vec<EventKind> {
    let mut kinds = Vec::new();
    let moved = |partition: &PartitionImage| {
        !partition.adding_replicas.is_empty() || !partition.removing_replicas.is_empty()
    };
    let target_changed = before.adding_replicas != after.adding_replicas
        || before.removing_replicas != after.removing_replicas;
    if moved(after) && target_changed {
        kinds.push(EventKind::ReassignmentStarted {
            replicas: after.replicas.clone(),
            adding: after.adding_replicas.clone(),
            removing: after.removing_replicas.clone(),
        });
    }
    let new_epoch = after.leader_epoch != before.leader_epoch;
    let unclean = after.last_unclean_epoch != before.last_unclean_epoch;
    if after.leader != before.leader || new_epoch {
        kinds.push(EventKind::LeaderChanged {
            leader: after.leader,
            previous_leader: before.leader,
            leader_epoch: after.leader_epoch,
            previous_leader_epoch: before.leader_epoch,
            partition_epoch: after.partition_epoch,
            unclean,
        });
    }
    if unclean && let Some(leader) = after.leader {
        kinds.push(EventKind::UncleanElection {
            leader,
            leader_epoch: after.leader_epoch,
            lost_isr: before.isr.clone(),
            lost_elr: before.elr.clone(),
        });
    }
    isr_difference(before, after, &mut kinds);
    let recovered = |partition: &PartitionImage| {
        partition.leader_recovery_state == LeaderRecoveryState::Recovered
    };
    if recovered(after) && !recovered(before) {
        kinds.push(EventKind::LeaderRecovered {
            leader_epoch: after.leader_epoch,
        });
    }
    let replicas_changed = before.replicas != after.replicas;
    if !moved(after) && (moved(before) || replicas_changed) {
        let target_reached = before
            .adding_replicas
            .iter()
            .all(|replica| after.replicas.contains(replica))
            && !before
                .removing_replicas
                .iter()
                .any(|replica| after.replicas.contains(replica));
        let (replicas, previous_replicas) = (after.replicas.clone(), before.replicas.clone());
        kinds.push(match target_reached {
            true => EventKind::ReassignmentCompleted {
                replicas,
                previous_replicas,
            },
            false => EventKind::ReassignmentCancelled {
                replicas,
                previous_replicas,
            },
        });
    }
    kinds
}

fn isr_difference(before: &PartitionImage, after: &PartitionImage, kinds: &mut Vec<EventKind>) {
    let set = |brokers: &[BrokerId]| brokers.iter().copied().collect::<BTreeSet<_>>();
    let (was, is) = (set(&before.isr), set(&after.isr));
    let change = || IsrChange {
        isr: after.isr.clone(),
        previous_isr: before.isr.clone(),
        elr: after.elr.clone(),
        leader: after.leader,
        leader_epoch: after.leader_epoch,
        partition_epoch: after.partition_epoch,
    };
    if was == is {
        // An ISR in another order is the same ISR.
        if set(&before.elr) != set(&after.elr) {
            kinds.push(EventKind::ElrChanged {
                elr: after.elr.clone(),
                previous_elr: before.elr.clone(),
            });
        }
    } else if is.is_subset(&was) {
        kinds.push(EventKind::IsrShrunk(change()));
    } else if is.is_superset(&was) {
        kinds.push(EventKind::IsrExpanded(change()));
    } else {
        kinds.push(EventKind::IsrChanged(change()));
    }
}

/// A broker's report as an event, and its cause.
fn reported(what: &BrokerEventKind, happened_at: Timestamp) -> (&str, EventKind) {
    match what {
        BrokerEventKind::ReplicaTruncated {
            from,
            to,
            epoch,
            leader_epoch,
            unclean,
        } => (
            match unclean {
                true => "written before an unclean election whose leader did not have it",
                false => "the leader does not have it",
            },
            EventKind::ReplicaTruncated {
                from: *from,
                to: *to,
                records: from.0 - to.0,
                epoch: *epoch,
                leader_epoch: *leader_epoch,
                unclean: *unclean,
                happened_at_ms: happened_at,
            },
        ),
        BrokerEventKind::ReplicaRestarted {
            from,
            to,
            leader_epoch,
        } => (
            "the leader's log begins later than this one could continue",
            EventKind::ReplicaRestarted {
                from: *from,
                to: *to,
                leader_epoch: *leader_epoch,
                happened_at_ms: happened_at,
            },
        ),
        BrokerEventKind::SalvageSetAside {
            item,
            first_offset,
            end_offset,
            bytes,
            complete,
        } => (
            "written before an unclean election whose leader did not have it",
            EventKind::SalvageSetAside {
                item: item.clone(),
                first_offset: *first_offset,
                end_offset: *end_offset,
                bytes: *bytes,
                complete: *complete,
                happened_at_ms: happened_at,
            },
        ),
        BrokerEventKind::SalvageDeleted {
            item,
            records,
            reason,
        } => (
            reason,
            EventKind::SalvageDeleted {
                item: item.clone(),
                records: *records,
                happened_at_ms: happened_at,
            },
        ),
    }
}

impl fmt::Display for Event {
    /// One sentence for people, without the cause.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.topic, self.topic_id, self.partition, self.broker) {
            (Some(topic), _, Some(partition), _) => write!(f, "{topic}-{partition}: ")?,
            (None, Some(id), Some(partition), _) => write!(f, "deleted topic {id}-{partition}: ")?,
            (Some(topic), _, None, _) => write!(f, "topic {topic}: ")?,
            (None, _, _, Some(broker)) => write!(f, "broker {broker}: ")?,
            _ => {}
        }
        self.what.sentence(f, self.broker)
    }
}

impl EventKind {
    fn sentence(&self, f: &mut fmt::Formatter<'_>, broker: Option<BrokerId>) -> fmt::Result {
        let broker = broker.unwrap_or(BrokerId(-1));
        match self {
            Self::ControllerChanged {
                controller_id,
                controller_epoch,
                ..
            } => write!(
                f,
                "controller {controller_id} is active in epoch {controller_epoch}"
            ),
            Self::FeatureFinalized { name, level, .. } => write!(f, "{name} is {level}"),
            Self::BrokerRegistered { broker_epoch, .. } => {
                write!(f, "registered in epoch {broker_epoch}")
            }
            Self::BrokerUnregistered { .. } => write!(f, "unregistered"),
            Self::BrokerFenced { .. } => write!(f, "fenced"),
            Self::BrokerUnfenced { .. } => write!(f, "unfenced"),
            Self::ControlledShutdownStarted { .. } => write!(f, "hands over its leaderships"),
            Self::DrainStarted => write!(f, "is drained of leadership"),
            Self::DrainEnded => write!(f, "may lead again"),
            Self::LogDirectoriesOffline {
                offline, online, ..
            } => write!(
                f,
                "{} offline, {} left",
                Counted(offline.len(), "log directory", "log directories"),
                online.len()
            ),
            Self::TopicCreated {
                partitions,
                replication_factor,
                ..
            } => write!(
                f,
                "created, {}, {} each",
                Counted(*partitions, "partition", "partitions"),
                Counted(*replication_factor, "replica", "replicas")
            ),
            Self::TopicDeleted { partitions } => write!(
                f,
                "deleted, {}",
                Counted(*partitions, "partition", "partitions")
            ),
            Self::PartitionsAdded {
                partitions,
                previous_partitions,
            } => write!(
                f,
                "grew from {previous_partitions} to {partitions} partitions"
            ),
            Self::ConfigChanged {
                resource,
                name,
                value,
                previous_value,
            } => {
                match resource {
                    ConfigResource::ClusterDefault => write!(f, "cluster default ")?,
                    ConfigResource::ControllerFile => write!(f, "controllers' file ")?,
                    ConfigResource::Topic(_) | ConfigResource::Broker(_) => {}
                }
                let shown = |value: &Option<String>| {
                    value.clone().unwrap_or_else(|| "(default)".to_owned())
                };
                write!(
                    f,
                    "{name} = {}, was {}",
                    shown(value),
                    shown(previous_value)
                )
            }
            Self::LeaderChanged {
                leader,
                previous_leader,
                leader_epoch,
                ..
            } => {
                match leader {
                    Some(leader) => write!(f, "broker {leader} leads in epoch {leader_epoch}")?,
                    None => write!(f, "nobody leads, epoch {leader_epoch}")?,
                }
                match previous_leader {
                    Some(previous) => write!(f, ", before it {previous}"),
                    None => write!(f, ", before it nobody"),
                }
            }
            Self::UncleanElection {
                leader,
                leader_epoch,
                lost_isr,
                ..
            } => write!(
                f,
                "broker {leader} was elected uncleanly in epoch {leader_epoch}, in sync were {}",
                List(lost_isr)
            ),
            Self::LeaderRecovered { leader_epoch } => {
                write!(f, "the leader of epoch {leader_epoch} has recovered")
            }
            Self::IsrShrunk(change) | Self::IsrExpanded(change) | Self::IsrChanged(change) => {
                write!(
                    f,
                    "in sync {}, was {}",
                    List(&change.isr),
                    List(&change.previous_isr)
                )
            }
            Self::ElrChanged { elr, previous_elr } => {
                write!(f, "eligible {}, was {}", List(elr), List(previous_elr))
            }
            Self::ReassignmentStarted {
                adding, removing, ..
            } => write!(
                f,
                "reassignment adds {} and removes {}",
                List(adding),
                List(removing)
            ),
            Self::ReassignmentCompleted { replicas, .. } => {
                write!(f, "reassigned to {}", List(replicas))
            }
            Self::ReassignmentCancelled { replicas, .. } => {
                write!(f, "reassignment cancelled, replicas {}", List(replicas))
            }
            Self::ReplicaTruncated {
                from, to, records, ..
            } => write!(f, "broker {broker} cut {records} offsets, [{to}, {from})"),
            Self::ReplicaRestarted { from, to, .. } => write!(
                f,
                "broker {broker} began anew at {to}, its log had ended at {from}"
            ),
            Self::SalvageSetAside {
                item,
                first_offset,
                end_offset,
                complete,
                ..
            } => {
                write!(
                    f,
                    "broker {broker} set aside [{first_offset}, {end_offset}) as {item}"
                )?;
                match complete {
                    true => Ok(()),
                    false => write!(f, ", not all of what it cut"),
                }
            }
            Self::SalvageDeleted { item, records, .. } => {
                write!(f, "broker {broker} no longer keeps {item}")?;
                match records {
                    Some(records) => write!(f, ", {records} records"),
                    None => Ok(()),
                }
            }
            Self::SalvageReplayStarted { item } => write!(f, "{item} is being replayed"),
            Self::SalvageReplayed { item, records } => {
                write!(f, "{item} was replayed, {records} records")
            }
            Self::Gap { missing } => write!(f, "{missing} more events are not listed"),
        }
    }
}

/// `1 partition`, `2 partitions`.
struct Counted(usize, &'static str, &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => write!(f, "1 {}", self.1),
            count => write!(f, "{count} {}", self.2),
        }
    }
}

/// Brokers as `1,2,3`, none as `nobody`.
struct List<'a>(&'a [BrokerId]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nobody");
        }
        for (place, broker) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{broker}")?;
        }
        Ok(())
    }
}
