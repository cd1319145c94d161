//! Control batches: the markers with which a broker ends a transaction in a log (KIP-98).
//! Law: a marker occupies one offset, is never compressed, and carries no sequence.

use bytes::Bytes;

use super::compression::Codec;
use super::record::Record;
use super::writer::BatchBuilder;
use crate::ids::{ProducerEpoch, ProducerId, Sequence};
use crate::time::Timestamp;

/// What a control record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlType {
    /// The transaction was given up.
    Abort,
    /// The transaction counts.
    Commit,
    /// Something newer than this code.
    Unknown(i16),
}

impl ControlType {
    /// The type that the key of a control record names. `None` if the key is too short to name one.
    pub fn of_key(key: &[u8]) -> Option<Self> {
        let kind: [u8; 2] = key.get(2..4)?.try_into().ok()?;
        Some(match i16::from_be_bytes(kind) {
            0 => Self::Abort,
            1 => Self::Commit,
            other => Self::Unknown(other),
        })
    }

    /// The type of a record that was read from a control batch.
    pub fn of_record(record: &Record) -> Option<Self> {
        Self::of_key(record.key.as_deref()?)
    }

    fn id(self) -> i16 {
        match self {
            Self::Abort => 0,
            Self::Commit => 1,
            Self::Unknown(id) => id,
        }
    }
}

/// The batch that ends the transaction of a producer in one partition, with base offset 0.
pub fn end_marker(
    kind: ControlType,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    coordinator_epoch: i32,
    timestamp: Timestamp,
) -> Bytes {
    let mut key = [0; 4];
    key[2..].copy_from_slice(&kind.id().to_be_bytes());
    let mut value = [0; 6];
    value[2..].copy_from_slice(&coordinator_epoch.to_be_bytes());
    BatchBuilder::new(Codec::None)
        .producer(producer_id, producer_epoch, Sequence::NONE)
        .transactional()
        .control()
        .push(timestamp, Some(&key), Some(&value), &[])
        .build()
}
