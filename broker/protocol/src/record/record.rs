//! Single records inside a batch.
//! Law: a record is a slice of its batch (or of the batch's decompressed payload), and what the bytes cannot hold is an
//! error before it is an allocation.

use std::io::{self, BufRead, BufReader, Read};

use bytes::Bytes;
use thiserror::Error;

use super::batch::{BatchError, BatchView, HEADER_SIZE};
use super::compression::{Codec, CompressionError, DecompressLimit, Decompressor, decompress};
use super::varint::{read_int, read_long};
use crate::ids::Offset;
use crate::time::Timestamp;

/// What no record is smaller than: its length, attributes, timestamp, offset, key, value and header count.
pub const SMALLEST_RECORD: usize = 7;

/// One record, as an application knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its place in the partition.
    pub offset: Offset,
    /// When it was made, or appended with LogAppendTime.
    pub timestamp: Timestamp,
    /// What decides about its partition, if anything.
    pub key: Option<Bytes>,
    /// The content. `None` is a tombstone.
    pub value: Option<Bytes>,
    /// Notes beside the content, in order; a name may come twice.
    pub headers: Vec<(String, Option<Bytes>)>,
}

/// Why the records of a batch cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The bytes are no batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The payload cannot be decompressed.
    #[error(transparent)]
    Compression(#[from] CompressionError),
    /// A record is cut off, or its lengths contradict each other.
    #[error("record {index} is malformed: {reason}")]
    Malformed {
        /// The record's place in the batch.
        index: i32,
        /// What is wrong.
        reason: &'static str,
    },
    /// The batch ends before the last record its header claims.
    #[error("the batch claims {claimed} records and holds {found}")]
    TooFew {
        /// What the header says.
        claimed: i32,
        /// How many there are.
        found: i32,
    },
    /// Bytes are left after the last record.
    #[error("{0} bytes follow the last record")]
    TrailingBytes(usize),
}

/// One record as it lies in the payload: nothing copied, headers not yet taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// Its timestamp less the batch's base timestamp.
    pub timestamp_delta: i64,
    /// Its offset less the batch's base offset.
    pub offset_delta: i32,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value.
    pub value: Option<&'a [u8]>,
    header_count: i32,
    headers: &'a [u8],
}

/// Takes `length` bytes, or nothing for −1, from the head of `input`.
fn take_nullable<'a>(input: &mut &'a [u8]) -> Result<Option<&'a [u8]>, &'static str> {
    let length = read_int(input).ok_or("a length is cut off")?;
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| "a length is negative")?;
    let (head, tail) = input
        .split_at_checked(length)
        .ok_or("a length points beyond the record")?;
    *input = tail;
    Ok(Some(head))
}

