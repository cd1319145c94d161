//! How a simulated cluster stands at one moment: what was decided, and what each replica has.
//! Law: looked at from outside; nobody in the cluster sees all of this at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use kuorum_metadata::image::PartitionImage;
use kuorum_protocol::{BrokerId, LeaderEpoch, Offset};

use super::{Ledger, PartitionNumber};

/// What became of what was to be set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetAside {
    Kept {
        first: Offset,
        end: Offset,
        complete: bool,
    },
    /// By an earlier process, which ended before it could cut.
    KeptBefore {
        first: Offset,
        end: Offset,
    },
    OutOfBounds,
    /// The disk did not take it.
    Failed,
}

/// An item of salvage.
#[derive(Clone, Debug)]
pub struct Salvaged {
    pub broker: BrokerId,
    pub first: Offset,
    pub end: Offset,
    pub records: Vec<(Offset, Logged)>,
}

/// A record as a log holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    pub epoch: LeaderEpoch,
    pub value: u64,
}

/// How things stand.
#[derive(Debug)]
pub struct State<'a> {
    pub partitions: Vec<PartitionState<'a>>,
}

/// How one partition stands.
#[derive(Debug)]
pub struct PartitionState<'a> {
    pub number: PartitionNumber,
    /// As the controllers have decided it.
    pub decided: Arc<PartitionImage>,
    pub min_isr: usize,
    /// Records below this were deleted by request. What replicas still have there, and know of it, is no promise.
    pub deleted_below: Offset,
    /// Everything any leader has ever made visible.
    pub committed: &'a Ledger,
    pub replicas: Vec<ReplicaState>,
    /// Brokers that have a log of it and are none of its replicas.
    pub strays: Vec<BrokerId>,
    /// At rest: everything that was set aside of it.
    pub salvaged: Vec<Salvaged>,
}

/// How one replica stands; of a dead one, what its disk holds.
#[derive(Clone, Debug)]
pub struct ReplicaState {
    pub broker: BrokerId,
    pub alive: bool,
    /// Its disk was taken away, and the controllers do not know yet.
    pub lost: bool,
    pub log_start: Offset,
    pub log_end: Offset,
    /// Everything before this is there as durably as it counts.
    pub durable_end: Offset,
    pub high_watermark: Offset,
    pub epochs: Vec<(LeaderEpoch, Offset)>,
    pub leading: Option<Leading>,
    /// At rest: every record from `log_start` on.
    pub records: Vec<(Offset, Logged)>,
}

/// What a leading replica believes.
#[derive(Clone, Debug)]
pub struct Leading {
    pub leader_epoch: LeaderEpoch,
    pub maximal: BTreeSet<BrokerId>,
    pub pending: bool,
    pub isr: BTreeSet<BrokerId>,
    pub partition_epoch: kuorum_protocol::PartitionEpoch,
}

impl ReplicaState {
    /// The epoch of the record at `offset`.
    #[must_use]
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        epoch_at(&self.epochs, offset)
    }
}

/// The epoch of the record at `offset`, by where each epoch begins.
pub(super) fn epoch_at(epochs: &[(LeaderEpoch, Offset)], offset: Offset) -> Option<LeaderEpoch> {
    let mut known = epochs.iter().rev();
    known
        .find(|(_, start)| *start <= offset)
        .map(|(epoch, _)| *epoch)
}
