//! The log directories of one broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kuorum_protocol::{DirectoryId, Now, Offset, PartitionIndex, TopicId};
use parking_lot::Mutex;
use thiserror::Error;

use crate::config::LogConfig;
use crate::dir::Dir;
use crate::error::{LogError, StorageFailure};
use crate::log::{Known, Log};
use crate::recovery::Recovery;

/// Whether a directory still works; shared by every log in it.
#[derive(Debug, Default)]
pub struct DirHealth {
    failure: Mutex<Option<StorageFailure>>,
    failed: AtomicBool,
}

impl DirHealth {
    /// # Errors
    /// The failure that took the directory offline.
    pub fn check(&self) -> Result<(), StorageFailure> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.failure.lock().clone().map_or(Ok(()), Err)
    }

    /// Takes the directory offline, for good. The first failure is the one that is told.
    pub fn fail(&self, failure: &StorageFailure) {
        let mut known = self.failure.lock();
        if known.is_none() {
            tracing::error!(%failure, "a log directory is offline");
            *known = Some(failure.clone());
            self.failed.store(true, Ordering::Release);
        }
    }
}

/// A partition found in a directory.
#[derive(Clone, Debug)]
pub struct FoundLog<D: Dir> {
    /// The topic's name.
    pub topic: String,
    /// The partition.
    pub partition: PartitionIndex,
    /// The topic's id, from partition.metadata.
    pub topic_id: Option<TopicId>,
    /// The directory it lies in.
    pub directory: DirectoryId,
    /// The partition's own directory.
    pub dir: D,
    /// What the checkpoints say of it.
    pub known: Known,
}

/// Why the log directories could not be opened.
#[derive(Debug, Error)]
pub enum LogDirsError {
    /// Somebody else has it.
    #[error("{path} is in use by another process")]
    Locked {
        /// The directory.
        path: String,
    },
    /// It has no meta.properties.
    #[error("{path} is not formatted")]
    Unformatted {
        /// The directory.
        path: String,
    },
    /// It belongs to another cluster or node.
    #[error("{path} is foreign: {reason}")]
    Foreign {
        /// The directory.
        path: String,
        /// Why.
        reason: String,
    },
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] StorageFailure),
}

/// The log directories of one broker.
#[derive(Debug)]
pub struct LogDirs<D: Dir> {
    #[allow(dead_code)]
    dirs: Vec<(D, Arc<DirHealth>)>,
}

#[allow(clippy::todo, unused_variables, clippy::needless_pass_by_value)]
impl<D: Dir> LogDirs<D> {
    /// Opens, locks and reads `dirs`; a directory that is not formatted, foreign or locked refuses everything, one whose
    /// disk fails is offline. At least one must work.
    pub fn open(dirs: Vec<D>, cluster_id: &str, node_id: i32) -> Result<Self, LogDirsError> {
        todo!()
    }
    /// Gives `dir` an identity, unless it has one already.
    pub fn format(
        dir: &D,
        cluster_id: &str,
        node_id: i32,
        directory_id: DirectoryId,
    ) -> Result<(), LogDirsError> {
        todo!()
    }
    /// Every partition found.
    pub fn found(&self) -> &[FoundLog<D>] {
        todo!()
    }
    /// The ids of all directories, and whether each works.
    pub fn directories(&self) -> Vec<(DirectoryId, bool)> {
        todo!()
    }
    /// Whether every directory was closed in an orderly way.
    pub fn was_clean(&self) -> bool {
        todo!()
    }
    /// Whether the kernel has not booted since every directory was last used.
    pub fn same_boot(&self) -> bool {
        todo!()
    }
    /// Opens a log that was found.
    pub fn open_log(
        &self,
        found: &FoundLog<D>,
        config: LogConfig,
        now: Now,
    ) -> Result<(Log<D>, Recovery), LogError> {
        todo!()
    }
    /// Makes the directory of a new partition, in the working directory with the fewest, and opens its empty log.
    pub fn create_log(
        &self,
        topic: &str,
        partition: PartitionIndex,
        topic_id: TopicId,
        config: LogConfig,
        now: Now,
    ) -> Result<(DirectoryId, Log<D>), LogError> {
        todo!()
    }
    /// Removes a partition's directory; the log must have been dropped.
    pub fn remove_log(
        &self,
        topic: &str,
        partition: PartitionIndex,
        directory: DirectoryId,
    ) -> Result<(), LogError> {
        todo!()
    }
    /// Writes `recovery-point-offset-checkpoint` of one directory.
    pub fn checkpoint_recovery_points(
        &self,
        directory: DirectoryId,
        points: &[(String, PartitionIndex, Offset)],
    ) -> Result<(), LogError> {
        todo!()
    }
    /// Writes `log-start-offset-checkpoint` of one directory.
    pub fn checkpoint_log_starts(
        &self,
        directory: DirectoryId,
        starts: &[(String, PartitionIndex, Offset)],
    ) -> Result<(), LogError> {
        todo!()
    }
    /// Writes `replication-offset-checkpoint` of one directory.
    pub fn checkpoint_high_watermarks(
        &self,
        directory: DirectoryId,
        marks: &[(String, PartitionIndex, Offset)],
    ) -> Result<(), LogError> {
        todo!()
    }
    /// Writes the clean-shutdown markers; every log must have been closed and every checkpoint written.
    pub fn close(self) -> Result<(), LogError> {
        todo!()
    }
}
