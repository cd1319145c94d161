//! The header of a record batch, read and patched where it lies.
//! Law: no copy and no allocation. The base offset, the length, the leader epoch and the magic lie outside the CRC, so
//! a log can assign offset and epoch without touching the rest.

use std::ops::Range;

use thiserror::Error;

use super::compression::Codec;
pub use super::validate::{InvalidBatch, ProduceLimits, Produced, validate_produced};
use crate::ids::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence};
use crate::time::Timestamp;

/// Bytes before the first record of a batch.
pub const HEADER_SIZE: usize = 61;
/// Bytes before the part that the length field counts.
pub const LOG_OVERHEAD: usize = 12;
/// Where the length field stands.
pub const LENGTH_OFFSET: usize = 8;
/// The only magic that is written or served.
pub const MAGIC: i8 = 2;

/// Where the magic stands, in this format and in both older ones.
pub const MAGIC_OFFSET: usize = 16;
/// Where the part guarded by the CRC begins.
pub const CRC_BEGIN: usize = 21;

const BASE_OFFSET: Range<usize> = 0..8;
const LENGTH: Range<usize> = LENGTH_OFFSET..LOG_OVERHEAD;
const LEADER_EPOCH: Range<usize> = 12..16;
const CRC: Range<usize> = 17..CRC_BEGIN;
const ATTRIBUTES: Range<usize> = CRC_BEGIN..23;
const LAST_OFFSET_DELTA: Range<usize> = 23..27;
const BASE_TIMESTAMP: Range<usize> = 27..35;
const MAX_TIMESTAMP: Range<usize> = 35..43;
const PRODUCER_ID: Range<usize> = 43..51;
const PRODUCER_EPOCH: Range<usize> = 51..53;
const BASE_SEQUENCE: Range<usize> = 53..57;
const RECORD_COUNT: Range<usize> = 57..HEADER_SIZE;

/// The bits of a batch's attributes.
pub mod attributes {
    /// Which codec the records are compressed with.
    pub const CODEC_MASK: i16 = 0b111;
    /// The timestamp is the log's, not the producer's (KIP-32).
    pub const LOG_APPEND_TIME: i16 = 1 << 3;
    /// The batch belongs to a transaction (KIP-98).
    pub const TRANSACTIONAL: i16 = 1 << 4;
    /// The batch holds a marker of the broker, no records of a client (KIP-98).
    pub const CONTROL: i16 = 1 << 5;
    /// The base timestamp is the time from which a compacting log may drop tombstones (KIP-534).
    pub const DELETE_HORIZON: i16 = 1 << 6;
}

/// Why bytes do not begin with a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    /// The bytes end before the batch does; more of them may make it whole.
    #[error("the batch needs {needed} bytes and {available} are here")]
    Truncated {
        /// How many bytes the batch needs, as far as is known.
        needed: usize,
        /// How many there are.
        available: usize,
    },
    /// The magic is not 2.
    #[error("magic {0} is not 2")]
    BadMagic(i8),
    /// The length field cannot be true of a batch of this format.
    #[error("a batch cannot have the length {0}")]
    BadLength(i32),
}

/// A fixed number of bytes of a slice that is known to be long enough.
fn field<const N: usize>(bytes: &[u8], range: Range<usize>) -> [u8; N] {
    bytes[range]
        .try_into()
        .expect("the range of a field has the field's size")
}

/// One whole batch, read where it lies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BatchView<'a> {
    bytes: &'a [u8],
}

impl std::fmt::Debug for BatchView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchView")
            .field("base_offset", &self.base_offset())
            .field("last_offset", &self.last_offset())
            .field("leader_epoch", &self.leader_epoch())
            .field("size", &self.size())
            .field("attributes", &self.attributes())
            .field("producer_id", &self.producer_id())
            .field("base_sequence", &self.base_sequence())
            .finish_non_exhaustive()
    }
}

/// The size the batch at the head of `bytes` claims, checked for magic and sense but not for being all here.
///
/// # Errors
/// `Truncated` if not even the magic is here, `BadMagic`, `BadLength`.
pub fn claimed_size(bytes: &[u8]) -> Result<usize, BatchError> {
    if bytes.len() <= MAGIC_OFFSET {
        return Err(BatchError::Truncated {
            needed: HEADER_SIZE,
            available: bytes.len(),
        });
    }
    let magic = bytes[MAGIC_OFFSET] as i8;
    if magic != MAGIC {
        return Err(BatchError::BadMagic(magic));
    }
    let length = i32::from_be_bytes(field(bytes, LENGTH));
    let after_header = usize::try_from(length).map_err(|_| BatchError::BadLength(length))?;
    if after_header < HEADER_SIZE - LOG_OVERHEAD {
        return Err(BatchError::BadLength(length));
    }
    Ok(LOG_OVERHEAD + after_header)
}

