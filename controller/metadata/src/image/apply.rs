//! How a record changes the image.
//! Law: total. There is no error: what names nothing known is passed over, on every node alike. The single condition is
//! the controller epoch a batch was decided under.

use std::sync::Arc;

use imbl::OrdMap;
use kuorum_protocol::{BrokerEpoch, ControllerEpoch, TopicId};

use super::{
    BrokerImage, MetadataImage, PartitionImage, ProducerIdsImage, SalvageReplayImage,
    SalvageReplayedImage, TopicImage,
};
use crate::delta::MetadataDelta;
use crate::mutation::{self, Mutation};
use crate::record::{
    BrokerEvent, ConfigResource, MetadataRecord, PartitionChange, PartitionRecord, RecordBatch,
    RegisterBroker,
};

/// Why a partition that was just made has a leader.
const CREATED: &str = "partition created";

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Applied {
    /// All its records were applied.
    Done(MetadataDelta),
    /// It was decided by a controller that is no longer in office; nothing changed.
    Skipped {
        /// The epoch in office.
        current: ControllerEpoch,
    },
}

impl MetadataImage {
    /// Applies one committed entry of the metadata log, unless its controller has left office.
    ///
    /// A batch is accepted if it was decided under the epoch in office, or if it opens a later one itself: of two that
    /// would open the same epoch, the first in the log does.
    pub fn apply_batch(&mut self, offset: i64, batch: &RecordBatch) -> Applied {
        let current = self.controller_epoch;
        let decided_under = batch.controller_epoch;
        let accepted = match epoch_opened_by(batch) {
            Some(opened) => opened == decided_under && opened > current,
            None => decided_under == current && current > ControllerEpoch(0),
        };
        if !accepted && !mutation::off(Mutation::DeposedControllerDecides) {
            self.offset = self.offset.max(offset);
            return Applied::Skipped { current };
        }
        Applied::Done(self.apply_records(offset, &batch.records))
    }

    /// Applies the records of one entry that is known to count, as the feed delivers them.
    pub fn apply_records(&mut self, offset: i64, records: &[MetadataRecord]) -> MetadataDelta {
        let mut delta = MetadataDelta::default();
        for record in records {
            self.apply(offset, record, &mut delta);
        }
        self.offset = self.offset.max(offset);
        delta
    }

