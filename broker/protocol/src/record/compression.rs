//! The four codecs a batch may be compressed with.
//! Law: what comes out is never larger than the caller's limit; a bomb is an error before it is an allocation.

use std::cell::Cell;
use std::io::{self, BufRead, Read, Write};
use std::rc::Rc;

use bytes::Bytes;
use thiserror::Error;

use super::batch::attributes::CODEC_MASK;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Codec {
    /// Not at all.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// Snappy blocks, in the framing of the Xerial library when written; also bare when read.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard frames (KIP-110).
    Zstd,
    /// An id that means nothing.
    Unknown(u8),
}

impl Codec {
    /// The codec that the attributes of a batch name.
    pub fn of_attributes(attributes: i16) -> Self {
        match attributes & CODEC_MASK {
            0 => Self::None,
            1 => Self::Gzip,
            2 => Self::Snappy,
            3 => Self::Lz4,
            4 => Self::Zstd,
            other => Self::Unknown(other as u8),
        }
    }

    /// Its number in the attributes.
    pub fn id(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
            Self::Unknown(id) => i16::from(id),
        }
    }

    /// Its name in `compression.type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Unknown(_) => "unknown",
        }
    }

    /// The codec of that name, as `compression.type` has it.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "none" | "uncompressed" => Self::None,
            "gzip" => Self::Gzip,
            "snappy" => Self::Snappy,
            "lz4" => Self::Lz4,
            "zstd" => Self::Zstd,
            _ => return None,
        })
    }
}

impl std::fmt::Display for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why bytes could not be compressed or decompressed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompressionError {
    /// The id of the codec means nothing.
    #[error("there is no codec {0}")]
    UnknownCodec(u8),
    /// The bytes are not what the codec writes.
    #[error("not valid {codec}: {reason}")]
    Malformed {
        /// The codec in question.
        codec: Codec,
        /// What its library says.
        reason: String,
    },
    /// More would come out than the caller allows.
    #[error("decompresses to more than {limit} bytes")]
    TooLarge {
        /// The limit that was passed.
        limit: usize,
    },
}

/// How much may come out of a decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecompressLimit {
    /// Never more bytes than this.
    pub max_bytes: usize,
    /// Never more than this many times the compressed size; small inputs may always reach [`Self::FLOOR`].
    pub max_ratio: usize,
}

impl DecompressLimit {
    /// What any input may decompress to, whatever the ratio.
    pub const FLOOR: usize = 16 * 1024 * 1024;
    /// What a broker allows a batch of a client.
    pub const PRODUCED: Self = Self {
        max_bytes: 128 * 1024 * 1024,
        max_ratio: 64,
    };
    /// What a consumer allows a batch that a broker has accepted.
    pub const CONSUMED: Self = Self {
        max_bytes: 1024 * 1024 * 1024,
        max_ratio: usize::MAX,
    };

    /// The same, and never more than `bytes`.
    #[must_use]
    pub fn within(self, bytes: usize) -> Self {
        Self {
            max_bytes: self.max_bytes.min(bytes),
            ..self
        }
    }

    /// A limit in bytes alone.
    pub fn bytes(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            max_ratio: usize::MAX,
        }
    }

    /// The limit for an input of `compressed` bytes.
    pub fn for_input(self, compressed: usize) -> usize {
        compressed
            .saturating_mul(self.max_ratio)
            .max(Self::FLOOR)
            .min(self.max_bytes)
    }
}

