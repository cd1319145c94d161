//! Which events somebody wants to see.
//! Law: a gap is always told.

use std::collections::BTreeSet;

use kuorum_protocol::{BrokerId, PartitionIndex, Timestamp};

use super::{Event, EventKind};

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
