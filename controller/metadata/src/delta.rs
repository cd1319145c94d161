//! What one step changed, so that a room acts on what is new and not on everything there is.
//! Law: a delta only names things; the values are read from the image after the step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kuorum_protocol::{BrokerId, PartitionIndex, TopicId};

use crate::image::TopicImage;
use crate::record::ConfigResource;

/// The names of everything one or several applied entries touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataDelta {
    /// Topics that did not exist before. Their partitions are in `partitions_changed` too.
    pub topics_created: BTreeSet<TopicId>,
    /// Topics that are gone, as they last were.
    pub topics_removed: BTreeMap<TopicId, Arc<TopicImage>>,
    /// Partitions that were created or changed and still exist.
    pub partitions_changed: BTreeSet<(TopicId, PartitionIndex)>,
    /// Why the leader, or its epoch, last changed of those of which it did. What was skipped over has no cause.
    pub leader_causes: BTreeMap<(TopicId, PartitionIndex), String>,
    /// Brokers that registered, changed their state, or were forgotten.
    pub brokers_changed: BTreeSet<BrokerId>,
    /// Resources of which a configuration value was set or removed.
    pub configs_changed: BTreeSet<ConfigResource>,
    /// Whether a feature level was finalized.
    pub features_changed: bool,
    /// Whether another controller took office.
    pub controller_changed: bool,
    /// Whether a block of producer ids was handed out.
    pub producer_ids_changed: bool,
}

impl MetadataDelta {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what a later step changed. A topic made and removed in between appears only as removed.
    pub fn merge(&mut self, later: Self) {
        self.topics_created.extend(later.topics_created);
        self.partitions_changed.extend(later.partitions_changed);
        self.leader_causes.extend(later.leader_causes);
        for (topic_id, topic) in later.topics_removed {
            self.forget_topic(topic_id, topic);
        }
        self.brokers_changed.extend(later.brokers_changed);
        self.configs_changed.extend(later.configs_changed);
        self.features_changed |= later.features_changed;
        self.controller_changed |= later.controller_changed;
        self.producer_ids_changed |= later.producer_ids_changed;
    }

    /// Notes that a topic is gone and drops whatever else was said about it.
    pub(crate) fn forget_topic(&mut self, topic_id: TopicId, topic: Arc<TopicImage>) {
        self.topics_created.remove(&topic_id);
        self.partitions_changed.retain(|(id, _)| *id != topic_id);
        self.leader_causes.retain(|(id, _), _| *id != topic_id);
        self.topics_removed.insert(topic_id, topic);
    }
}