/// Compresses `input`.
///
/// # Errors
/// If the codec is unknown; the libraries themselves do not fail on memory.
pub fn compress(codec: Codec, input: &[u8]) -> Result<Vec<u8>, CompressionError> {
    let malformed = |error: &dyn std::fmt::Display| CompressionError::Malformed {
        codec,
        reason: error.to_string(),
    };
    match codec {
        Codec::None => Ok(input.to_vec()),
        Codec::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(input).map_err(|e| malformed(&e))?;
            encoder.finish().map_err(|e| malformed(&e))
        }
        Codec::Snappy => xerial::compress(input),
        Codec::Lz4 => {
            let info = lz4_flex::frame::FrameInfo::new()
                .block_mode(lz4_flex::frame::BlockMode::Independent)
                .block_size(lz4_flex::frame::BlockSize::Max64KB);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(input).map_err(|e| malformed(&e))?;
            encoder.finish().map_err(|e| malformed(&e))
        }
        Codec::Zstd => zstd::stream::encode_all(input, zstd::DEFAULT_COMPRESSION_LEVEL)
            .map_err(|e| malformed(&e)),
        Codec::Unknown(id) => Err(CompressionError::UnknownCodec(id)),
    }
}

/// Decompresses `input`, which must be whole.
///
/// # Errors
/// If the input is malformed or cut off, or more than `limit` would come out.
pub fn decompress(
    codec: Codec,
    input: &[u8],
    limit: DecompressLimit,
) -> Result<Bytes, CompressionError> {
    let bytes = limit.for_input(input.len());
    match codec {
        Codec::None if input.len() > bytes => Err(CompressionError::TooLarge { limit: bytes }),
        Codec::None => Ok(Bytes::copy_from_slice(input)),
        Codec::Snappy => xerial::decompress(input, bytes),
        _ => {
            let mut reader = Decompressor::new(codec, input, limit)?;
            let mut out = Vec::new();
            let read = reader.read_to_end(&mut out);
            read.map_err(|error| CompressionError::of_reading(codec, error))?;
            Ok(out.into())
        }
    }
}

impl CompressionError {
    /// What an error of a [`Decompressor`] was.
    pub(crate) fn of_reading(codec: Codec, error: io::Error) -> Self {
        let malformed = |error: io::Error| Self::Malformed {
            codec,
            reason: error.to_string(),
        };
        error.downcast::<Self>().unwrap_or_else(malformed)
    }
}

/// What a library has not read yet of its input. Libraries stop where what they know ends, and say nothing of what follows; other
/// libraries refuse it.
#[derive(Clone, Debug)]
struct Rest<'a>(Rc<Cell<&'a [u8]>>);

impl Read for Rest<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut rest = self.0.get();
        let read = rest.read(buffer)?;
        self.0.set(rest);
        Ok(read)
    }
}

impl BufRead for Rest<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.0.get())
    }

    fn consume(&mut self, amount: usize) {
        self.0.set(&self.0.get()[amount..]);
    }
}

/// What comes out of a decompression, as it is read: in memory are the codec's own buffers and no more. The input must be one whole frame and
/// nothing else: what some clients cannot read is not accepted from any. Its errors are [`CompressionError`]s in an `io::Error`, or the
/// library's.
pub(crate) struct Decompressor<'a> {
    codec: Codec,
    input: Box<dyn Read + 'a>,
    rest: Rest<'a>,
    limit: usize,
    left: usize,
}

impl<'a> Decompressor<'a> {
    /// # Errors
    /// If the codec means nothing, or its library refuses the input at once.
    pub(crate) fn new(
        codec: Codec,
        input: &'a [u8],
        limit: DecompressLimit,
    ) -> Result<Self, CompressionError> {
        let limit = limit.for_input(input.len());
        let rest = Rest(Rc::new(Cell::new(input)));
        let of_rest = rest.clone();
        let input: Box<dyn Read + 'a> = match codec {
            Codec::None => Box::new(of_rest),
            Codec::Gzip => Box::new(flate2::bufread::GzDecoder::new(of_rest)),
            Codec::Snappy => {
                // It looks at all of its blocks itself.
                rest.0.set(&[]);
                Box::new(xerial::Reader::new(input, limit)?)
            }
            Codec::Lz4 => {
                lz4::is_one_frame(input).map_err(|reason| CompressionError::Malformed {
                    codec,
                    reason: reason.to_owned(),
                })?;
                Box::new(lz4_flex::frame::FrameDecoder::new(of_rest))
            }
            Codec::Zstd => {
                let malformed = |error| CompressionError::of_reading(codec, error);
                let decoder = zstd::stream::read::Decoder::with_buffer(of_rest);
                let mut decoder = decoder.map_err(malformed)?.single_frame();
                // Java's and librdkafka's levels stay below 2^23 (8 MiB); 2^27 is what the library itself would take.
                decoder.window_log_max(27).map_err(malformed)?;
                Box::new(decoder)
            }
            Codec::Unknown(id) => return Err(CompressionError::UnknownCodec(id)),
        };
        Ok(Self {
            codec,
            input,
            rest,
            limit,
            left: limit,
        })
    }

    /// How much has come out so far.
    pub(crate) fn unpacked(&self) -> usize {
        self.limit - self.left
    }
}

