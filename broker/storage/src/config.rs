//! What a log is told about itself: Kafka's topic keys that concern storage, as typed values.
//! Law: plain values, validated by whoever read them.

pub use kuorum_protocol::record::TimestampType;

/// The storage side of a topic's configuration. `Default` is Kafka's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`: a segment is rolled before it would exceed this.
    pub segment_bytes: u64,
    /// `segment.ms`: a segment is rolled when its first record is this old, in milliseconds.
    pub segment_ms: i64,
    /// `segment.index.bytes`: a segment is rolled when its offset index is this big.
    pub segment_index_bytes: u64,
    /// `index.interval.bytes`: bytes of log between two index entries.
    pub index_interval_bytes: u64,
    /// `max.message.bytes`: the largest batch a leader takes.
    pub max_message_bytes: usize,
    /// `retention.ms`; `None` keeps records for ever.
    pub retention_ms: Option<i64>,
    /// `retention.bytes`; `None` keeps any amount.
    pub retention_bytes: Option<i64>,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `flush.messages`: records after which a flush is due whatever the acks.
    pub flush_messages: i64,
    /// `flush.ms`: age of the oldest unflushed record after which a flush is due.
    pub flush_ms: i64,
    /// Whether `cleanup.policy` names `compact`: offsets may then have gaps.
    pub compact: bool,
    /// Whether `cleanup.policy` names `delete`: retention applies.
    pub delete: bool,
    /// `producer.id.expiration.ms`: an idempotent producer silent for this long is forgotten.
    pub producer_id_expiration_ms: i64,
    /// Whether segments are preallocated ahead in steps that double (64 KiB to 16 MiB).
    pub preallocate: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1024 * 1024 * 1024,
            segment_ms: 7 * 24 * 60 * 60 * 1000,
            segment_index_bytes: 10 * 1024 * 1024,
            index_interval_bytes: 4096,
            max_message_bytes: 1024 * 1024 + 12,
            retention_ms: Some(7 * 24 * 60 * 60 * 1000),
            retention_bytes: None,
            timestamp_type: TimestampType::CreateTime,
            flush_messages: i64::MAX,
            flush_ms: i64::MAX,
            compact: false,
            delete: true,
            producer_id_expiration_ms: 24 * 60 * 60 * 1000,
            preallocate: true,
        }
    }
}
