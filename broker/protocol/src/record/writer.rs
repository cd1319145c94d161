//! Making batches.
//! Law: what is built here passes every check of [`validate_produced`](super::validate_produced).

use bytes::Bytes;

use super::batch::{HEADER_SIZE, HeaderFields, attributes, write_header};
use super::compression::{Codec, compress};
use super::varint::{long_size, write_long};
use crate::ids::{ProducerEpoch, ProducerId, Sequence};
use crate::time::Timestamp;

/// A header as it is written: a name and a value, which may be absent.
pub type Header = (String, Option<Bytes>);

/// Collects records and makes one batch of them, with base offset 0.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    codec: Codec,
    attributes: i16,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    base_sequence: Sequence,
    base_timestamp: Timestamp,
    max_timestamp: Timestamp,
    count: i32,
    /// Room for the header, then the records, not compressed.
    bytes: Vec<u8>,
}

impl BatchBuilder {
    /// An empty batch that will be compressed with `codec`.
    pub fn new(codec: Codec) -> Self {
        Self {
            codec,
            attributes: 0,
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch(-1),
            base_sequence: Sequence::NONE,
            base_timestamp: Timestamp::NONE,
            max_timestamp: Timestamp::NONE,
            count: 0,
            bytes: vec![0; HEADER_SIZE],
        }
    }

    /// Makes it the batch of an idempotent producer (KIP-98).
    #[must_use]
    pub fn producer(mut self, id: ProducerId, epoch: ProducerEpoch, base: Sequence) -> Self {
        self.set_producer(id, epoch, base);
        self
    }

    /// As [`producer`](Self::producer), when the batch is already being filled.
    pub fn set_producer(&mut self, id: ProducerId, epoch: ProducerEpoch, base: Sequence) {
        self.producer_id = id;
        self.producer_epoch = epoch;
        self.base_sequence = base;
    }

    /// Makes it part of a transaction.
    #[must_use]
    pub fn transactional(mut self) -> Self {
        self.attributes |= attributes::TRANSACTIONAL;
        self
    }

    /// Makes it a control batch; only a broker may write one.
    #[must_use]
    pub(crate) fn control(mut self) -> Self {
        self.attributes |= attributes::CONTROL;
        self
    }

    /// Adds a record.
    #[must_use]
    pub fn push(
        mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header],
    ) -> Self {
        self.append(timestamp, key, value, headers);
        self
    }

    /// As [`push`](Self::push), by reference.
    pub fn append(
        &mut self,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header],
    ) {
        if self.count == 0 {
            self.base_timestamp = timestamp;
            self.max_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let timestamp_delta = timestamp.0.wrapping_sub(self.base_timestamp.0);
        let offset_delta = i64::from(self.count);
        let body = body_size(timestamp_delta, offset_delta, key, value, headers);
        let out = &mut self.bytes;
        out.reserve(body + 5);
        write_long(out, body as i64);
        out.push(0);
        write_long(out, timestamp_delta);
        write_long(out, offset_delta);
        write_nullable(out, key);
        write_nullable(out, value);
        write_long(out, headers.len() as i64);
        for (name, value) in headers {
            write_nullable(out, Some(name.as_bytes()));
            write_nullable(out, value.as_deref());
        }
        self.count += 1;
    }

    /// How many records it holds.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How large the batch would be now, were it not compressed.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// How many bytes a record adds at most, whatever the batch already holds.
    pub fn record_size_bound(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[Header],
    ) -> usize {
        5 + body_size(i64::MIN, i64::from(i32::MIN), key, value, headers)
    }

    /// The batch.
    ///
    /// # Panics
    /// If it holds no record, is 2 GiB or larger, or its codec is unknown: the caller's mistakes.
    pub fn build(mut self) -> Bytes {
        assert!(self.count > 0, "a batch has at least one record");
        if self.codec != Codec::None {
            let compressed = compress(self.codec, &self.bytes[HEADER_SIZE..])
                .expect("writing to memory does not fail and the codec is one of ours");
            self.bytes.truncate(HEADER_SIZE);
            self.bytes.extend_from_slice(&compressed);
        }
        write_header(
            &mut self.bytes,
            &HeaderFields {
                attributes: self.attributes | self.codec.id(),
                last_offset_delta: self.count - 1,
                base_timestamp: self.base_timestamp,
                max_timestamp: self.max_timestamp,
                producer_id: self.producer_id,
                producer_epoch: self.producer_epoch,
                base_sequence: self.base_sequence,
                record_count: self.count,
            },
        );
        self.bytes.into()
    }
}

/// Bytes of a record after its length.
fn body_size(
    timestamp_delta: i64,
    offset_delta: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[Header],
) -> usize {
    let headers_size: usize = headers
        .iter()
        .map(|(name, value)| nullable_size(Some(name.as_bytes())) + nullable_size(value.as_deref()))
        .sum();
    1 + long_size(timestamp_delta)
        + long_size(offset_delta)
        + nullable_size(key)
        + nullable_size(value)
        + long_size(headers.len() as i64)
        + headers_size
}

fn nullable_size(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| long_size(bytes.len() as i64) + bytes.len())
}

fn write_nullable(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => write_long(out, -1),
        Some(bytes) => {
            write_long(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}