impl<'a> BatchView<'a> {
    /// The first batch of `bytes`; what follows it is left alone. The CRC is not looked at.
    ///
    /// # Errors
    /// If the bytes end too early, the magic is not 2, or the length makes no sense.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let size = claimed_size(bytes)?;
        match bytes.get(..size) {
            Some(bytes) => Ok(Self { bytes }),
            None => Err(BatchError::Truncated {
                needed: size,
                available: bytes.len(),
            }),
        }
    }

    /// The offset of the first record.
    pub fn base_offset(&self) -> Offset {
        Offset(i64::from_be_bytes(field(self.bytes, BASE_OFFSET)))
    }

    /// The offset of the last record.
    pub fn last_offset(&self) -> Offset {
        Offset(
            self.base_offset()
                .0
                .wrapping_add(i64::from(self.last_offset_delta())),
        )
    }

    /// The offset after the last record.
    pub fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.wrapping_add(1))
    }

    /// The length field: bytes after itself.
    pub fn batch_length(&self) -> i32 {
        i32::from_be_bytes(field(self.bytes, LENGTH))
    }

    /// Bytes of the whole batch.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The epoch of the leader that appended it.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        LeaderEpoch(i32::from_be_bytes(field(self.bytes, LEADER_EPOCH)))
    }

    /// The format, always 2.
    pub fn magic(&self) -> i8 {
        self.bytes[MAGIC_OFFSET] as i8
    }

    /// The CRC-32C that the batch carries.
    pub fn crc(&self) -> u32 {
        u32::from_be_bytes(field(self.bytes, CRC))
    }

    /// Whether the CRC is the one of the bytes it guards.
    pub fn crc_is_valid(&self) -> bool {
        crc32c::crc32c(&self.bytes[CRC_BEGIN..]) == self.crc()
    }

    /// The attributes, see [`attributes`].
    pub fn attributes(&self) -> i16 {
        i16::from_be_bytes(field(self.bytes, ATTRIBUTES))
    }

    /// How the records are compressed. An id that means nothing counts as [`Codec::Unknown`].
    pub fn compression(&self) -> Codec {
        Codec::of_attributes(self.attributes())
    }

    /// Whether the timestamps are the log's.
    pub fn is_log_append_time(&self) -> bool {
        self.attributes() & attributes::LOG_APPEND_TIME != 0
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes() & attributes::TRANSACTIONAL != 0
    }

    /// Whether the batch is a marker of the broker.
    pub fn is_control(&self) -> bool {
        self.attributes() & attributes::CONTROL != 0
    }

    /// Whether the base timestamp is a delete horizon.
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes() & attributes::DELETE_HORIZON != 0
    }

    /// The last offset less the base offset. It stays when compaction takes the last records away.
    pub fn last_offset_delta(&self) -> i32 {
        i32::from_be_bytes(field(self.bytes, LAST_OFFSET_DELTA))
    }

    /// The timestamp that those of the records are relative to.
    pub fn base_timestamp(&self) -> Timestamp {
        Timestamp(i64::from_be_bytes(field(self.bytes, BASE_TIMESTAMP)))
    }

    /// The highest timestamp of the records, or the log's with LogAppendTime.
    pub fn max_timestamp(&self) -> Timestamp {
        Timestamp(i64::from_be_bytes(field(self.bytes, MAX_TIMESTAMP)))
    }

    /// Who wrote it, or [`ProducerId::NONE`].
    pub fn producer_id(&self) -> ProducerId {
        ProducerId(i64::from_be_bytes(field(self.bytes, PRODUCER_ID)))
    }

    /// The incarnation of who wrote it.
    pub fn producer_epoch(&self) -> ProducerEpoch {
        ProducerEpoch(i16::from_be_bytes(field(self.bytes, PRODUCER_EPOCH)))
    }

    /// The sequence of the first record, or [`Sequence::NONE`].
    pub fn base_sequence(&self) -> Sequence {
        Sequence(i32::from_be_bytes(field(self.bytes, BASE_SEQUENCE)))
    }

    /// The sequence of the last record, or [`Sequence::NONE`]. It may be lower than the first: sequences wrap.
    pub fn last_sequence(&self) -> Sequence {
        match self.base_sequence() {
            Sequence::NONE => Sequence::NONE,
            base => base.plus(self.last_offset_delta()),
        }
    }

    /// How many records the header claims.
    pub fn record_count(&self) -> i32 {
        i32::from_be_bytes(field(self.bytes, RECORD_COUNT))
    }

    /// The records, compressed as [`compression`](Self::compression) says.
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_SIZE..]
    }

    /// The whole batch.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// The batches of `bytes`, one after the other. Ends after the last whole one, or with one error.
pub fn batches(bytes: &[u8]) -> Batches<'_> {
    Batches { rest: bytes }
}

/// See [`batches`].
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    rest: &'a [u8],
}

impl<'a> Batches<'a> {
    /// What has not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchView<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match BatchView::parse(self.rest) {
            Ok(batch) => {
                self.rest = &self.rest[batch.size()..];
                Some(Ok(batch))
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}

/// One whole batch that may be patched where it lies.
#[derive(Debug)]
pub struct BatchMut<'a> {
    bytes: &'a mut [u8],
}

