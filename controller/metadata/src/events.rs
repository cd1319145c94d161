//! What happened in the cluster, as people ask for it: every leader change, ISR change, fencing, truncation and the like.
//! Law: events are derived from the committed records and from nothing else, by one function, so that every controller
//! derives the same ones under the same ids. An id only grows.

mod derivation;
mod differences;
mod filter;
mod history;
mod kind;
mod sentence;

use std::fmt;

use kuorum_protocol::{BrokerId, PartitionIndex, Timestamp, TopicId};
use serde::{Deserialize, Serialize};

pub use derivation::derive;
pub use filter::EventFilter;
pub use history::{History, Overrun};
pub use kind::{EventKind, IsrChange};

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
