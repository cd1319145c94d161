//! What can go wrong with a log, by what the caller can do about it.
//! Law: an IO error is never retried; it becomes a [`StorageFailure`] that every later call repeats.

use std::io;
use std::sync::Arc;

use kuorum_protocol::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, Sequence};
use thiserror::Error;

/// The disk said no. Final for the log and for its directory.
#[derive(Clone, Debug, Error)]
#[error("{what} in {path}: {cause}")]
pub struct StorageFailure {
    /// What was being done.
    pub what: &'static str,
    /// The directory it was done in.
    pub path: String,
    /// What the system said.
    pub cause: Arc<io::Error>,
}

/// Why a batch was not appended. Nothing was changed, except after `Storage`.
#[derive(Clone, Debug, Error)]
pub enum AppendError {
    /// The batch is larger than `max.message.bytes`.
    #[error("a batch of {size} bytes is larger than the {max} that max.message.bytes allows")]
    TooLarge {
        /// Bytes of the batch.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// The batch does not fit into a segment.
    #[error("a batch of {size} bytes is larger than a segment of {segment_bytes}")]
    LargerThanSegment {
        /// Bytes of the batch.
        size: usize,
        /// `segment.bytes`.
        segment_bytes: u64,
    },
    /// The bytes are not a valid batch.
    #[error("the batch for offset {offset} is damaged: {reason}")]
    Corrupt {
        /// Where it would have gone.
        offset: Offset,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The batch does not begin where the log ends.
    #[error("the log ends at {expected}, the batch begins at {found}")]
    OutOfSequence {
        /// The log's end.
        expected: Offset,
        /// The batch's base offset.
        found: Offset,
    },
    /// The batch is of an epoch newer than the one it was fetched under (KAFKA-18723), or older than the log's last.
    #[error("a batch of epoch {batch} does not belong after epoch {last} under epoch {current}")]
    WrongEpoch {
        /// The batch's leader epoch.
        batch: LeaderEpoch,
        /// The last epoch of the log.
        last: LeaderEpoch,
        /// The epoch the append was made under.
        current: LeaderEpoch,
    },
    /// The producer skipped or repeated a sequence.
    #[error("sequence {found} where {expected} was expected")]
    OutOfOrderSequence {
        /// The sequence that would have been right.
        expected: Sequence,
        /// The batch's first sequence.
        found: Sequence,
    },
    /// A newer incarnation of the producer has written.
    #[error("producer epoch {found} is older than {current}")]
    InvalidProducerEpoch {
        /// The newest epoch seen.
        current: ProducerEpoch,
        /// The batch's.
        found: ProducerEpoch,
    },
    /// A batch outside the producer's open transaction.
    #[error("the producer has an open transaction and the batch is not part of it")]
    InvalidTransactionState,
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] StorageFailure),
}

/// Why nothing could be read.
#[derive(Clone, Debug, Error)]
pub enum ReadError {
    /// The offset is below the log's start or above its end.
    #[error("offset {offset} is outside of [{start}, {end}]")]
    OutOfRange {
        /// What was asked for.
        offset: Offset,
        /// The log's start.
        start: Offset,
        /// The log's end.
        end: Offset,
    },
    /// Bytes on disk are not what was written; they are not handed out.
    #[error("the log is damaged at offset {offset}")]
    Corrupt {
        /// The first offset that cannot be read.
        offset: Offset,
    },
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] StorageFailure),
}

/// Why a log could not be opened, cut or maintained.
#[derive(Clone, Debug, Error)]
pub enum LogError {
    /// The offset is outside of what the operation allows.
    #[error("offset {offset} is outside of [{start}, {end}]")]
    OutOfRange {
        /// What was asked for.
        offset: Offset,
        /// The smallest allowed.
        start: Offset,
        /// The largest allowed.
        end: Offset,
    },
    /// A file of ours was written by a newer version.
    #[error("{file} has version {version}, this program knows versions up to {known}")]
    NewerVersion {
        /// The file.
        file: String,
        /// Its version.
        version: u16,
        /// The newest known here.
        known: u16,
    },
    /// Bytes on disk are not what was written.
    #[error("the log is damaged at offset {offset}")]
    Corrupt {
        /// The first offset that cannot be read.
        offset: Offset,
    },
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] StorageFailure),
}

impl From<&AppendError> for ErrorCode {
    fn from(error: &AppendError) -> Self {
        match error {
            AppendError::TooLarge { .. } => Self::MessageTooLarge,
            AppendError::LargerThanSegment { .. } => Self::RecordListTooLarge,
            AppendError::Corrupt { .. } => Self::CorruptMessage,
            // A follower's own business; no client can cause it.
            AppendError::OutOfSequence { .. } | AppendError::WrongEpoch { .. } => {
                Self::UnknownServerError
            }
            AppendError::OutOfOrderSequence { .. } => Self::OutOfOrderSequenceNumber,
            AppendError::InvalidProducerEpoch { .. } => Self::InvalidProducerEpoch,
            AppendError::InvalidTransactionState => Self::InvalidTxnState,
            AppendError::Storage(_) => Self::KafkaStorageError,
        }
    }
}

impl From<&ReadError> for ErrorCode {
    fn from(error: &ReadError) -> Self {
        match error {
            ReadError::OutOfRange { .. } => Self::OffsetOutOfRange,
            ReadError::Corrupt { .. } => Self::CorruptMessage,
            ReadError::Storage(_) => Self::KafkaStorageError,
        }
    }
}

impl From<&LogError> for ErrorCode {
    fn from(error: &LogError) -> Self {
        match error {
            LogError::OutOfRange { .. } => Self::OffsetOutOfRange,
            LogError::Corrupt { .. } => Self::CorruptMessage,
            LogError::NewerVersion { .. } | LogError::Storage(_) => Self::KafkaStorageError,
        }
    }
}

impl From<ReadError> for LogError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::OutOfRange { offset, start, end } => Self::OutOfRange { offset, start, end },
            ReadError::Corrupt { offset } => Self::Corrupt { offset },
            ReadError::Storage(failure) => Self::Storage(failure),
        }
    }
}
