//! What a broker checks of a batch before it appends it for a producer.
//! Law: pure; the order of the checks is Kafka's, so that a batch with two faults gets the answer clients know.

use thiserror::Error;

use super::batch::{BatchError, BatchView, MAGIC, MAGIC_OFFSET};
use super::compression::{Codec, CompressionError, DecompressLimit};
use super::record::{RawRecord, RawRecords, RecordError, SMALLEST_RECORD, StreamedRecords};
use crate::error_code::ErrorCode;
use crate::ids::{Offset, ProducerEpoch, ProducerId, Sequence};
use crate::time::Timestamp;

/// Whose timestamp a topic keeps (`message.timestamp.type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    #[default]
    CreateTime,
    /// The leader's, when it appends.
    LogAppendTime,
}

/// What a topic and a request allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceLimits {
    /// `max.message.bytes`: the size of a batch, compressed.
    pub max_message_bytes: usize,
    /// The version of the Produce request; zstd needs 7 (KIP-110).
    pub produce_version: i16,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// What the clock says.
    pub now: Timestamp,
    /// `message.timestamp.before.max.ms`: how old a record may be.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far in the future a record may lie.
    pub timestamp_after_max_ms: i64,
    /// `cleanup.policy` contains `compact`: every record needs a key.
    pub compacted: bool,
    /// How much a compressed batch may decompress to.
    pub decompress: DecompressLimit,
}

impl Default for ProduceLimits {
    /// Kafka's defaults, with a clock that has not begun and therefore no bound on timestamps.
    fn default() -> Self {
        Self {
            max_message_bytes: 1_048_588,
            produce_version: i16::MAX,
            timestamp_type: TimestampType::CreateTime,
            now: Timestamp(i64::MAX),
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            compacted: false,
            decompress: DecompressLimit::PRODUCED,
        }
    }
}

/// So many records to blame are named at most.
const NAMED_AT_MOST: usize = 1_000;

/// A batch that may be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produced<'a> {
    /// The batch.
    pub batch: BatchView<'a>,
    /// The highest timestamp of its records, whatever its header says; `Timestamp::NONE` if none is higher.
    pub max_timestamp: Timestamp,
}

/// Why a produced batch is refused. The display is what the producer gets to read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidBatch {
    /// No whole batch is there.
    #[error("the request holds no whole record batch for this partition")]
    NoBatch,
    /// A batch of format 0 or 1.
    #[error("record format {0} is no longer accepted: format 2 is needed")]
    OldMagic(i8),
    /// Bytes follow the batch.
    #[error("a partition takes exactly one record batch in a request")]
    SeveralBatches,
    /// Not a batch at all, or damaged on the way. The producer may send it again.
    #[error("the record batch is corrupt: {0}")]
    Corrupt(&'static str),
    /// zstd in a request that is too old for it.
    #[error("zstd needs version 7 or later of the Produce request")]
    ZstdTooOld,
    /// The codec id means nothing.
    #[error("there is no codec {0}")]
    UnknownCodec(u8),
    /// The base offset is the log's to assign.
    #[error("the base offset is {0} and must be 0")]
    BaseOffset(i64),
    /// The batch is larger than the topic allows.
    #[error("the record batch has {size} bytes and max.message.bytes is {max}")]
    TooLarge {
        /// Its size.
        size: usize,
        /// The topic's limit.
        max: usize,
    },
    /// The header's numbers contradict each other.
    #[error("the header claims {count} records and a last offset delta of {last_offset_delta}")]
    Count {
        /// The claimed number of records.
        count: i32,
        /// The claimed last offset delta.
        last_offset_delta: i32,
    },
    /// Markers are the broker's.
    #[error("a client may not write control batches")]
    Control,
    /// Either nobody in particular wrote it (−1, −1), or a producer in one of its epochs.
    #[error("a batch cannot be of the producer id {0} in epoch {1}")]
    Producer(ProducerId, ProducerEpoch),
    /// An idempotent producer numbers its batches.
    #[error("a batch with producer id {0} needs a sequence")]
    NoSequence(ProducerId),
    /// LogAppendTime is the log's to set.
    #[error("a client may not set LogAppendTime")]
    LogAppendTime,
    /// A record is not what the format asks for.
    #[error("{0}")]
    Records(RecordError),
    /// The offset delta of a record is not its place.
    #[error("record {index} has the offset delta {found}")]
    OffsetDelta {
        /// Its place.
        index: i32,
        /// What it says.
        found: i32,
    },
    /// Timestamps outside what the topic allows.
    #[error("timestamps of {} records are outside the range the topic allows", .indexes.len())]
    TimestampOutOfRange {
        /// Which records, the first thousand of them.
        indexes: Vec<i32>,
    },
    /// A compacted topic needs keys.
    #[error("{} records have no key and the topic is compacted", .indexes.len())]
    KeyMissing {
        /// Which records, the first thousand of them.
        indexes: Vec<i32>,
    },
}