impl<'a> RawRecord<'a> {
    /// Reads one record from the head of `payload` and moves it on. Everything but the UTF-8 of header names is
    /// checked.
    pub(crate) fn read(payload: &mut &'a [u8]) -> Result<Self, &'static str> {
        let length = read_int(payload).ok_or("its length is cut off")?;
        let length = usize::try_from(length).map_err(|_| "its length is negative")?;
        let (body, rest) = payload
            .split_at_checked(length)
            .ok_or("its length points beyond the batch")?;
        let record = Self::of_body(body)?;
        *payload = rest;
        Ok(record)
    }

    /// Reads a record that is all of `body`, which its length does not belong to.
    fn of_body(mut body: &'a [u8]) -> Result<Self, &'static str> {
        let (_attributes, after) = body.split_first().ok_or("its attributes are cut off")?;
        body = after;
        let timestamp_delta = read_long(&mut body).ok_or("its timestamp is cut off")?;
        let offset_delta = read_int(&mut body).ok_or("its offset is cut off")?;
        let key = take_nullable(&mut body)?;
        let value = take_nullable(&mut body)?;
        let header_count = read_int(&mut body).ok_or("its header count is cut off")?;
        if header_count < 0 {
            return Err("its header count is negative");
        }
        let headers = body;
        let mut walk = headers;
        for _ in 0..header_count {
            take_nullable(&mut walk)?.ok_or("the name of a header is null")?;
            take_nullable(&mut walk)?;
        }
        if !walk.is_empty() {
            return Err("bytes follow its last header");
        }
        Ok(Self {
            timestamp_delta,
            offset_delta,
            key,
            value,
            header_count,
            headers,
        })
    }

    /// Its headers, in order. A name that is not UTF-8 is kept with replacement characters.
    fn owned_headers(&self, source: &Bytes) -> Vec<(String, Option<Bytes>)> {
        // The walk in `read` has proved that so many headers fit into the bytes, two at least for each.
        let mut headers = Vec::with_capacity(self.header_count as usize);
        let mut walk = self.headers;
        for _ in 0..self.header_count {
            let (Ok(Some(name)), Ok(value)) = (take_nullable(&mut walk), take_nullable(&mut walk))
            else {
                break;
            };
            let name = String::from_utf8_lossy(name).into_owned();
            headers.push((name, value.map(|value| source.slice_ref(value))));
        }
        headers
    }
}

/// The records of a payload that is not compressed (any more), as they lie there.
#[derive(Clone, Debug)]
pub struct RawRecords<'a> {
    rest: &'a [u8],
    index: i32,
    count: i32,
    failed: bool,
}

impl<'a> RawRecords<'a> {
    /// `count` records out of `payload`; more or fewer are an error.
    pub fn new(payload: &'a [u8], count: i32) -> Self {
        Self {
            rest: payload,
            index: 0,
            count,
            failed: false,
        }
    }
}

impl<'a> Iterator for RawRecords<'a> {
    type Item = Result<RawRecord<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let result = if self.index >= self.count {
            if self.rest.is_empty() {
                return None;
            }
            Err(RecordError::TrailingBytes(self.rest.len()))
        } else if self.rest.is_empty() {
            Err(RecordError::TooFew {
                claimed: self.count,
                found: self.index,
            })
        } else {
            RawRecord::read(&mut self.rest).map_err(|reason| RecordError::Malformed {
                index: self.index,
                reason,
            })
        };
        self.index += 1;
        self.failed = result.is_err();
        Some(result)
    }
}

/// The records of a compressed batch, each in turn: no more than one of them is in memory.
pub(crate) struct StreamedRecords<'a> {
    codec: Codec,
    input: BufReader<Decompressor<'a>>,
    body: Vec<u8>,
    index: i32,
    count: i32,
}

impl<'a> StreamedRecords<'a> {
    /// # Errors
    /// If the codec refuses the payload at once.
    pub(crate) fn new(batch: &BatchView<'a>, limit: DecompressLimit) -> Result<Self, RecordError> {
        let codec = batch.compression();
        Ok(Self {
            codec,
            input: BufReader::new(Decompressor::new(codec, batch.payload(), limit)?),
            body: Vec::new(),
            index: 0,
            count: batch.record_count(),
        })
    }

    /// How many bytes have been decompressed so far.
    pub(crate) fn unpacked(&self) -> usize {
        self.input.get_ref().unpacked()
    }