impl Read for Decompressor<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        match self.left.checked_sub(read) {
            Some(left) => self.left = left,
            None => {
                self.left = 0;
                let limit = self.limit;
                return Err(io::Error::other(CompressionError::TooLarge { limit }));
            }
        }
        let behind = self.rest.0.get().len();
        if read == 0 && !buffer.is_empty() && behind > 0 {
            return Err(io::Error::other(CompressionError::Malformed {
                codec: self.codec,
                reason: format!("{behind} bytes follow its end"),
            }));
        }
        Ok(read)
    }
}

/// Where an LZ4 frame ends: the library takes a missing end mark for an end, and a second frame for more of the first.
mod lz4 {
    const MAGIC: u32 = 0x184D_2204;
    const HAS_BLOCK_CHECKSUMS: u8 = 1 << 4;
    const HAS_CONTENT_SIZE: u8 = 1 << 3;
    const HAS_CONTENT_CHECKSUM: u8 = 1 << 2;
    const HAS_DICTIONARY: u8 = 1;
    const IS_UNCOMPRESSED: u32 = 1 << 31;

    /// Whether that is one frame, from its magic to its end mark, with nothing behind it.
    pub(super) fn is_one_frame(input: &[u8]) -> Result<(), &'static str> {
        const CUT_OFF: &str = "the frame is cut off";
        fn word(rest: &mut &[u8]) -> Result<u32, &'static str> {
            let (word, after) = rest.split_first_chunk::<4>().ok_or(CUT_OFF)?;
            *rest = after;
            Ok(u32::from_le_bytes(*word))
        }
        let mut rest = input;
        if word(&mut rest)? != MAGIC {
            return Err("it does not begin with a frame");
        }
        let flags = *rest.first().ok_or(CUT_OFF)?;
        let has = |flag: u8| flags & flag != 0;
        // Flags, block size, what they announce, and the header's checksum.
        let header =
            3 + 8 * usize::from(has(HAS_CONTENT_SIZE)) + 4 * usize::from(has(HAS_DICTIONARY));
        rest = rest.get(header..).ok_or(CUT_OFF)?;
        let checksum = 4 * usize::from(has(HAS_BLOCK_CHECKSUMS));
        loop {
            let size = word(&mut rest)?;
            if size == 0 {
                break;
            }
            let size = (size & !IS_UNCOMPRESSED) as usize + checksum;
            rest = rest.get(size..).ok_or(CUT_OFF)?;
        }
        let end = 4 * usize::from(has(HAS_CONTENT_CHECKSUM));
        match rest.get(end..) {
            None => Err(CUT_OFF),
            Some([]) => Ok(()),
            Some(_) => Err("bytes follow the frame"),
        }
    }
}

/// The framing that Java puts around snappy blocks: a header of 16 bytes, then blocks, each behind its size.
mod xerial {
    use std::io::{self, Read};

    use bytes::Bytes;

    use super::{Codec, CompressionError};

    const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
    const VERSION: [u8; 4] = 1i32.to_be_bytes();
    const HEADER: usize = 16;
    const BLOCK: usize = 32 * 1024;

    fn malformed(reason: &impl ToString) -> CompressionError {
        CompressionError::Malformed {
            codec: Codec::Snappy,
            reason: reason.to_string(),
        }
    }

