//! Record batches, format 2: the bytes that clients send, logs keep and followers copy, always the same ones.
//! Law: pure and bounded. A view never copies; only reading single records of a compressed batch allocates, and
//! never more than the caller's limit.

pub mod batch;
pub mod compression;
pub mod control;
#[allow(clippy::module_inception)]
pub mod record;
pub mod validate;
pub mod varint;
pub mod writer;

pub use batch::{
    BatchError, BatchMut, BatchView, Batches, HEADER_SIZE, LENGTH_OFFSET, LOG_OVERHEAD, batches,
};
pub use compression::{Codec, CompressionError, DecompressLimit};
pub use control::{ControlType, end_marker};
pub use record::{Record, RecordError, RecordsReader};
pub use validate::{
    InvalidBatch, ProduceLimits, Produced, TimestampType, validate_produced, validate_within,
};
pub use writer::{BatchBuilder, Header};

#[cfg(test)]
mod tests;
