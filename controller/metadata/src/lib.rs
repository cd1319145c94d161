//! What the cluster has agreed on: the records, the image they build, and the rules for changing it.
//! Law: pure. No clock, socket or file; a decision reads an image and returns records.

pub mod config_def;
pub mod control;
pub mod delta;
pub mod events;
pub mod image;
pub mod mutation;
pub mod record;
pub mod rpc;
pub mod snapshot;

pub use delta::MetadataDelta;
pub use events::{Event, EventId, History};
pub use image::{Applied, BrokerImage, MetadataImage, PartitionImage, TopicImage};
pub use record::{MetadataRecord, RecordBatch};
