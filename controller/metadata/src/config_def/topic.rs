//! A topic's configuration, ready to use.
//! Law: built from values the table has checked; times are milliseconds, as records count them.

use super::value::items;

/// Which segments go: the old ones, those whose keys have newer values, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanupPolicy {
    pub delete: bool,
    pub compact: bool,
}

/// What is done about the compression of a produced batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionType {
    /// Keep the producer's.
    Producer,
    Uncompressed,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// Whose clock a record's timestamp is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// What an acknowledgement promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On the disk of every in-sync replica.
    Flushed,
    /// In their page caches.
    PageCache,
}

impl Durability {
    /// What a checked value of `acks.durability` means.
    pub(crate) fn from_value(value: &str) -> Self {
        match value.trim() {
            "page.cache" => Self::PageCache,
            _ => Self::Flushed,
        }
    }
}

/// The effective configuration of one topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicConfig {
    pub acks_durability: Durability,
    pub cleanup_policy: CleanupPolicy,
    pub compression_type: CompressionType,
    pub delete_retention_ms: i64,
    pub file_delete_delay_ms: i64,
    /// `i64::MAX` for never.
    pub flush_messages: i64,
    /// `i64::MAX` for never.
    pub flush_ms: i64,
    pub index_interval_bytes: i32,
    pub max_compaction_lag_ms: i64,
    pub max_message_bytes: i32,
    pub message_timestamp_after_max_ms: i64,
    pub message_timestamp_before_max_ms: i64,
    pub message_timestamp_type: TimestampType,
    pub min_cleanable_dirty_ratio: f64,
    pub min_compaction_lag_ms: i64,
    pub min_insync_replicas: usize,
    pub preallocate: bool,
    /// `None` for no limit.
    pub retention_bytes: Option<i64>,
    /// `None` for ever.
    pub retention_ms: Option<i64>,
    pub salvage_enable: bool,
    /// `None` for no limit.
    pub salvage_retention_bytes: Option<i64>,
    /// `None` for ever.
    pub salvage_retention_ms: Option<i64>,
    pub segment_bytes: i32,
    pub segment_index_bytes: i32,
    pub segment_jitter_ms: i64,
    pub segment_ms: i64,
    pub unclean_leader_election_enable: bool,
}

impl TopicConfig {
    /// Builds it from a lookup of effective values. A value that is not what its key demands, which checked input cannot
    /// contain, counts as the default.
    pub(crate) fn from_values(value: impl Fn(&'static str) -> String) -> Self {
        let long = |name| whole(name, &value(name));
        let int = |name| i32::try_from(long(name)).unwrap_or(i32::MAX);
        let flag = |name| value(name).trim() == "true";
        let word = |name: &'static str| value(name).trim().to_owned();
        let policy = value("cleanup.policy");
        Self {
            acks_durability: Durability::from_value(&value("acks.durability")),
            cleanup_policy: CleanupPolicy {
                delete: items(&policy).any(|item| item == "delete"),
                compact: items(&policy).any(|item| item == "compact"),
            },
            compression_type: match word("compression.type").as_str() {
                "uncompressed" => CompressionType::Uncompressed,
                "gzip" => CompressionType::Gzip,
                "snappy" => CompressionType::Snappy,
                "lz4" => CompressionType::Lz4,
                "zstd" => CompressionType::Zstd,
                _ => CompressionType::Producer,
            },
            delete_retention_ms: long("delete.retention.ms"),
            file_delete_delay_ms: long("file.delete.delay.ms"),
            flush_messages: long("flush.messages"),
            flush_ms: long("flush.ms"),
            index_interval_bytes: int("index.interval.bytes"),
            max_compaction_lag_ms: long("max.compaction.lag.ms"),
            max_message_bytes: int("max.message.bytes"),
            message_timestamp_after_max_ms: long("message.timestamp.after.max.ms"),
            message_timestamp_before_max_ms: long("message.timestamp.before.max.ms"),
            message_timestamp_type: match word("message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            min_cleanable_dirty_ratio: word("min.cleanable.dirty.ratio").parse().unwrap_or(0.5),
            min_compaction_lag_ms: long("min.compaction.lag.ms"),
            min_insync_replicas: usize::try_from(long("min.insync.replicas")).unwrap_or(1),
            preallocate: flag("preallocate"),
            retention_bytes: Some(long("retention.bytes")).filter(|limit| *limit >= 0),
            retention_ms: Some(long("retention.ms")).filter(|limit| *limit >= 0),
            salvage_enable: flag("salvage.enable"),
            salvage_retention_bytes: Some(long("salvage.retention.bytes"))
                .filter(|limit| *limit >= 0),
            salvage_retention_ms: Some(long("salvage.retention.ms")).filter(|limit| *limit >= 0),
            segment_bytes: int("segment.bytes"),
            segment_index_bytes: int("segment.index.bytes"),
            segment_jitter_ms: long("segment.jitter.ms"),
            segment_ms: long("segment.ms"),
            unclean_leader_election_enable: flag("unclean.leader.election.enable"),
        }
    }
}

impl Default for TopicConfig {
    /// The built-in defaults.
    fn default() -> Self {
        Self::from_values(|name| built_in(name).to_owned())
    }
}

fn built_in(name: &'static str) -> &'static str {
    super::topic_key(name)
        .and_then(|key| key.default_value())
        .expect("every topic key is in the table and has a default")
}

fn whole(name: &'static str, value: &str) -> i64 {
    value.trim().parse().unwrap_or_else(|_| {
        built_in(name)
            .parse()
            .expect("the default of a whole number is one")
    })
}
