//! Why a partition did not do what was asked, by what the caller can do about it.
//! Law: one wire code each, mapped here and nowhere else.

use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::{BrokerId, LeaderEpoch, Offset};
use kuorum_storage::{AppendError, ReadError as LogReadError, StorageFailure};
use thiserror::Error;

/// Who leads, as far as this replica knows: the hint clients get with NOT_LEADER_OR_FOLLOWER (KIP-951).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderHint {
    /// `None` when nobody leads.
    pub leader: Option<BrokerId>,
    pub leader_epoch: LeaderEpoch,
}

/// How a produce failed.
#[derive(Clone, Debug, Error)]
pub enum ProduceError {
    /// This replica does not lead, or led no longer when the answer was due. After an append the outcome is unknown.
    #[error("not the leader")]
    NotLeader(LeaderHint),
    /// Fewer than min.insync.replicas are in sync; nothing was appended.
    #[error("not enough replicas are in sync")]
    NotEnoughReplicas,
    /// Appended and replicated, but by now fewer than min.insync.replicas are in sync.
    #[error("not enough replicas are in sync any more")]
    NotEnoughReplicasAfterAppend,
    /// Appended, and not replicated in the time the request allows. It may still be.
    #[error("not replicated in time")]
    TimedOut,
    /// The log refused the batch.
    #[error(transparent)]
    Refused(AppendError),
    /// The disk failed; the partition is offline here.
    #[error("the disk failed: {0}")]
    Storage(StorageFailure),
}

impl ProduceError {
    /// Refused because of what this log lacks, so that only who leads may say so.
    pub fn is_gap(&self) -> bool {
        matches!(self, Self::Refused(AppendError::OutOfOrderSequence { .. }))
    }
}

impl From<&ProduceError> for ErrorCode {
    fn from(error: &ProduceError) -> Self {
        match error {
            ProduceError::NotLeader(_) => Self::NotLeaderOrFollower,
            ProduceError::NotEnoughReplicas => Self::NotEnoughReplicas,
            ProduceError::NotEnoughReplicasAfterAppend => Self::NotEnoughReplicasAfterAppend,
            ProduceError::TimedOut => Self::RequestTimedOut,
            ProduceError::Storage(_) | ProduceError::Refused(AppendError::Storage(_)) => {
                Self::KafkaStorageError
            }
            ProduceError::Refused(AppendError::TooLarge { .. }) => Self::MessageTooLarge,
            ProduceError::Refused(AppendError::LargerThanSegment { .. }) => {
                Self::RecordListTooLarge
            }
            ProduceError::Refused(AppendError::OutOfOrderSequence { .. }) => {
                Self::OutOfOrderSequenceNumber
            }
            ProduceError::Refused(AppendError::InvalidProducerEpoch { .. }) => {
                Self::InvalidProducerEpoch
            }
            ProduceError::Refused(AppendError::InvalidTransactionState) => Self::InvalidTxnState,
            ProduceError::Refused(
                AppendError::Corrupt { .. }
                | AppendError::OutOfSequence { .. }
                | AppendError::WrongEpoch { .. },
            ) => Self::CorruptMessage,
        }
    }
}

/// Why nothing was read, listed or looked up.
#[derive(Clone, Debug, Error)]
pub enum ReadError {
    /// This replica does not lead.
    #[error("not the leader")]
    NotLeader(LeaderHint),
    /// The caller knows an older leader epoch.
    #[error("the leader epoch asked for is over")]
    FencedLeaderEpoch(LeaderHint),
    /// The caller knows a newer leader epoch, or this leader does not know the caller as a replica yet.
    #[error("the leader epoch asked for is not known here")]
    UnknownLeaderEpoch,
    /// A later incarnation of the asking broker is registered.
    #[error("a later incarnation of the broker is registered")]
    StaleBrokerEpoch,
    /// Below the start of the log or beyond its end. A Fetch answer to a *replica* must carry `log_start` as the
    /// partition's log_start_offset: a follower whose log ends before it starts anew there.
    #[error("outside of the log, which is [{log_start}, {log_end}]")]
    OffsetOutOfRange { log_start: Offset, log_end: Offset },
    /// A new leader does not know the true high watermark yet (LEADER_NOT_AVAILABLE in ListOffsets up to v4).
    #[error("the high watermark is not known yet")]
    OffsetNotAvailable,
    /// What lies on the disk is not what was written.
    #[error("the log is damaged at offset {offset}")]
    Corrupt { offset: Offset },
    /// The disk failed; the partition is offline here.
    #[error("the disk failed: {0}")]
    Storage(StorageFailure),
}

impl From<&ReadError> for ErrorCode {
    fn from(error: &ReadError) -> Self {
        match error {
            ReadError::NotLeader(_) => Self::NotLeaderOrFollower,
            ReadError::FencedLeaderEpoch(_) => Self::FencedLeaderEpoch,
            ReadError::UnknownLeaderEpoch => Self::UnknownLeaderEpoch,
            ReadError::StaleBrokerEpoch => Self::StaleBrokerEpoch,
            ReadError::OffsetOutOfRange { .. } => Self::OffsetOutOfRange,
            ReadError::OffsetNotAvailable => Self::OffsetNotAvailable,
            ReadError::Corrupt { .. } => Self::CorruptMessage,
            ReadError::Storage(_) => Self::KafkaStorageError,
        }
    }
}

impl From<LogReadError> for ReadError {
    fn from(error: LogReadError) -> Self {
        match error {
            LogReadError::OutOfRange { start, end, .. } => Self::OffsetOutOfRange {
                log_start: start,
                log_end: end,
            },
            LogReadError::Corrupt { offset } => Self::Corrupt { offset },
            LogReadError::Storage(failure) => Self::Storage(failure),
        }
    }
}