impl InvalidBatch {
    /// The records that are to blame, if single ones are (`record_errors`, KIP-467).
    pub fn record_errors(&self) -> &[i32] {
        match self {
            Self::TimestampOutOfRange { indexes } | Self::KeyMissing { indexes } => indexes,
            _ => &[],
        }
    }
}

impl From<&InvalidBatch> for ErrorCode {
    fn from(error: &InvalidBatch) -> Self {
        match error {
            InvalidBatch::Corrupt(_) => Self::CorruptMessage,
            // A producer that knows how to sends it again in smaller ones (KIP-126).
            InvalidBatch::TooLarge { .. }
            | InvalidBatch::Records(RecordError::Compression(CompressionError::TooLarge {
                ..
            })) => Self::MessageTooLarge,
            InvalidBatch::ZstdTooOld | InvalidBatch::UnknownCodec(_) => {
                Self::UnsupportedCompressionType
            }
            InvalidBatch::LogAppendTime | InvalidBatch::TimestampOutOfRange { .. } => {
                Self::InvalidTimestamp
            }
            InvalidBatch::NoBatch
            | InvalidBatch::OldMagic(_)
            | InvalidBatch::SeveralBatches
            | InvalidBatch::BaseOffset(_)
            | InvalidBatch::Count { .. }
            | InvalidBatch::Control
            | InvalidBatch::Producer(..)
            | InvalidBatch::NoSequence(_)
            | InvalidBatch::Records(_)
            | InvalidBatch::OffsetDelta { .. }
            | InvalidBatch::KeyMissing { .. } => Self::InvalidRecord,
        }
    }
}

/// Checks the bytes that a Produce request holds for one partition: rows 3 to 5 and 7 to 17 of Kafka's checks, but for
/// leadership. Every record is looked at, in compressed batches too: what is acknowledged can be read. Kafka puts the
/// highest timestamp it finds into the header; so should the caller.
///
/// # Errors
/// The first fault in Kafka's order.
pub fn validate_produced<'a>(
    bytes: &'a [u8],
    limits: &ProduceLimits,
) -> Result<Produced<'a>, InvalidBatch> {
    let mut room = usize::MAX;
    validate_within(bytes, limits, &mut room)
}

/// The same for one of several batches that may decompress to no more than `room` together, which is lowered by what this one took.
///
/// # Errors
/// As [`validate_produced`]; too large if there is no room left.
pub fn validate_within<'a>(
    bytes: &'a [u8],
    limits: &ProduceLimits,
    room: &mut usize,
) -> Result<Produced<'a>, InvalidBatch> {
    let batch = exactly_one(bytes)?;
    if batch.compression() == Codec::Zstd && limits.produce_version < 7 {
        return Err(InvalidBatch::ZstdTooOld);
    }
    if batch.base_offset() != Offset::ZERO {
        return Err(InvalidBatch::BaseOffset(batch.base_offset().0));
    }
    if batch.size() > limits.max_message_bytes {
        return Err(InvalidBatch::TooLarge {
            size: batch.size(),
            max: limits.max_message_bytes,
        });
    }
    if !batch.crc_is_valid() {
        return Err(InvalidBatch::Corrupt("its CRC does not match"));
    }
    header(&batch, limits)?;
    let max_timestamp = records(&batch, limits, room)?;
    Ok(Produced {
        batch,
        max_timestamp,
    })
}

/// Rows 3, 4 and the size of row 9: one whole batch of format 2 and nothing else.
fn exactly_one(bytes: &[u8]) -> Result<BatchView<'_>, InvalidBatch> {
    if let Some(&magic) = bytes.get(MAGIC_OFFSET)
        && magic as i8 != MAGIC
    {
        return Err(match magic {
            0 | 1 => InvalidBatch::OldMagic(magic as i8),
            _ => InvalidBatch::Corrupt("its magic is unknown"),
        });
    }
    let batch = BatchView::parse(bytes).map_err(|error| match error {
        BatchError::Truncated { .. } => InvalidBatch::NoBatch,
        BatchError::BadMagic(magic) => InvalidBatch::OldMagic(magic),
        BatchError::BadLength(_) => InvalidBatch::Corrupt("its length is impossible"),
    })?;
    match batch.size() == bytes.len() {
        true => Ok(batch),
        false => Err(InvalidBatch::SeveralBatches),
    }
}

