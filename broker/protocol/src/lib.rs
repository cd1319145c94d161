//! The words on the wire: ids, frames, messages and record batches of the Kafka protocol.
//! Law: pure. Every decoder is bounded by the bytes it was given; a hostile frame is an error, never a panic.

pub mod ids;
pub mod record;
pub mod time;

pub use ids::{
    BrokerEpoch, BrokerId, ControllerEpoch, DirectoryId, IncarnationId, LeaderEpoch, Offset,
    PartitionEpoch, PartitionIndex, ProducerEpoch, ProducerId, Sequence, TopicId,
};
pub use time::{Monotonic, Now, Timestamp};
