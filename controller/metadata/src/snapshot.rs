//! An image as a file: an envelope that says what it is, and the records that build it.
//! Law: a file that was cut, changed or written by a newer version is refused by name, and reading one never takes more
//! memory than its envelope declares and the limit allows.
//!
//! The envelope, big-endian: magic (8 bytes) · format version (u16) · reserved (u16, zero) · offset (i64) · length of the
//! records as text (u64) · length of the body (u64) · CRC-32C of all that precedes it and of the body (u32) · body, which
//! is the records as lines of JSON, compressed by zstd. The history of events travels behind the image, in an envelope of
//! the same form.

use std::io::Read;

use crate::image::MetadataImage;
use crate::record::MetadataRecord;

const MAGIC: [u8; 8] = *b"KUORSNAP";
const HISTORY_MAGIC: [u8; 8] = *b"KUORHIST";
const FORMAT: u16 = 1;
const HEADER: usize = 8 + 2 + 2 + 8 + 8 + 8;
const ENVELOPE: usize = HEADER + 4;
/// Fast: a snapshot is written while the cluster works.
const LEVEL: i32 = 1;
/// The most text a snapshot may hold: some millions of partitions.
const LIMIT: u64 = 2 << 30;

/// Why a snapshot cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It does not begin as one.
    #[error("this is not a metadata snapshot")]
    NotASnapshot,
    /// A newer version wrote it.
    #[error("the metadata snapshot has format {0}, this build reads {FORMAT}: install a newer one")]
    NewerFormat(u16),
    /// Bytes are missing or too many.
    #[error("the metadata snapshot is {found} bytes long, not {expected}")]
    WrongLength {
        /// What the envelope says.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// Its checksum does not match.
    #[error("the metadata snapshot is damaged: its checksum does not match")]
    Damaged,
    /// It declares more than is allowed.
    #[error("the metadata snapshot declares {0} bytes of records, more than {LIMIT}")]
    TooLarge(u64),
    /// The checksum is right and the content is not: written by something else.
    #[error("the metadata snapshot holds what this build does not understand: {0}")]
    NotUnderstood(String),
}

/// The bytes of a snapshot file.
pub fn encode(image: &MetadataImage) -> Vec<u8> {
    let mut text = Vec::new();
    for record in image.to_records() {
        serde_json::to_writer(&mut text, &record).expect("records hold nothing JSON cannot say");
        text.push(b'\n');
    }
    seal(MAGIC, image.offset(), &text)
}

/// The lines of a history of events as of `offset` in their envelope.
pub(crate) fn seal_history(offset: i64, text: &[u8]) -> Vec<u8> {
    seal(HISTORY_MAGIC, offset, text)
}

fn seal(magic: [u8; 8], offset: i64, text: &[u8]) -> Vec<u8> {
    let body = zstd::bulk::compress(text, LEVEL).expect("compressing into memory does not fail");
    let mut bytes = Vec::with_capacity(ENVELOPE + body.len());
    bytes.extend(magic);
    bytes.extend(FORMAT.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(offset.to_be_bytes());
    bytes.extend((text.len() as u64).to_be_bytes());
    bytes.extend((body.len() as u64).to_be_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), &body);
    bytes.extend(crc.to_be_bytes());
    bytes.extend(body);
    bytes
}

/// The image in a snapshot file.
pub fn decode(bytes: &[u8]) -> Result<MetadataImage, SnapshotError> {
    let (offset, text) = open(MAGIC, bytes)?;
    let records = records(&text)?;
    Ok(MetadataImage::from_records(offset, &records))
}

/// The lines of a history of events.
pub(crate) fn open_history(bytes: &[u8]) -> Result<Vec<u8>, SnapshotError> {
    open(HISTORY_MAGIC, bytes).map(|(_, text)| text)
}

/// Where the image in a snapshot ends and what travels behind it begins. Nothing is checked here.
pub fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    let image = match bytes.len() < ENVELOPE {
        true => bytes.len(),
        false => (number(bytes, 28) as usize)
            .saturating_add(ENVELOPE)
            .min(bytes.len()),
    };
    bytes.split_at(image)
}

fn open(magic: [u8; 8], bytes: &[u8]) -> Result<(i64, Vec<u8>), SnapshotError> {
    if bytes.len() < 10 || bytes[..8] != magic {
        return Err(SnapshotError::NotASnapshot);
    }
    let format = u16::from_be_bytes([bytes[8], bytes[9]]);
    if format > FORMAT {
        return Err(SnapshotError::NewerFormat(format));
    }
    let found = bytes.len() as u64;
    if bytes.len() < ENVELOPE {
        return Err(SnapshotError::WrongLength {
            expected: ENVELOPE as u64,
            found,
        });
    }
    let offset = number(bytes, 12) as i64;
    let text_length = number(bytes, 20);
    let expected = number(bytes, 28).saturating_add(ENVELOPE as u64);
    if expected != found {
        return Err(SnapshotError::WrongLength { expected, found });
    }
    let body = &bytes[ENVELOPE..];
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..HEADER]), body);
    if crc.to_be_bytes() != bytes[HEADER..ENVELOPE] {
        return Err(SnapshotError::Damaged);
    }
    if text_length > LIMIT {
        return Err(SnapshotError::TooLarge(text_length));
    }
    Ok((offset, unpack(body, text_length)?))
}

fn unpack(body: &[u8], text_length: u64) -> Result<Vec<u8>, SnapshotError> {
    let not_understood =
        |why: &dyn std::fmt::Display| SnapshotError::NotUnderstood(why.to_string());
    let decoder = zstd::stream::read::Decoder::with_buffer(body).map_err(|e| not_understood(&e))?;
    // One byte more than declared is enough to see that there is more; the buffer grows only as bytes come.
    let mut text = Vec::new();
    decoder
        .take(text_length + 1)
        .read_to_end(&mut text)
        .map_err(|e| not_understood(&e))?;
    if text.len() as u64 != text_length {
        return Err(not_understood(&"its records are not as long as declared"));
    }
    Ok(text)
}

fn records(text: &[u8]) -> Result<Vec<MetadataRecord>, SnapshotError> {
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            serde_json::from_slice(line)
                .map_err(|error| SnapshotError::NotUnderstood(error.to_string()))
        })
        .collect()
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(eight)
}
