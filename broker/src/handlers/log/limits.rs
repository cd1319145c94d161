//! What topics allow producers, looked up once per change of the metadata and not once per batch.
//! Law: a cache of the image's one effective value, never a second opinion.

use std::collections::HashMap;

use kuorum_metadata::config_def;
use kuorum_metadata::image::{MetadataImage, TopicImage};
use kuorum_protocol::record::{ProduceLimits, TimestampType};
use kuorum_protocol::{Timestamp, TopicId};
use parking_lot::RwLock;

/// Beyond this many more topics than there are, the ones that are gone are forgotten.
const SLACK: usize = 64;

/// The limits of every topic that was produced to.
#[derive(Debug, Default)]
pub struct TopicLimits {
    /// By topic: as of which offset of the metadata log, and what.
    known: RwLock<HashMap<TopicId, (i64, ProduceLimits)>>,
}

impl TopicLimits {
    /// What `topic` allows a Produce of that version now.
    pub fn of(
        &self,
        image: &MetadataImage,
        topic: &TopicImage,
        version: i16,
        now: Timestamp,
    ) -> ProduceLimits {
        let known = self.known.read().get(&topic.id).copied();
        let limits = match known {
            Some((offset, limits)) if offset == image.offset() => limits,
            _ => self.learn(image, topic),
        };
        ProduceLimits {
            produce_version: version,
            now,
            ..limits
        }
    }

    fn learn(&self, image: &MetadataImage, topic: &TopicImage) -> ProduceLimits {
        let config = image.effective_topic_config(&topic.name);
        let limits = ProduceLimits {
            max_message_bytes: usize::try_from(config.max_message_bytes).unwrap_or(0),
            timestamp_type: match config.message_timestamp_type {
                config_def::TimestampType::CreateTime => TimestampType::CreateTime,
                config_def::TimestampType::LogAppendTime => TimestampType::LogAppendTime,
            },
            timestamp_before_max_ms: config.message_timestamp_before_max_ms,
            timestamp_after_max_ms: config.message_timestamp_after_max_ms,
            compacted: config.cleanup_policy.compact,
            ..ProduceLimits::default()
        };
        let mut known = self.known.write();
        if known.len() > image.topic_count() + SLACK {
            known.retain(|id, _| image.topic_by_id(*id).is_some());
        }
        known.insert(topic.id, (image.offset(), limits));
        limits
    }
}

#[cfg(test)]
mod tests {
    use kuorum_metadata::MetadataRecord;
    use kuorum_metadata::record::ConfigResource;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn limits_follow_the_metadata() {
        let topic_id = TopicId(Uuid::from_u128(7));
        let mut image = MetadataImage::default();
        let _ = image.apply_records(
            1,
            &[MetadataRecord::Topic {
                name: "orders".to_owned(),
                topic_id,
            }],
        );
        let limits = TopicLimits::default();
        let of = |image: &MetadataImage| {
            let topic = image.topic("orders").expect("there");
            limits.of(image, topic, 9, Timestamp(5))
        };
        assert_eq!(of(&image).max_message_bytes, 1_048_588);
        assert_eq!(of(&image).produce_version, 9);
        let _ = image.apply_records(
            2,
            &[MetadataRecord::Config {
                resource: ConfigResource::Topic("orders".to_owned()),
                name: "max.message.bytes".to_owned(),
                value: Some("1000".to_owned()),
            }],
        );
        assert_eq!(of(&image).max_message_bytes, 1000);
    }
}