    pub(super) fn compress(input: &[u8]) -> Result<Vec<u8>, CompressionError> {
        let mut out = Vec::with_capacity(HEADER + input.len() / 2);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION);
        out.extend_from_slice(&VERSION);
        let mut encoder = snap::raw::Encoder::new();
        for block in input.chunks(BLOCK) {
            let compressed = encoder
                .compress_vec(block)
                .map_err(|error| malformed(&error))?;
            out.extend_from_slice(&(compressed.len() as u32).to_be_bytes());
            out.extend_from_slice(&compressed);
        }
        Ok(out)
    }

    pub(super) fn decompress(input: &[u8], limit: usize) -> Result<Bytes, CompressionError> {
        let mut out = Vec::new();
        let mut blocks = Blocks::new(input)?;
        while let Some(head) = blocks.next()? {
            block(head, limit, &mut out)?;
        }
        Ok(out.into())
    }

    /// The compressed blocks of an input.
    struct Blocks<'a> {
        rest: &'a [u8],
        framed: bool,
    }

    impl<'a> Blocks<'a> {
        fn new(input: &'a [u8]) -> Result<Self, CompressionError> {
            // Some clients send a bare block. It cannot be mistaken: one that began like the magic would be a block
            // whose first element copies from before its beginning, which no block may.
            let framed = input.starts_with(&MAGIC);
            let begin = if framed { HEADER } else { 0 };
            let rest = input
                .get(begin..)
                .ok_or_else(|| malformed(&"the header is cut off"))?;
            if !framed && rest.is_empty() {
                return Err(malformed(&"not even a block is here"));
            }
            Ok(Self { rest, framed })
        }

        fn next(&mut self) -> Result<Option<&'a [u8]>, CompressionError> {
            if self.rest.is_empty() {
                return Ok(None);
            }
            if !self.framed {
                return Ok(Some(std::mem::take(&mut self.rest)));
            }
            let (size, after) = self
                .rest
                .split_first_chunk::<4>()
                .ok_or_else(|| malformed(&"a block size is cut off"))?;
            let size = u32::from_be_bytes(*size) as usize;
            let (head, tail) = after
                .split_at_checked(size)
                .ok_or_else(|| malformed(&"a block is cut off"))?;
            self.rest = tail;
            Ok(Some(head))
        }
    }

    /// Reads one block after the other, each in the same buffer.
    pub(super) struct Reader<'a> {
        blocks: Blocks<'a>,
        limit: usize,
        block: Vec<u8>,
        read: usize,
    }

    impl<'a> Reader<'a> {
        /// No block may hold more than `limit`.
        pub(super) fn new(input: &'a [u8], limit: usize) -> Result<Self, CompressionError> {
            Ok(Self {
                blocks: Blocks::new(input)?,
                limit,
                block: Vec::new(),
                read: 0,
            })
        }
    }

    impl Read for Reader<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            while self.read == self.block.len() {
                let Some(next) = self.blocks.next().map_err(io::Error::other)? else {
                    return Ok(0);
                };
                self.block.clear();
                self.read = 0;
                block(next, self.limit, &mut self.block).map_err(io::Error::other)?;
            }
            let wanted = buffer.len().min(self.block.len() - self.read);
            buffer[..wanted].copy_from_slice(&self.block[self.read..self.read + wanted]);
            self.read += wanted;
            Ok(wanted)
        }
    }

    /// Appends one decompressed block to `out`, which stays within `limit`.
    fn block(input: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), CompressionError> {
        let claimed = snap::raw::decompress_len(input).map_err(|error| malformed(&error))?;
        let begin = out.len();
        if claimed > limit - begin {
            return Err(CompressionError::TooLarge { limit });
        }
        // No element of snappy yields more than 64 bytes for two of input (a copy), so a larger claim is a lie.
        if claimed > input.len().saturating_mul(64) {
            return Err(malformed(&"the block claims more than its bytes can hold"));
        }
        out.resize(begin + claimed, 0);
        let written = snap::raw::Decoder::new()
            .decompress(input, &mut out[begin..])
            .map_err(|error| malformed(&error))?;
        out.truncate(begin + written);
        Ok(())
    }
}