    /// Applies one record of the entry at `offset` and notes in `delta` what it touched.
    pub fn apply(&mut self, offset: i64, record: &MetadataRecord, delta: &mut MetadataDelta) {
        self.offset = self.offset.max(offset);
        match record {
            MetadataRecord::FeatureLevel { name, level } => {
                self.features.insert(name.clone(), *level);
                delta.features_changed = true;
            }
            MetadataRecord::ControllerEpoch {
                epoch,
                controller_id,
            } => {
                self.controller_epoch = *epoch;
                self.controller_id = Some(*controller_id);
                delta.controller_changed = true;
            }
            MetadataRecord::RegisterBroker(register) => {
                self.register_broker(offset, register);
                delta.brokers_changed.insert(register.broker_id);
            }
            MetadataRecord::UnregisterBroker {
                broker_id,
                broker_epoch,
            } => {
                if self.has_incarnation(*broker_id, *broker_epoch) {
                    self.brokers.remove(broker_id);
                    delta.brokers_changed.insert(*broker_id);
                }
            }
            MetadataRecord::BrokerRegistrationChange {
                broker_id,
                broker_epoch,
                fenced,
                in_controlled_shutdown,
                online_directories,
                cause: _,
            } => {
                if !self.has_incarnation(*broker_id, *broker_epoch) {
                    return;
                }
                let Some(broker) = self.brokers.get_mut(broker_id) else {
                    return;
                };
                let broker = Arc::make_mut(broker);
                broker.fenced = fenced.unwrap_or(broker.fenced);
                broker.in_controlled_shutdown =
                    in_controlled_shutdown.unwrap_or(broker.in_controlled_shutdown);
                if let Some(directories) = online_directories {
                    broker.directories.clone_from(directories);
                }
                delta.brokers_changed.insert(*broker_id);
            }
            MetadataRecord::BrokerDrain {
                broker_id,
                draining,
            } => {
                if let Some(broker) = self.brokers.get_mut(broker_id) {
                    Arc::make_mut(broker).draining = *draining;
                    delta.brokers_changed.insert(*broker_id);
                }
            }
            MetadataRecord::Topic { name, topic_id } => {
                let topic = TopicImage {
                    name: name.clone(),
                    id: *topic_id,
                    partitions: OrdMap::new(),
                };
                self.topics.insert(*topic_id, Arc::new(topic));
                self.topic_ids.insert(name.clone(), *topic_id);
                delta.topics_created.insert(*topic_id);
            }
            MetadataRecord::RemoveTopic { topic_id } => {
                let Some(topic) = self.topics.remove(topic_id) else {
                    return;
                };
                self.topic_ids.remove(&topic.name);
                let resource = ConfigResource::Topic(topic.name.clone());
                if self.configs.remove(&resource).is_some() {
                    delta.configs_changed.insert(resource);
                }
                self.forget_replays_into(*topic_id);
                delta.forget_topic(*topic_id, topic);
            }
            MetadataRecord::Partition(partition) => {
                let Some(topic) = self.topics.get_mut(&partition.topic_id) else {
                    return;
                };
                let image = Arc::new(PartitionImage::from(partition));
                Arc::make_mut(topic)
                    .partitions
                    .insert(partition.partition, image);
                let key = (partition.topic_id, partition.partition);
                delta.partitions_changed.insert(key);
                delta.leader_causes.insert(key, CREATED.to_owned());
            }
            MetadataRecord::PartitionChange(change) => {
                let Some(topic) = self.topics.get_mut(&change.topic_id) else {
                    return;
                };
                if !topic.partitions.contains_key(&change.partition) {
                    return;
                }
                let Some(partition) = Arc::make_mut(topic).partitions.get_mut(&change.partition)
                else {
                    return;
                };
                Arc::make_mut(partition).change(change);
                let key = (change.topic_id, change.partition);
                delta.partitions_changed.insert(key);
                if change.leader.is_some() || change.leader_epoch.is_some() {
                    delta.leader_causes.insert(key, change.cause.clone());
                }
            }
            MetadataRecord::Config {
                resource,
                name,
                value,
            } => {
                self.set_config(resource, name, value.as_deref());
                delta.configs_changed.insert(resource.clone());
            }
            MetadataRecord::ProducerIds {
                broker_id,
                broker_epoch,
                next_producer_id,
            } => {
                self.producer_ids = Some(ProducerIdsImage {
                    broker_id: *broker_id,
                    broker_epoch: *broker_epoch,
                    next: *next_producer_id,
                });
                delta.producer_ids_changed = true;
            }
            MetadataRecord::BrokerEvent(event) => {
                if self.is_news(event)
                    && let Some(broker) = self.brokers.get_mut(&event.broker_id)
                {
                    Arc::make_mut(broker).last_report = event.number;
                }
            }
            MetadataRecord::SalvageReplay {
                item,
                target,
                partition,
                producer_id,
                records,
                acknowledged,
                stopped,
            } => {
                if !self.topics.contains_key(target) {
                    return;
                }
                let replay = SalvageReplayImage {
                    partition: *partition,
                    producer_id: *producer_id,
                    records: *records,
                    acknowledged: *acknowledged,
                    stopped: *stopped,
                    replayed: None,
                };
                self.salvage_replays.insert((item.clone(), *target), replay);
            }
            MetadataRecord::SalvageReplayed {
                item,
                target,
                records,
                at,
            } => {
                if let Some(replay) = self.salvage_replays.get_mut(&(item.clone(), *target)) {
                    replay.acknowledged = *records;
                    replay.replayed = Some(SalvageReplayedImage {
                        records: *records,
                        at: *at,
                    });
                }
            }
        }
    }

    /// A topic that is gone holds nothing that was replayed into it.
    fn forget_replays_into(&mut self, topic_id: TopicId) {
        let gone: Vec<(String, TopicId)> = self
            .salvage_replays
            .keys()
            .filter(|(_, target)| *target == topic_id)
            .cloned()
            .collect();
        for key in gone {
            self.salvage_replays.remove(&key);
        }
    }

