//! The primitive types of the protocol, read from and written to bytes.
//! Law: nothing is read past the end, and what is set aside for decoded values is bounded by the size of the frame:
//! a length or a count is believed only as far as the bytes that follow can justify it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;
use uuid::Uuid;

use crate::api_key::ApiKey;

/// Why bytes are not a message, or a message cannot become bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// The bytes end before the value does.
    #[error("{needed} bytes needed where {remaining} remain")]
    Truncated {
        /// Bytes the value asks for.
        needed: usize,
        /// Bytes there are.
        remaining: usize,
    },
    /// A length or count below −1.
    #[error("length {0} is negative")]
    NegativeLength(i64),
    /// The decoded message would take far more memory than its bytes justify.
    #[error("the message would take more memory than its size justifies")]
    OverBudget,
    /// A null where this version has none.
    #[error("null where the version allows none")]
    UnexpectedNull,
    /// A string that is not UTF-8.
    #[error("a string is not UTF-8")]
    InvalidUtf8,
    /// A variable-length integer that does not end, or holds more bits than its type.
    #[error("a variable-length integer is too long")]
    VarintTooLong,
    /// A tagged section whose tags do not ascend.
    #[error("tag {0} is out of order")]
    TagOutOfOrder(u32),
    /// Bytes left over after the message.
    #[error("{0} bytes follow the message")]
    TrailingBytes(usize),
    /// A value too long for its length field.
    #[error("a value of {0} bytes or elements is too long for its length field")]
    TooLong(usize),
    /// A version of an API that this crate cannot read or write.
    #[error("{api} has no version {version}")]
    UnsupportedVersion {
        /// Of which API.
        api: ApiKey,
        /// The version asked for.
        version: i16,
    },
    /// An API key that is not in the table.
    #[error("API key {0} is not known")]
    UnknownApi(i16),
}

/// Bytes of the longest string, in both forms.
const LONGEST_STRING: usize = i16::MAX as usize;

/// Memory that decoding a frame of `len` bytes may take beside the frame itself. Small values can be some ten times
/// larger in memory than on the wire; big frames are records, which are not copied, and are granted less.
fn memory_budget(len: usize) -> usize {
    const SMALL: usize = 64 * 1024;
    const LARGE: usize = 64 * 1024 * 1024;
    len.saturating_mul(16)
        .min(len.saturating_mul(2).saturating_add(LARGE))
        .saturating_add(SMALL)
}

/// Reads primitive values from a frame. Byte strings come out as slices of the frame, without a copy.
#[derive(Clone, Debug)]
pub struct Decoder {
    bytes: Bytes,
    flexible: bool,
    budget: usize,
}

impl Decoder {
    /// A reader of the whole of `bytes`, with legacy lengths until told otherwise.
    pub fn new(bytes: Bytes) -> Self {
        let budget = memory_budget(bytes.len());
        Self {
            bytes,
            flexible: false,
            budget,
        }
    }

    /// Whether lengths are compact and structs end in a tagged section (KIP-482).
    pub fn flexible(&self) -> bool {
        self.flexible
    }

    /// Says which of the two forms follows.
    pub fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    /// Bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// What is not read yet.
    pub fn into_rest(self) -> Bytes {
        self.bytes
    }

