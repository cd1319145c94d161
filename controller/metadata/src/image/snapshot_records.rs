//! An image as records again: what a snapshot holds, and what proves two nodes equal.
//! Law: `from_records(to_records())` is the same image, and the order is fixed, so equal images give equal bytes.

use std::sync::Arc;

use kuorum_protocol::{PartitionIndex, TopicId};

use super::{BrokerImage, MetadataImage, PartitionImage};
use crate::delta::MetadataDelta;
use crate::record::{MetadataRecord, PartitionRecord, RegisterBroker};

impl MetadataImage {
    /// The records that build this image from nothing.
    pub fn to_records(&self) -> Vec<MetadataRecord> {
        let mut records = Vec::new();
        for (name, level) in &self.features {
            records.push(MetadataRecord::FeatureLevel {
                name: name.clone(),
                level: *level,
            });
        }
        if let Some(controller_id) = self.controller_id {
            records.push(MetadataRecord::ControllerEpoch {
                epoch: self.controller_epoch,
                controller_id,
            });
        }
        for broker in self.brokers.values() {
            records.push(MetadataRecord::RegisterBroker(registration(broker)));
            if broker.draining {
                records.push(MetadataRecord::BrokerDrain {
                    broker_id: broker.id,
                    draining: true,
                });
            }
        }
        for (topic_id, topic) in &self.topics {
            records.push(MetadataRecord::Topic {
                name: topic.name.clone(),
                topic_id: *topic_id,
            });
            for (index, partition) in &topic.partitions {
                records.push(MetadataRecord::Partition(
                    partition.to_record(*topic_id, *index),
                ));
            }
        }
        for (resource, values) in &self.configs {
            for (name, value) in values {
                records.push(MetadataRecord::Config {
                    resource: resource.clone(),
                    name: name.clone(),
                    value: Some(value.clone()),
                });
            }
        }
        if let Some(ids) = self.producer_ids {
            records.push(MetadataRecord::ProducerIds {
                broker_id: ids.broker_id,
                broker_epoch: ids.broker_epoch,
                next_producer_id: ids.next,
            });
        }
        for ((item, target), replay) in &self.salvage_replays {
            records.push(MetadataRecord::SalvageReplay {
                item: item.clone(),
                target: *target,
                partition: replay.partition,
                producer_id: replay.producer_id,
                records: replay.records,
                acknowledged: replay.acknowledged,
                stopped: replay.stopped,
            });
            if let Some(replayed) = replay.replayed {
                records.push(MetadataRecord::SalvageReplayed {
                    item: item.clone(),
                    target: *target,
                    records: replayed.records,
                    at: replayed.at,
                });
            }
        }
        records
    }

    /// The image that a snapshot's records build, as of `offset`.
    pub fn from_records(offset: i64, records: &[MetadataRecord]) -> Self {
        let mut image = Self::default();
        let mut delta = MetadataDelta::default();
        for record in records {
            image.apply(offset, record, &mut delta);
        }
        image.offset = offset;
        image
    }

    /// What is different between two images, for a reader that jumped over the entries in between.
    pub fn changed_since(&self, earlier: &Self) -> MetadataDelta {
        let mut delta = MetadataDelta {
            features_changed: self.features != earlier.features,
            controller_changed: self.controller_epoch != earlier.controller_epoch,
            producer_ids_changed: self.producer_ids != earlier.producer_ids,
            ..MetadataDelta::default()
        };
        for (topic_id, topic) in &earlier.topics {
            if !self.topics.contains_key(topic_id) {
                delta.topics_removed.insert(*topic_id, Arc::clone(topic));
            }
        }
        for (topic_id, topic) in &self.topics {
            let before = earlier.topics.get(topic_id);
            if before.is_none() {
                delta.topics_created.insert(*topic_id);
            }
            for (index, partition) in &topic.partitions {
                if before.and_then(|before| before.partitions.get(index)) != Some(partition) {
                    delta.partitions_changed.insert((*topic_id, *index));
                }
            }
        }
        for (id, broker) in self.brokers.iter().chain(&earlier.brokers) {
            if self.brokers.get(id) != Some(broker) || earlier.brokers.get(id) != Some(broker) {
                delta.brokers_changed.insert(*id);
            }
        }
        for (resource, values) in self.configs.iter().chain(&earlier.configs) {
            if self.configs.get(resource) != Some(values)
                || earlier.configs.get(resource) != Some(values)
            {
                delta.configs_changed.insert(resource.clone());
            }
        }
        delta
    }

    /// A fingerprint of everything but the offset: equal on every node that has applied the same entries (FNV-1a, 64 bits).
    pub fn digest(&self) -> u64 {
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        for record in self.to_records() {
            let line = serde_json::to_vec(&record).expect("records hold nothing JSON cannot say");
            for byte in line.into_iter().chain([b'\n']) {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        digest
    }
}

impl PartitionImage {
    /// The record that creates this partition as it is now.
    pub fn to_record(&self, topic_id: TopicId, partition: PartitionIndex) -> PartitionRecord {
        PartitionRecord {
            topic_id,
            partition,
            replicas: self.replicas.clone(),
            directories: self.directories.clone(),
            isr: self.isr.clone(),
            leader: self.leader,
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            leader_recovery_state: self.leader_recovery_state,
            elr: self.elr.clone(),
            last_known_elr: self.last_known_elr.clone(),
            last_unclean_epoch: self.last_unclean_epoch,
            adding_replicas: self.adding_replicas.clone(),
            removing_replicas: self.removing_replicas.clone(),
            original_replicas: self.original_replicas.clone(),
        }
    }
}

fn registration(broker: &BrokerImage) -> RegisterBroker {
    RegisterBroker {
        broker_id: broker.id,
        incarnation_id: broker.incarnation_id,
        broker_epoch: Some(broker.epoch),
        listeners: broker.listeners.clone(),
        http: broker.http.clone(),
        rack: broker.rack.clone(),
        directories: broker.directories.clone(),
        fenced: broker.fenced,
        in_controlled_shutdown: broker.in_controlled_shutdown,
        version: broker.version.clone(),
        last_report: broker.last_report,
    }
}
