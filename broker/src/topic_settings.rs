//! One topic's effective configuration, as the log and as replication understand it.
//! Law: translation only; the one effective value of every key comes from the metadata image.

use std::time::Duration;

use kuorum_metadata::MetadataImage;
use kuorum_metadata::config_def::{self, TopicConfig};
use kuorum_replication::{Durability, Terms};
use kuorum_storage::{LogConfig, TimestampType};

use crate::partition::SalvagePolicy;

/// What a topic's partitions live by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    pub log: LogConfig,
    pub terms: Terms,
    pub salvage: SalvagePolicy,
}

impl TopicSettings {
    /// The settings of `topic` as the image has them.
    pub fn of(image: &MetadataImage, topic: &str, replica_lag_time_max: Duration) -> Self {
        let config = image.effective_topic_config(topic);
        Self {
            log: log_config(&config),
            salvage: SalvagePolicy {
                enable: config.salvage_enable,
                item_bytes: config.salvage_retention_bytes.map(i64::unsigned_abs),
            },
            terms: Terms {
                min_insync_replicas: config.min_insync_replicas,
                durability: durability(config.acks_durability),
                replica_lag_time_max,
                ..Terms::default()
            },
        }
    }
}

fn durability(configured: config_def::Durability) -> Durability {
    match configured {
        config_def::Durability::Flushed => Durability::Flushed,
        config_def::Durability::PageCache => Durability::PageCache,
    }
}

fn log_config(config: &TopicConfig) -> LogConfig {
    LogConfig {
        segment_bytes: u64::try_from(config.segment_bytes).unwrap_or(0),
        segment_ms: config.segment_ms,
        segment_index_bytes: u64::try_from(config.segment_index_bytes).unwrap_or(0),
        index_interval_bytes: u64::try_from(config.index_interval_bytes).unwrap_or(0),
        max_message_bytes: usize::try_from(config.max_message_bytes).unwrap_or(0),
        retention_ms: config.retention_ms,
        retention_bytes: config.retention_bytes,
        timestamp_type: match config.message_timestamp_type {
            config_def::TimestampType::CreateTime => TimestampType::CreateTime,
            config_def::TimestampType::LogAppendTime => TimestampType::LogAppendTime,
        },
        flush_messages: config.flush_messages,
        flush_ms: config.flush_ms,
        compact: config.cleanup_policy.compact,
        delete: config.cleanup_policy.delete,
        ..LogConfig::default()
    }
}
