//! Walking through the batches of a log file, by their headers or as a whole.
//! Law: reads only, in chunks, never more memory than one batch or one chunk.

use std::io;

use kuorum_protocol::Offset;
use kuorum_protocol::record::batch::claimed_size;
use kuorum_protocol::record::{BatchView, HEADER_SIZE, LENGTH_OFFSET, LOG_OVERHEAD};

use crate::dir::DirFile;

/// Bytes read at once when only headers matter.
const HEADER_CHUNK: usize = 8 * 1024;
/// Bytes read at once when every byte matters.
const BATCH_CHUNK: usize = 256 * 1024;

/// The header of a batch somewhere in a file.
#[derive(Clone, Debug)]
pub(crate) struct BatchHeader {
    /// The header with the length of an empty batch, so that it can be viewed on its own.
    bytes: [u8; HEADER_SIZE],
    pub(crate) position: u64,
    pub(crate) size: u64,
}

impl BatchHeader {
    /// Everything the header says; the view's size, payload and CRC are not the batch's.
    pub(crate) fn view(&self) -> BatchView<'_> {
        BatchView::parse(&self.bytes).expect("a header with its own length is a batch")
    }
}

/// A walk from one position of a file to another.
#[derive(Debug)]
pub(crate) struct Scan<'a, F> {
    file: &'a F,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
    buffer_at: u64,
    read_bytes: u64,
}

/// One step of a walk.
#[derive(Debug)]
pub(crate) enum Step<T> {
    Batch(T),
    /// What stands here is no batch, or not a whole one.
    Bad(&'static str),
    End,
}

impl<'a, F: DirFile> Scan<'a, F> {
    pub(crate) fn new(file: &'a F, position: u64, end: u64) -> Self {
        Self {
            file,
            position,
            end,
            buffer: Vec::new(),
            buffer_at: 0,
            read_bytes: 0,
        }
    }

    /// Where the next batch begins.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes read from the file so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// The bytes from `at`, at least `wanted` of them unless the walk ends before.
    fn bytes(&mut self, at: u64, wanted: usize, chunk: usize) -> io::Result<&[u8]> {
        let left = (self.end - at).min(usize::MAX as u64) as usize;
        let wanted = wanted.min(left);
        let buffered =
            self.buffer_at <= at && at + wanted as u64 <= self.buffer_at + self.buffer.len() as u64;
        if !buffered {
            self.buffer.resize(wanted.max(chunk.min(left)), 0);
            let read = self.file.read_full_at(&mut self.buffer, at)?;
            self.buffer.truncate(read);
            self.buffer_at = at;
            self.read_bytes += read as u64;
        }
        Ok(&self.buffer[(at - self.buffer_at) as usize..])
    }

    fn size_here(&mut self, chunk: usize) -> io::Result<Step<usize>> {
        let (position, end) = (self.position, self.end);
        if position >= end {
            return Ok(Step::End);
        }
        let bytes = self.bytes(position, HEADER_SIZE, chunk)?;
        if bytes.len() < HEADER_SIZE {
            return Ok(Step::Bad("the file ends inside a batch's header"));
        }
        Ok(match claimed_size(bytes) {
            Ok(size) if position + size as u64 > end => Step::Bad("the file ends inside a batch"),
            Ok(size) => Step::Batch(size),
            Err(_) => Step::Bad("no batch begins here"),
        })
    }

    /// The next batch's header.
    pub(crate) fn next_header(&mut self) -> io::Result<Step<BatchHeader>> {
        let size = match self.size_here(HEADER_CHUNK)? {
            Step::Batch(size) => size,
            Step::Bad(reason) => return Ok(Step::Bad(reason)),
            Step::End => return Ok(Step::End),
        };
        let position = self.position;
        let mut header = [0; HEADER_SIZE];
        header.copy_from_slice(&self.bytes(position, HEADER_SIZE, HEADER_CHUNK)?[..HEADER_SIZE]);
        let own_length = (HEADER_SIZE - LOG_OVERHEAD) as i32;
        header[LENGTH_OFFSET..LOG_OVERHEAD].copy_from_slice(&own_length.to_be_bytes());
        self.position += size as u64;
        Ok(Step::Batch(BatchHeader {
            bytes: header,
            position,
            size: size as u64,
        }))
    }

    /// The next batch as a whole, its CRC checked.
    pub(crate) fn next_batch(&mut self) -> io::Result<Step<BatchView<'_>>> {
        let size = match self.size_here(BATCH_CHUNK)? {
            Step::Batch(size) => size,
            Step::Bad(reason) => return Ok(Step::Bad(reason)),
            Step::End => return Ok(Step::End),
        };
        let position = self.position;
        let bytes = self.bytes(position, size, BATCH_CHUNK)?;
        let valid = BatchView::parse(bytes).is_ok_and(|batch| batch.crc_is_valid());
        if !valid {
            return Ok(Step::Bad("the batch's CRC does not match its bytes"));
        }
        self.position += size as u64;
        let bytes = &self.buffer[(position - self.buffer_at) as usize..];
        Ok(Step::Batch(
            BatchView::parse(bytes).expect("it was parsed a moment ago"),
        ))
    }

    /// Goes back to the batch that began at `position`.
    pub(crate) fn step_back(&mut self, position: u64) {
        self.position = position;
    }
}

/// What lies behind the last good batch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remainder {
    /// Bytes up to the last one that is not zero.
    pub(crate) used: u64,
    /// A whole, valid batch lies further on.
    pub(crate) valid_batch: bool,
}

/// Looks at everything from `position` to `end`. A batch counts if its offset is at least `expected`.
pub(crate) fn remainder<F: DirFile>(
    file: &F,
    position: u64,
    end: u64,
    expected: Offset,
) -> io::Result<Remainder> {
    let mut used = 0;
    let mut chunk = vec![0; BATCH_CHUNK];
    let mut at = position;
    while at < end {
        let wanted = chunk.len().min((end - at) as usize);
        let read = file.read_full_at(&mut chunk[..wanted], at)?;
        if read == 0 {
            break;
        }
        if let Some(last) = chunk[..read].iter().rposition(|byte| *byte != 0) {
            used = at + last as u64 + 1 - position;
        }
        at += read as u64;
    }
    let valid_batch = used > 0 && find_batch(file, position, end, expected)?;
    Ok(Remainder { used, valid_batch })
}

/// Whether a valid batch begins anywhere in the range.
fn find_batch<F: DirFile>(file: &F, from: u64, end: u64, expected: Offset) -> io::Result<bool> {
    let mut chunk = vec![0; BATCH_CHUNK];
    let mut at = from;
    while at + HEADER_SIZE as u64 <= end {
        let wanted = chunk.len().min((end - at) as usize);
        let read = file.read_full_at(&mut chunk[..wanted], at)?;
        if read < HEADER_SIZE {
            break;
        }
        let starts = read - HEADER_SIZE + 1;
        for start in 0..starts {
            let Ok(size) = claimed_size(&chunk[start..read]) else {
                continue;
            };
            let position = at + start as u64;
            if position + size as u64 > end {
                continue;
            }
            let mut batch = vec![0; size];
            file.read_full_at(&mut batch, position)?;
            let valid = BatchView::parse(&batch)
                .is_ok_and(|batch| batch.base_offset() >= expected && batch.crc_is_valid());
            if valid {
                return Ok(true);
            }
        }
        at += starts as u64;
    }
    Ok(false)
}
