//! A producer and a consumer for Kuorum, or for any broker that speaks Kafka's protocol.
//! Law: everything that waits has a deadline and everything that grows has a bound. What may be lost, repeated or
//! reordered is said by a type, never by silence.

pub mod cluster;
pub mod config;
pub mod consumer;
pub mod error;
pub mod partitioner;
pub mod producer;

pub use cluster::{Cluster, Link};
pub use config::{
    Acks, ClientConfig, ConfigError, ConsumerConfig, IsolationLevel, OffsetReset, ProducerConfig,
};
pub use consumer::{Consumer, ConsumerRecord, PositionReset, StartAt, TopicPartition};
pub use error::{ClientError, ConsumeError, ProduceError};
pub use kuorum_protocol::record::Codec;
pub use partitioner::{DefaultPartitioner, Partitioner, PinnedPartitioner};
pub use producer::{Delivery, Producer, ProducerRecord, RecordMetadata};
