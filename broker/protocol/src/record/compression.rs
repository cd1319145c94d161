//! The four codecs a batch may be compressed with.
//! Law: what comes out is never larger than the caller's limit; a bomb is an error before it is an allocation.

use std::io::{Read, Write};

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
    let limit = limit.for_input(input.len());
    match codec {
        Codec::None if input.len() > limit => Err(CompressionError::TooLarge { limit }),
        Codec::None => Ok(Bytes::copy_from_slice(input)),
        Codec::Gzip => read_bounded(codec, flate2::read::MultiGzDecoder::new(input), limit),
        Codec::Snappy => xerial::decompress(input, limit),
        Codec::Lz4 => read_bounded(codec, lz4_flex::frame::FrameDecoder::new(input), limit),
        Codec::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(input).map_err(|error| {
                CompressionError::Malformed {
                    codec,
                    reason: error.to_string(),
                }
            })?;
            // Java's and librdkafka's levels stay below 2^23 (8 MiB); 2^27 is what the library itself would take.
            decoder
                .window_log_max(27)
                .map_err(|error| CompressionError::Malformed {
                    codec,
                    reason: error.to_string(),
                })?;
            read_bounded(codec, decoder, limit)
        }
        Codec::Unknown(id) => Err(CompressionError::UnknownCodec(id)),
    }
}

/// Reads to the end, but never more than `limit`, and grows only as data comes.
fn read_bounded(codec: Codec, decoder: impl Read, limit: usize) -> Result<Bytes, CompressionError> {
    let mut out = Vec::new();
    decoder
        .take(limit as u64 + 1)
        .read_to_end(&mut out)
        .map_err(|error| CompressionError::Malformed {
            codec,
            reason: error.to_string(),
        })?;
    if out.len() > limit {
        return Err(CompressionError::TooLarge { limit });
    }
    Ok(out.into())
}

/// The framing that Java puts around snappy blocks: a header of 16 bytes, then blocks, each behind its size.
mod xerial {
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
        if !input.starts_with(&MAGIC) {
            // Some clients send a bare block. It cannot be mistaken: one that began like the magic would be a block
            // whose first element copies from before its beginning, which no block may.
            block(input, limit, &mut out)?;
            return Ok(out.into());
        }
        let mut rest = input
            .get(HEADER..)
            .ok_or_else(|| malformed(&"the header is cut off"))?;
        while !rest.is_empty() {
            let (size, after) = rest
                .split_first_chunk::<4>()
                .ok_or_else(|| malformed(&"a block size is cut off"))?;
            let size = u32::from_be_bytes(*size) as usize;
            let (head, tail) = after
                .split_at_checked(size)
                .ok_or_else(|| malformed(&"a block is cut off"))?;
            block(head, limit, &mut out)?;
            rest = tail;
        }
        Ok(out.into())
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
