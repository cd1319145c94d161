//! What a partition asks of its surroundings.
//! Law: a partition does nothing itself; whoever called it carries out every effect after the lock has ended.

use kuorum_protocol::{LeaderEpoch, Offset};
use kuorum_replication::IsrProposal;
use kuorum_storage::salvage::Aside;
use kuorum_storage::{AppendError, StorageFailure};
use tokio::sync::oneshot;

use super::error::ProduceError;

/// What the shell parks with a produce, and answers when it is over.
pub type ProduceToken = oneshot::Sender<Result<(), ProduceError>>;

/// Everything one or more steps of a partition have led to.
#[must_use]
#[derive(Debug)]
pub struct Effects<T = ProduceToken> {
    /// Parked produces that are over, in the order of their offsets.
    pub completed: Vec<(T, Result<(), ProduceError>)>,
    /// To be sent to the controllers; the reply goes to `Partition::isr_decided`.
    pub propose_isr: Option<IsrProposal>,
    /// Readers below the high watermark have something new.
    pub high_watermark_advanced: bool,
    /// `begin_flush` has something to do.
    pub log_dirty: bool,
    /// Replicas have something new to fetch.
    pub appended: bool,
    /// `next_step` has something new to say: the fetcher of this partition is to look again.
    pub fetcher_ready: bool,
    /// The role, the leader or its epoch changed: every parked fetch is to be looked at again.
    pub role_changed: bool,
    /// What was cut off, for the event log.
    pub truncated: Option<Truncation>,
    /// What became of what was to be cut off and may be wanted back.
    pub set_aside: Option<Aside>,
    /// What the leader sent did not fit this log, and was not appended; histories are compared again. For the log.
    pub misfit: Option<AppendError>,
    /// The disk failed: the directory is to be taken offline.
    pub storage_failed: Option<StorageFailure>,
}

/// A follower cut off its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// The log ended here.
    pub from: Offset,
    /// It ends here now.
    pub to: Offset,
    /// The newest epoch that was cut into.
    pub epoch: Option<LeaderEpoch>,
    /// The leader's epoch for whose sake it was cut.
    pub leader_epoch: LeaderEpoch,
    /// Committed records may be among it: it was written before the partition's last unclean election.
    pub unclean: bool,
}

impl<T> Default for Effects<T> {
    fn default() -> Self {
        Self {
            completed: Vec::new(),
            propose_isr: None,
            high_watermark_advanced: false,
            log_dirty: false,
            appended: false,
            fetcher_ready: false,
            role_changed: false,
            truncated: None,
            set_aside: None,
            misfit: None,
            storage_failed: None,
        }
    }
}