impl<'a> BatchMut<'a> {
    /// The first batch of `bytes`.
    ///
    /// # Errors
    /// As [`BatchView::parse`].
    pub fn parse(bytes: &'a mut [u8]) -> Result<Self, BatchError> {
        let size = BatchView::parse(bytes)?.size();
        Ok(Self {
            bytes: &mut bytes[..size],
        })
    }

    /// The batch as it stands now.
    pub fn view(&self) -> BatchView<'_> {
        BatchView { bytes: self.bytes }
    }

    /// Gives the first record its offset. The CRC does not cover it.
    pub fn set_base_offset(&mut self, offset: Offset) {
        self.bytes[BASE_OFFSET].copy_from_slice(&offset.0.to_be_bytes());
    }

    /// Says which leader appended the batch. The CRC does not cover it.
    pub fn set_leader_epoch(&mut self, epoch: LeaderEpoch) {
        self.bytes[LEADER_EPOCH].copy_from_slice(&epoch.0.to_be_bytes());
    }

    /// Makes `timestamp` the time of every record (LogAppendTime) and renews the CRC. The records stay as they are,
    /// compressed or not.
    pub fn set_log_append_time(&mut self, timestamp: Timestamp) {
        let attributes = self.view().attributes() | attributes::LOG_APPEND_TIME;
        self.bytes[ATTRIBUTES].copy_from_slice(&attributes.to_be_bytes());
        self.bytes[MAX_TIMESTAMP].copy_from_slice(&timestamp.0.to_be_bytes());
        self.renew_crc();
    }

    /// Says what the highest timestamp of the records is and renews the CRC. The records stay as they are.
    pub fn set_max_timestamp(&mut self, timestamp: Timestamp) {
        self.bytes[MAX_TIMESTAMP].copy_from_slice(&timestamp.0.to_be_bytes());
        self.renew_crc();
    }

    /// Renumbers the batch for another incarnation of its producer and renews the CRC. Only its producer may do this,
    /// and only while no log holds it.
    pub fn set_producer(&mut self, id: ProducerId, epoch: ProducerEpoch, base: Sequence) {
        self.bytes[PRODUCER_ID].copy_from_slice(&id.0.to_be_bytes());
        self.bytes[PRODUCER_EPOCH].copy_from_slice(&epoch.0.to_be_bytes());
        self.bytes[BASE_SEQUENCE].copy_from_slice(&base.0.to_be_bytes());
        self.renew_crc();
    }

    /// Writes the CRC of the bytes as they are.
    pub fn renew_crc(&mut self) {
        let crc = crc32c::crc32c(&self.bytes[CRC_BEGIN..]);
        self.bytes[CRC].copy_from_slice(&crc.to_be_bytes());
    }
}

/// What the header of a new batch says besides its length and CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderFields {
    pub(crate) attributes: i16,
    pub(crate) last_offset_delta: i32,
    pub(crate) base_timestamp: Timestamp,
    pub(crate) max_timestamp: Timestamp,
    pub(crate) producer_id: ProducerId,
    pub(crate) producer_epoch: ProducerEpoch,
    pub(crate) base_sequence: Sequence,
    pub(crate) record_count: i32,
}

/// Fills in the first [`HEADER_SIZE`] bytes of `batch`, which must be a whole batch but for them. The base offset is 0
/// and the leader epoch unknown.
pub(crate) fn write_header(batch: &mut [u8], fields: &HeaderFields) {
    let length = i32::try_from(batch.len() - LOG_OVERHEAD).expect("a batch is smaller than 2 GiB");
    batch[BASE_OFFSET].copy_from_slice(&0i64.to_be_bytes());
    batch[LENGTH].copy_from_slice(&length.to_be_bytes());
    batch[LEADER_EPOCH].copy_from_slice(&LeaderEpoch::UNKNOWN.0.to_be_bytes());
    batch[MAGIC_OFFSET] = MAGIC as u8;
    batch[ATTRIBUTES].copy_from_slice(&fields.attributes.to_be_bytes());
    batch[LAST_OFFSET_DELTA].copy_from_slice(&fields.last_offset_delta.to_be_bytes());
    batch[BASE_TIMESTAMP].copy_from_slice(&fields.base_timestamp.0.to_be_bytes());
    batch[MAX_TIMESTAMP].copy_from_slice(&fields.max_timestamp.0.to_be_bytes());
    batch[PRODUCER_ID].copy_from_slice(&fields.producer_id.0.to_be_bytes());
    batch[PRODUCER_EPOCH].copy_from_slice(&fields.producer_epoch.0.to_be_bytes());
    batch[BASE_SEQUENCE].copy_from_slice(&fields.base_sequence.0.to_be_bytes());
    batch[RECORD_COUNT].copy_from_slice(&fields.record_count.to_be_bytes());
    BatchMut { bytes: batch }.renew_crc();
}
