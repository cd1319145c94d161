//! From the records of one entry to its events.
//! Law: one walk, record by record, over an image that takes each of them in; nothing else is looked at.

use std::collections::BTreeMap;
use std::sync::Arc;

use kuorum_protocol::{BrokerEpoch, BrokerId, PartitionIndex, Timestamp, TopicId};

use super::differences::differences;
use super::{Event, EventId, EventKind, PLACES};
use crate::delta::MetadataDelta;
use crate::image::MetadataImage;
use crate::record::{BrokerEventKind, ConfigResource, MetadataRecord, PartitionChange};

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
            "written before an unclean election, and not known to be in the log that was elected",
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