/// Rows 10 to 14.
fn header(batch: &BatchView<'_>, limits: &ProduceLimits) -> Result<(), InvalidBatch> {
    if let Codec::Unknown(id) = batch.compression() {
        return Err(InvalidBatch::UnknownCodec(id));
    }
    let (count, last_offset_delta) = (batch.record_count(), batch.last_offset_delta());
    // Nothing is unpacked to look for more records than it may hold at most.
    let room = limits.decompress.for_input(batch.payload().len());
    let fits = usize::try_from(count).is_ok_and(|count| count <= room / SMALLEST_RECORD);
    if last_offset_delta < 0 || count <= 0 || count - 1 != last_offset_delta || !fits {
        return Err(InvalidBatch::Count {
            count,
            last_offset_delta,
        });
    }
    if batch.is_control() {
        return Err(InvalidBatch::Control);
    }
    let (id, epoch) = (batch.producer_id(), batch.producer_epoch());
    if id < ProducerId::NONE || (id > ProducerId::NONE && epoch < ProducerEpoch(0)) {
        return Err(InvalidBatch::Producer(id, epoch));
    }
    if batch.producer_id() > ProducerId::NONE && batch.base_sequence() < Sequence(0) {
        return Err(InvalidBatch::NoSequence(batch.producer_id()));
    }
    if batch.is_log_append_time() && limits.timestamp_type == TimestampType::CreateTime {
        return Err(InvalidBatch::LogAppendTime);
    }
    Ok(())
}

fn look_at_all(
    records: &mut StreamedRecords<'_>,
    mut look: impl FnMut(i32, &RawRecord<'_>) -> Result<(), InvalidBatch>,
) -> Result<(), InvalidBatch> {
    let mut index = 0;
    while let Some(record) = records.read_next().map_err(InvalidBatch::Records)? {
        look(index, &record)?;
        index += 1;
    }
    Ok(())
}

/// Rows 15 to 17. Answers with the highest timestamp.
fn records(
    batch: &BatchView<'_>,
    limits: &ProduceLimits,
    room: &mut usize,
) -> Result<Timestamp, InvalidBatch> {
    let check_time = limits.timestamp_type == TimestampType::CreateTime;
    // The default means "however old", and a timestamp may even be negative.
    let earliest = match limits.timestamp_before_max_ms {
        i64::MAX => i64::MIN,
        before => limits.now.0.saturating_sub(before),
    };
    let latest = limits.now.0.saturating_add(limits.timestamp_after_max_ms);
    let in_range =
        |timestamp: i64| timestamp == Timestamp::NONE.0 || (earliest..=latest).contains(&timestamp);

    let mut max_timestamp = Timestamp::NONE;
    let mut bad_time = Vec::new();
    let mut no_key = Vec::new();
    let mut look = |index: i32, record: &RawRecord<'_>| {
        if record.offset_delta != index {
            return Err(InvalidBatch::OffsetDelta {
                index,
                found: record.offset_delta,
            });
        }
        let timestamp = batch
            .base_timestamp()
            .0
            .wrapping_add(record.timestamp_delta);
        max_timestamp = max_timestamp.max(Timestamp(timestamp));
        if check_time && !in_range(timestamp) && bad_time.len() < NAMED_AT_MOST {
            bad_time.push(index);
        }
        if limits.compacted && record.key.is_none() && no_key.len() < NAMED_AT_MOST {
            no_key.push(index);
        }
        Ok(())
    };
    if batch.compression() == Codec::None {
        for (index, record) in (0..).zip(RawRecords::new(batch.payload(), batch.record_count())) {
            look(index, &record.map_err(InvalidBatch::Records)?)?;
        }
    } else {
        let records = StreamedRecords::new(batch, limits.decompress.within(*room));
        let mut records = records.map_err(InvalidBatch::Records)?;
        let looked = look_at_all(&mut records, look);
        *room = room.saturating_sub(records.unpacked());
        looked?;
    }
    // Kafka reports the faults of single records by the first kind it meets; a missing key is looked at first.
    if !no_key.is_empty() {
        return Err(InvalidBatch::KeyMissing { indexes: no_key });
    }
    if !bad_time.is_empty() {
        return Err(InvalidBatch::TimestampOutOfRange { indexes: bad_time });
    }
    Ok(max_timestamp)
}
