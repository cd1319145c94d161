//! What openraft is told about us: which types stand for nodes, entries and answers.
//! Law: nothing outside of `quorum` names openraft.

use std::io::Cursor;
use std::sync::Arc;

use kuorum_metadata::record::RecordBatch;
use kuorum_protocol::DirectoryId;
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    /// The types of the controllers' Raft.
    pub TypeConfig:
        D = Arc<RecordBatch>,
        R = Outcome,
        NodeId = ControllerId,
        Node = Voter,
        Entry = openraft::Entry<TypeConfig>,
        SnapshotData = Cursor<Vec<u8>>,
        AsyncRuntime = openraft::TokioRuntime,
);

/// A controller's number, chosen by the operator.
pub type ControllerId = u64;

pub(crate) type Entry = openraft::Entry<TypeConfig>;
pub(crate) type LogId = openraft::LogId<ControllerId>;
pub(crate) type Vote = openraft::Vote<ControllerId>;
pub(crate) type StorageError = openraft::StorageError<ControllerId>;
pub(crate) type StorageIOError = openraft::StorageIOError<ControllerId>;
pub(crate) type StoredMembership = openraft::StoredMembership<ControllerId, Voter>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<ControllerId, Voter>;
pub(crate) type Snapshot = openraft::Snapshot<TypeConfig>;
pub(crate) type Raft = openraft::Raft<TypeConfig>;
pub(crate) type Metrics = openraft::RaftMetrics<ControllerId, Voter>;

/// A member of the quorum: where it listens, and which directory holds its vote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voter {
    /// The quorum listener: host:port.
    pub address: String,
    /// The directory its vote and log live in. A member that comes back with another one has forgotten its votes.
    pub directory_id: DirectoryId,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its place in the metadata log.
    pub offset: i64,
    /// It was decided by a controller that had left office, and changed nothing.
    pub skipped: bool,
}
