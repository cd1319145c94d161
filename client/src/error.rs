//! What can go wrong for an application, and what it may conclude.
//! Law: an error of the producer says whether the record may be in the log all the same.

use std::time::Duration;

use kuorum_protocol::ErrorCode;
use kuorum_protocol::record::RecordError;
use kuorum_transport::CallError;
use thiserror::Error;

/// Why the cluster could not be asked.
#[derive(Clone, Debug, Error)]
pub enum ClientError {
    /// Nobody answered in time. The display names the last thing that went wrong.
    #[error("{}{last}",
        if .waited.is_zero() { String::new() } else { format!("no broker answered within {waited:.1?}: ") })]
    Unreachable {
        /// How long was tried.
        waited: Duration,
        /// The last failure.
        last: String,
    },
    /// The topic does not exist.
    #[error("topic {0} does not exist")]
    UnknownTopic(String),
    /// The topic has fewer partitions.
    #[error("topic {topic} has no partition {partition}")]
    UnknownPartition {
        /// The topic.
        topic: String,
        /// The partition asked for.
        partition: i32,
    },
    /// A partition has no leader at the moment.
    #[error("partition {topic}-{partition} has no leader")]
    NoLeader {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// The broker speaks no version of an API that this client speaks.
    #[error("broker {broker} serves no version of {api} that this client knows")]
    UnsupportedApi {
        /// Which API.
        api: &'static str,
        /// Which broker.
        broker: i32,
    },
    /// The broker refused.
    #[error("{doing}: {} ({message})", .code.name())]
    Refused {
        /// What was asked.
        doing: String,
        /// Why, as a code.
        code: ErrorCode,
        /// Why, in words.
        message: String,
    },
    /// The connection failed.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl ClientError {
    /// Whether the same thing may succeed later.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NoLeader { .. } => true,
            Self::Call(error) => !matches!(error, CallError::Encode(_)),
            Self::Refused { code, .. } => code.is_retriable(),
            Self::UnknownTopic(_) | Self::UnknownPartition { .. } | Self::UnsupportedApi { .. } => {
                false
            }
        }
    }
}

/// Why a record was not acknowledged.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ProduceError {
    /// The record is larger than `max.request.size` or `buffer.memory` allows. Nothing was sent.
    #[error("the record takes {size} bytes and {limit} are allowed")]
    RecordTooLarge {
        /// Its size as a batch of its own.
        size: usize,
        /// The limit it exceeds.
        limit: usize,
    },
    /// `max.block.ms` went by while `buffer.memory` was full. Nothing was sent.
    #[error("the buffer has been full for {0:.1?}")]
    BufferFull(Duration),
    /// `max.block.ms` went by before the topic's partitions were known. Nothing was sent.
    #[error("the partitions of {topic} are not known after {waited:.1?}: {reason}")]
    NoMetadata {
        /// The topic.
        topic: String,
        /// How long was waited.
        waited: Duration,
        /// The last failure.
        reason: String,
    },
    /// The record names a partition the topic does not have. Nothing was sent.
    #[error("topic {topic} has no partition {partition}")]
    UnknownPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// `delivery.timeout.ms` went by.
    #[error("not acknowledged in time (the record {}; last: {last})",
        if *.possibly_persisted { "may be in the log" } else { "is not in the log" })]
    Timeout {
        /// Whether the record may be in the log all the same.
        possibly_persisted: bool,
        /// The last failure.
        last: String,
    },
    /// The broker refused the batch for good.
    #[error("{}: {message}", .code.name())]
    Refused {
        /// Why, as a code.
        code: ErrorCode,
        /// Why, in words.
        message: String,
        /// Whether an earlier try may have brought the record into the log.
        possibly_persisted: bool,
    },
    /// Another record of the same batch was refused, and this one with it.
    #[error("part of a batch in which other records were refused")]
    InvalidNeighbour,
    /// The producer cannot go on: its identity is no longer accepted.
    #[error("the producer's identity is no longer accepted: {0}")]
    Fenced(String),
    /// The producer was closed or dropped before the record was acknowledged.
    #[error("the producer was closed")]
    Closed,
}

impl ProduceError {
    /// Whether the record may be in the log although it was not acknowledged.
    pub fn possibly_persisted(&self) -> bool {
        match self {
            Self::Timeout {
                possibly_persisted, ..
            }
            | Self::Refused {
                possibly_persisted, ..
            } => *possibly_persisted,
            Self::Fenced(_) | Self::Closed => true,
            Self::RecordTooLarge { .. }
            | Self::BufferFull(_)
            | Self::NoMetadata { .. }
            | Self::UnknownPartition { .. }
            | Self::InvalidNeighbour => false,
        }
    }
}

/// Why a consumer cannot go on by itself.
#[derive(Clone, Debug, Error)]
pub enum ConsumeError {
    /// The position is not in the log and `auto.offset.reset` is `none`.
    #[error("offset {offset} of {topic}-{partition} is not in the log")]
    OffsetOutOfRange {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The position.
        offset: i64,
    },
    /// Records that were consumed are no longer in the log, after an unclean election, and `auto.offset.reset` is `none`.
    #[error("{topic}-{partition} was cut to offset {end_offset} below the position {offset}")]
    LogTruncation {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The position.
        offset: i64,
        /// Where the log that was consumed ends now.
        end_offset: i64,
    },
    /// The broker sent bytes that are not valid batches.
    #[error("{topic}-{partition} at offset {offset}: {reason}")]
    Corrupt {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The position.
        offset: i64,
        /// What is wrong.
        reason: String,
    },
    /// Nothing is assigned.
    #[error("no partition is assigned")]
    NothingAssigned,
    /// The partition is not assigned.
    #[error("{topic}-{partition} is not assigned")]
    NotAssigned {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// The cluster could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Words for a batch that cannot be read.
pub(crate) fn corrupt(
    topic: &str,
    partition: i32,
    offset: i64,
    error: &RecordError,
) -> ConsumeError {
    ConsumeError::Corrupt {
        topic: topic.to_owned(),
        partition,
        offset,
        reason: error.to_string(),
    }
}