    /// Ends the reading; bytes left over are an error.
    pub fn finish(&self) -> Result<(), WireError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(WireError::TrailingBytes(left)),
        }
    }

    fn need(&self, needed: usize) -> Result<(), WireError> {
        let remaining = self.remaining();
        if needed <= remaining {
            Ok(())
        } else {
            Err(WireError::Truncated { needed, remaining })
        }
    }

    /// Takes `size` bytes of memory for a decoded value from the budget.
    pub fn charge(&mut self, size: usize) -> Result<(), WireError> {
        self.budget = self.budget.checked_sub(size).ok_or(WireError::OverBudget)?;
        Ok(())
    }

    /// The next `len` bytes, as a slice of the frame.
    pub fn take(&mut self, len: usize) -> Result<Bytes, WireError> {
        self.need(len)?;
        Ok(self.bytes.split_to(len))
    }

    /// One byte; anything but 0 is true.
    pub fn get_bool(&mut self) -> Result<bool, WireError> {
        Ok(self.get_i8()? != 0)
    }

    /// A signed byte.
    pub fn get_i8(&mut self) -> Result<i8, WireError> {
        self.need(1)?;
        Ok(self.bytes.get_i8())
    }

    /// Two bytes, big-endian.
    pub fn get_i16(&mut self) -> Result<i16, WireError> {
        self.need(2)?;
        Ok(self.bytes.get_i16())
    }

    /// Four bytes, big-endian.
    pub fn get_i32(&mut self) -> Result<i32, WireError> {
        self.need(4)?;
        Ok(self.bytes.get_i32())
    }

    /// Eight bytes, big-endian.
    pub fn get_i64(&mut self) -> Result<i64, WireError> {
        self.need(8)?;
        Ok(self.bytes.get_i64())
    }

    /// Sixteen bytes; all zero means "none".
    pub fn get_uuid(&mut self) -> Result<Uuid, WireError> {
        self.need(16)?;
        Ok(Uuid::from_u128(self.bytes.get_u128()))
    }

    /// An unsigned integer in groups of seven bits, low group first, at most five bytes.
    pub fn get_unsigned_varint(&mut self) -> Result<u32, WireError> {
        u32::try_from(self.groups_of_seven(5)?).map_err(|_| WireError::VarintTooLong)
    }

    /// A signed integer of 32 bits, zigzag, at most five bytes.
    pub fn get_varint(&mut self) -> Result<i32, WireError> {
        let raw = self.get_unsigned_varint()?;
        Ok((raw >> 1) as i32 ^ -((raw & 1) as i32))
    }

    /// A signed integer of 64 bits, zigzag, at most ten bytes.
    pub fn get_varlong(&mut self) -> Result<i64, WireError> {
        let raw = self.groups_of_seven(10)?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    fn groups_of_seven(&mut self, most: u32) -> Result<u64, WireError> {
        let mut value = 0u64;
        for group in 0..most {
            self.need(1)?;
            let byte = self.bytes.get_u8();
            let bits = u64::from(byte & 0x7f);
            let shift = group * 7;
            if (bits << shift) >> shift != bits {
                return Err(WireError::VarintTooLong);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::VarintTooLong)
    }

    /// A compact length is one more than the true one, and 0 means null.
    fn compact_length(&mut self) -> Result<Option<usize>, WireError> {
        Ok(self
            .get_unsigned_varint()?
            .checked_sub(1)
            .map(|length| length as usize))
    }

    fn legacy_length(length: i64) -> Result<Option<usize>, WireError> {
        match length {
            -1 => Ok(None),
            _ => usize::try_from(length)
                .map(Some)
                .map_err(|_| WireError::NegativeLength(length)),
        }
    }

    /// A string in the form of this version, or null.
    pub fn get_string(&mut self) -> Result<Option<String>, WireError> {
        if !self.flexible {
            return self.get_legacy_string();
        }
        match self.compact_length()? {
            None => Ok(None),
            // Kafka keeps to the legacy limit in the compact form as well.
            Some(length) if length > LONGEST_STRING => Err(WireError::TooLong(length)),
            Some(length) => self.utf8(length).map(Some),
        }
    }

    /// A string with a length of two bytes, whatever the version; request headers have one.
    pub fn get_legacy_string(&mut self) -> Result<Option<String>, WireError> {
        let length = i64::from(self.get_i16()?);
        match Self::legacy_length(length)? {
            None => Ok(None),
            Some(length) => self.utf8(length).map(Some),
        }
    }

    fn utf8(&mut self, length: usize) -> Result<String, WireError> {
        self.need(length)?;
        self.charge(length)?;
        let text =
            std::str::from_utf8(&self.bytes[..length]).map_err(|_| WireError::InvalidUtf8)?;
        let text = text.to_owned();
        self.bytes.advance(length);
        Ok(text)
    }

    /// Bytes or records in the form of this version, as a slice of the frame, or null.
    pub fn get_bytes(&mut self) -> Result<Option<Bytes>, WireError> {
        let length = if self.flexible {
            self.compact_length()?
        } else {
            let length = i64::from(self.get_i32()?);
            Self::legacy_length(length)?
        };
        length.map(|length| self.take(length)).transpose()
    }

    /// The number of elements of an array, or null. `min_size` is the least an element takes on the wire and
    /// `size` what it takes in memory: the count is refused before anything is set aside for it.
    pub fn get_count(&mut self, min_size: usize, size: usize) -> Result<Option<usize>, WireError> {
        let count = if self.flexible {
            self.compact_length()?
        } else {
            let count = i64::from(self.get_i32()?);
            Self::legacy_length(count)?
        };
        if let Some(count) = count {
            self.need(count.saturating_mul(min_size))?;
            self.charge(count.saturating_mul(size))?;
        }
        Ok(count)
    }

    /// Hands each field of a tagged section to `field`, which returns whether it knew the tag and read it. What is
    /// not known is skipped. Tags must ascend, as KIP-482 asks, which also bounds the work.
    pub fn get_tagged(
        &mut self,
        mut field: impl FnMut(u32, &mut Self) -> Result<bool, WireError>,
    ) -> Result<(), WireError> {
        let count = self.get_unsigned_varint()?;
        let mut previous = None;
        for _ in 0..count {
            let tag = self.get_unsigned_varint()?;
            if previous.is_some_and(|previous| tag <= previous) {
                return Err(WireError::TagOutOfOrder(tag));
            }
            previous = Some(tag);
            let size = self.get_unsigned_varint()? as usize;
            let bytes = self.take(size)?;
            let mut inner = Self {
                bytes,
                flexible: self.flexible,
                budget: self.budget,
            };
            if field(tag, &mut inner)? {
                inner.finish()?;
            }
            self.budget = inner.budget;
        }
        Ok(())
    }
}

/// Byte strings at least this long are not copied when they are written: they become a part of their own.
const SHARED_LEAST: usize = 4096;

/// Writes primitive values into a growing buffer. What is long and shared (records) is taken as it is, so what was
/// written comes in parts.
#[derive(Debug, Default)]
pub struct Encoder {
    /// What was written before `bytes`.
    parts: Vec<Part>,
    /// Bytes in `parts`.
    before: usize,
    bytes: BytesMut,
    flexible: bool,
}

#[derive(Debug)]
enum Part {
    Own(BytesMut),
    Shared(Bytes),
}

impl Part {
    fn into_bytes(self) -> Bytes {
        match self {
            Self::Own(bytes) => bytes.freeze(),
            Self::Shared(bytes) => bytes,
        }
    }
}

impl Encoder {
    /// An empty buffer, with legacy lengths until told otherwise.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer with room for that many bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            bytes: BytesMut::with_capacity(capacity),
            ..Self::default()
        }
    }

    fn flexible_form() -> Self {
        Self {
            flexible: true,
            ..Self::default()
        }
    }

    /// Whether lengths are compact and structs end in a tagged section (KIP-482).
    pub fn flexible(&self) -> bool {
        self.flexible
    }

    /// Says which of the two forms follows.
    pub fn set_flexible(&mut self, flexible: bool) {
        self.flexible = flexible;
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.before + self.bytes.len()
    }

    /// Whether nothing is written yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was written, in one piece.
    pub fn finish(self) -> Bytes {
        if self.parts.is_empty() {
            return self.bytes.freeze();
        }
        let mut whole = BytesMut::with_capacity(self.len());
        for part in self.finish_parts() {
            whole.put(part);
        }
        whole.freeze()
    }

    /// What was written, in the parts it was made of: nothing long was copied.
    pub fn finish_parts(mut self) -> Vec<Bytes> {
        self.parts.push(Part::Own(self.bytes));
        self.parts.into_iter().map(Part::into_bytes).collect()
    }

    /// Overwrites the first four bytes; frames learn their size last.
    pub(crate) fn set_first_i32(&mut self, value: i32) {
        let first = match self.parts.first_mut() {
            Some(Part::Own(bytes)) => bytes,
            Some(Part::Shared(_)) => unreachable!("a length stands before what is shared"),
            None => &mut self.bytes,
        };
        first[..4].copy_from_slice(&value.to_be_bytes());
    }

    /// One byte, 1 for true.
    pub fn put_bool(&mut self, value: bool) {
        self.bytes.put_u8(u8::from(value));
    }

    /// A signed byte.
    pub fn put_i8(&mut self, value: i8) {
        self.bytes.put_i8(value);
    }

    /// Two bytes, big-endian.
    pub fn put_i16(&mut self, value: i16) {
        self.bytes.put_i16(value);
    }

    /// Four bytes, big-endian.
    pub fn put_i32(&mut self, value: i32) {
        self.bytes.put_i32(value);
    }

    /// Eight bytes, big-endian.
    pub fn put_i64(&mut self, value: i64) {
        self.bytes.put_i64(value);
    }

    /// Sixteen bytes.
    pub fn put_uuid(&mut self, value: Uuid) {
        self.bytes.put_slice(value.as_bytes());
    }

    /// Bytes as they are, without a length.
    pub fn put_raw(&mut self, bytes: &[u8]) {
        self.bytes.put_slice(bytes);
    }

    /// An unsigned integer in groups of seven bits, low group first.
    pub fn put_unsigned_varint(&mut self, value: u32) {
        self.put_groups_of_seven(u64::from(value));
    }

    /// A signed integer of 32 bits, zigzag.
    pub fn put_varint(&mut self, value: i32) {
        self.put_groups_of_seven(u64::from(((value << 1) ^ (value >> 31)) as u32));
    }

    /// A signed integer of 64 bits, zigzag.
    pub fn put_varlong(&mut self, value: i64) {
        self.put_groups_of_seven(((value << 1) ^ (value >> 63)) as u64);
    }

    fn put_groups_of_seven(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.put_u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.put_u8(value as u8);
    }

    fn put_compact_length(&mut self, length: usize) -> Result<(), WireError> {
        let raw = u32::try_from(length)
            .ok()
            .and_then(|length| length.checked_add(1));
        self.put_unsigned_varint(raw.ok_or(WireError::TooLong(length))?);
        Ok(())
    }

    /// A string in the form of this version, or null.
    pub fn put_string(&mut self, value: Option<&str>) -> Result<(), WireError> {
        if !self.flexible {
            return self.put_legacy_string(value);
        }
        match value {
            None => self.put_unsigned_varint(0),
            Some(text) => {
                if text.len() > LONGEST_STRING {
                    return Err(WireError::TooLong(text.len()));
                }
                self.put_compact_length(text.len())?;
                self.put_raw(text.as_bytes());
            }
        }
        Ok(())
    }

    /// A string with a length of two bytes, whatever the version.
    pub fn put_legacy_string(&mut self, value: Option<&str>) -> Result<(), WireError> {
        match value {
            None => self.put_i16(-1),
            Some(text) => {
                let length = text.len();
                self.put_i16(i16::try_from(length).map_err(|_| WireError::TooLong(length))?);
                self.put_raw(text.as_bytes());
            }
        }
        Ok(())
    }

    /// Bytes or records in the form of this version, or null.
    pub fn put_bytes(&mut self, value: Option<&[u8]>) -> Result<(), WireError> {
        self.put_count(value.map(<[u8]>::len))?;
        if let Some(bytes) = value {
            self.put_raw(bytes);
        }
        Ok(())
    }

    /// How many of these bytes [`Self::put_shared_bytes`] copies.
    pub(crate) fn bytes_copied(bytes: &Bytes) -> usize {
        match bytes.len() {
            length if length >= SHARED_LEAST => 0,
            length => length,
        }
    }

    /// The same, without a copy if they are many.
    pub fn put_shared_bytes(&mut self, value: Option<&Bytes>) -> Result<(), WireError> {
        match value {
            Some(bytes) if Self::bytes_copied(bytes) < bytes.len() => {
                self.put_count(Some(bytes.len()))?;
                let own = self.bytes.split();
                self.before += own.len() + bytes.len();
                self.parts.push(Part::Own(own));
                self.parts.push(Part::Shared(bytes.clone()));
                Ok(())
            }
            _ => self.put_bytes(value.map(Bytes::as_ref)),
        }
    }

    /// The number of elements of an array, or null.
    pub fn put_count(&mut self, count: Option<usize>) -> Result<(), WireError> {
        match (self.flexible, count) {
            (true, None) => self.put_unsigned_varint(0),
            (true, Some(count)) => self.put_compact_length(count)?,
            (false, None) => self.put_i32(-1),
            (false, Some(count)) => {
                self.put_i32(i32::try_from(count).map_err(|_| WireError::TooLong(count))?);
            }
        }
        Ok(())
    }
}

/// The fields of one tagged section, gathered before their number is known.
#[derive(Debug)]
pub struct Tagged {
    count: u32,
    fields: Encoder,
}

impl Tagged {
    /// No fields yet; values inside are written in the flexible form.
    pub fn new() -> Self {
        Self {
            count: 0,
            fields: Encoder::flexible_form(),
        }
    }

    /// Adds a field; tags must be added in ascending order.
    pub fn add(
        &mut self,
        tag: u32,
        value: impl FnOnce(&mut Encoder) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let mut inner = Encoder::flexible_form();
        value(&mut inner)?;
        self.count += 1;
        self.fields.put_unsigned_varint(tag);
        let size = inner.len();
        self.fields
            .put_unsigned_varint(u32::try_from(size).map_err(|_| WireError::TooLong(size))?);
        self.fields.put_raw(&inner.finish());
        Ok(())
    }

    /// Writes the section.
    pub fn write(self, out: &mut Encoder) {
        out.put_unsigned_varint(self.count);
        out.put_raw(&self.fields.finish());
    }
}

impl Default for Tagged {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