    fn has_incarnation(&self, id: kuorum_protocol::BrokerId, epoch: BrokerEpoch) -> bool {
        self.brokers
            .get(&id)
            .is_some_and(|broker| broker.epoch == epoch)
    }

    /// Whether a report comes from the registered incarnation and was not recorded before.
    pub(crate) fn is_news(&self, event: &BrokerEvent) -> bool {
        self.broker(event.broker_id).is_some_and(|broker| {
            broker.epoch == event.broker_epoch && broker.last_report < event.number
        })
    }

    fn register_broker(&mut self, offset: i64, register: &RegisterBroker) {
        let broker = BrokerImage {
            id: register.broker_id,
            incarnation_id: register.incarnation_id,
            epoch: register.broker_epoch.unwrap_or(BrokerEpoch(offset)),
            listeners: register.listeners.clone(),
            http: register.http.clone(),
            rack: register.rack.clone(),
            directories: register.directories.clone(),
            fenced: register.fenced,
            in_controlled_shutdown: register.in_controlled_shutdown,
            draining: self
                .brokers
                .get(&register.broker_id)
                .is_some_and(|before| before.draining),
            version: register.version.clone(),
            last_report: register.last_report,
        };
        self.brokers.insert(register.broker_id, Arc::new(broker));
    }

    fn set_config(&mut self, resource: &ConfigResource, name: &str, value: Option<&str>) {
        let mut values = self.configs.get(resource).cloned().unwrap_or_default();
        match value {
            Some(value) => values.insert(name.to_owned(), value.to_owned()),
            None => values.remove(name),
        };
        if values.is_empty() {
            self.configs.remove(resource);
        } else {
            self.configs.insert(resource.clone(), values);
        }
    }
}

/// The epoch a batch opens, if its controller takes office by it.
fn epoch_opened_by(batch: &RecordBatch) -> Option<ControllerEpoch> {
    batch.records.iter().find_map(|record| match record {
        MetadataRecord::ControllerEpoch { epoch, .. } => Some(*epoch),
        _ => None,
    })
}

impl PartitionImage {
    pub(crate) fn change(&mut self, change: &PartitionChange) {
        self.partition_epoch = change.partition_epoch;
        if let Some(leader_epoch) = change.leader_epoch {
            self.leader_epoch = leader_epoch;
        }
        if let Some(leader) = change.leader {
            self.leader = leader;
        }
        if let Some(state) = change.leader_recovery_state {
            self.leader_recovery_state = state;
        }
        if change.last_unclean_epoch.is_some() {
            self.last_unclean_epoch = change.last_unclean_epoch;
        }
        replace(&mut self.isr, change.isr.as_ref());
        replace(&mut self.replicas, change.replicas.as_ref());
        replace(&mut self.directories, change.directories.as_ref());
        replace(&mut self.elr, change.elr.as_ref());
        replace(&mut self.last_known_elr, change.last_known_elr.as_ref());
        replace(&mut self.adding_replicas, change.adding_replicas.as_ref());
        replace(
            &mut self.removing_replicas,
            change.removing_replicas.as_ref(),
        );
        replace(
            &mut self.original_replicas,
            change.original_replicas.as_ref(),
        );
    }
}

fn replace<T: Clone>(place: &mut Vec<T>, with: Option<&Vec<T>>) {
    if let Some(with) = with {
        place.clone_from(with);
    }
}

impl From<&PartitionRecord> for PartitionImage {
    fn from(record: &PartitionRecord) -> Self {
        Self {
            replicas: record.replicas.clone(),
            directories: record.directories.clone(),
            isr: record.isr.clone(),
            leader: record.leader,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
            leader_recovery_state: record.leader_recovery_state,
            elr: record.elr.clone(),
            last_known_elr: record.last_known_elr.clone(),
            last_unclean_epoch: record.last_unclean_epoch,
            adding_replicas: record.adding_replicas.clone(),
            removing_replicas: record.removing_replicas.clone(),
            original_replicas: record.original_replicas.clone(),
        }
    }
}
