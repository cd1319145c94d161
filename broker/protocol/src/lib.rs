//! The words on the wire: ids, frames, messages and record batches of the Kafka protocol.
//! Law: pure. Every decoder is bounded by the bytes it was given; a hostile frame is an error, never a panic.

pub mod api_key;
pub mod error_code;
pub mod frame;
pub mod ids;
pub mod message;
pub mod messages;
pub mod record;
pub mod time;
pub mod wire;

pub use api_key::ApiKey;
pub use error_code::ErrorCode;
pub use ids::{
    BrokerEpoch, BrokerId, ControllerEpoch, DirectoryId, IncarnationId, LeaderEpoch, Offset,
    PartitionEpoch, PartitionIndex, ProducerEpoch, ProducerId, Sequence, TopicId,
};
pub use message::{Message, RequestMessage};
pub use time::{Monotonic, Now, Timestamp};
pub use wire::{Decoder, Encoder, WireError};