    /// The next record, or `None` after the last one that the header claims.
    ///
    /// # Errors
    /// If the payload cannot be decompressed within the limit, or holds other than so many records and nothing else. After
    /// an error there is nothing more to be had.
    pub(crate) fn read_next(&mut self) -> Result<Option<RawRecord<'_>>, RecordError> {
        let (codec, index) = (self.codec, self.index);
        let broken =
            |error: io::Error| RecordError::from(CompressionError::of_reading(codec, error));
        let malformed = |reason| RecordError::Malformed { index, reason };
        let ahead = self.input.fill_buf().map_err(broken)?.len();
        if index >= self.count {
            return match ahead {
                0 => Ok(None),
                more => Err(RecordError::TrailingBytes(more)),
            };
        }
        if ahead == 0 {
            return Err(RecordError::TooFew {
                claimed: self.count,
                found: index,
            });
        }
        let length = self.length().map_err(broken)?;
        let length = length.ok_or_else(|| malformed("its length is cut off"))?;
        let length = u64::try_from(length).map_err(|_| malformed("its length is negative"))?;
        self.body.clear();
        let mut body = self.input.by_ref().take(length);
        let read = body.read_to_end(&mut self.body).map_err(broken)?;
        if (read as u64) < length {
            return Err(malformed("its length points beyond the batch"));
        }
        self.index += 1;
        RawRecord::of_body(&self.body).map(Some).map_err(malformed)
    }

    /// `None` if it is cut off or too long.
    fn length(&mut self) -> io::Result<Option<i32>> {
        let mut bytes = [0; 5];
        for at in 0..bytes.len() {
            if self.input.read(&mut bytes[at..=at])? == 0 {
                return Ok(None);
            }
            if bytes[at] & 0x80 == 0 {
                return Ok(read_int(&mut &bytes[..=at]));
            }
        }
        Ok(None)
    }
}

/// The records of one batch, ready for an application. After an error it ends.
#[derive(Clone, Debug)]
pub struct RecordsReader {
    payload: Bytes,
    read: usize,
    index: i32,
    count: i32,
    failed: bool,
    base_offset: Offset,
    base_timestamp: Timestamp,
    append_time: Option<Timestamp>,
}

impl RecordsReader {
    /// The records of the first batch in `bytes`, which they keep alive: without compression nothing is copied. The CRC
    /// is the caller's business.
    ///
    /// # Errors
    /// If the bytes are no batch or cannot be decompressed within `limit`.
    pub fn new(bytes: &Bytes, limit: DecompressLimit) -> Result<Self, RecordError> {
        let batch = BatchView::parse(bytes)?;
        let payload = match batch.compression() {
            Codec::None => bytes.slice(HEADER_SIZE..batch.size()),
            codec => decompress(codec, batch.payload(), limit)?,
        };
        Ok(Self::over(&batch, payload))
    }

    /// The same for a batch that is only borrowed; its payload is copied once.
    ///
    /// # Errors
    /// If it cannot be decompressed within `limit`.
    pub fn copying(batch: &BatchView<'_>, limit: DecompressLimit) -> Result<Self, RecordError> {
        let payload = decompress(batch.compression(), batch.payload(), limit)?;
        Ok(Self::over(batch, payload))
    }

    fn over(batch: &BatchView<'_>, payload: Bytes) -> Self {
        Self {
            payload,
            read: 0,
            index: 0,
            count: batch.record_count(),
            failed: false,
            base_offset: batch.base_offset(),
            base_timestamp: batch.base_timestamp(),
            append_time: batch.is_log_append_time().then(|| batch.max_timestamp()),
        }
    }
}

impl Iterator for RecordsReader {
    type Item = Result<Record, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let mut raw = RawRecords {
            rest: &self.payload[self.read..],
            index: self.index,
            count: self.count,
            failed: false,
        };
        let result = raw.next()?;
        self.read = self.payload.len() - raw.rest.len();
        self.index = raw.index;
        self.failed = result.is_err();
        Some(result.map(|record| {
            Record {
                offset: Offset(
                    self.base_offset
                        .0
                        .wrapping_add(i64::from(record.offset_delta)),
                ),
                timestamp: self.append_time.unwrap_or(Timestamp(
                    self.base_timestamp.0.wrapping_add(record.timestamp_delta),
                )),
                key: record.key.map(|key| self.payload.slice_ref(key)),
                value: record.value.map(|value| self.payload.slice_ref(value)),
                headers: record.owned_headers(&self.payload),
            }
        }))
    }
}
