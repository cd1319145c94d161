//! What the cluster has agreed on about one partition, as far as replication needs it.
//! Law: plain values, taken from one metadata image.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kuorum_metadata::image::{MetadataImage, PartitionImage};
use kuorum_metadata::record::LeaderRecoveryState;
use kuorum_protocol::{BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch};

/// One partition as the metadata image shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// `None` when nobody leads.
    pub leader: Option<BrokerId>,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    /// In assignment order.
    pub replicas: Vec<BrokerId>,
    /// Those that leave once the others are complete: the minimum ISR is held against what stays.
    pub removing: BTreeSet<BrokerId>,
    pub isr: BTreeSet<BrokerId>,
    /// Who may be elected although it is not in the ISR (KIP-966).
    pub elr: BTreeSet<BrokerId>,
    /// Elected uncleanly, and the leader has not said yet that its log is in order (KIP-704).
    pub recovering: bool,
    /// The leader epoch of the last unclean election, if there ever was one.
    pub last_unclean_epoch: Option<LeaderEpoch>,
    /// The registration of each replica's broker; a broker that is not registered is missing.
    pub standing: BTreeMap<BrokerId, Standing>,
}

impl Assignment {
    /// Takes what concerns `partition` from the image it lies in.
    #[must_use]
    pub fn of(image: &MetadataImage, partition: &PartitionImage) -> Self {
        Self {
            leader: partition.leader,
            leader_epoch: partition.leader_epoch,
            partition_epoch: partition.partition_epoch,
            replicas: partition.replicas.clone(),
            removing: partition.removing_replicas.iter().copied().collect(),
            isr: partition.isr.iter().copied().collect(),
            elr: partition.elr.iter().copied().collect(),
            recovering: partition.leader_recovery_state == LeaderRecoveryState::Recovering,
            last_unclean_epoch: partition.last_unclean_epoch,
            standing: partition
                .replicas
                .iter()
                .filter_map(|id| image.broker(*id))
                .map(|broker| {
                    // A replica whose directory is offline does not come back by itself: the high watermark must not
                    // wait for it as for one that is about to join.
                    let has_a_disk = partition
                        .directory(broker.id)
                        .is_none_or(|directory| broker.directories.contains(&directory));
                    let standing = Standing {
                        broker_epoch: broker.epoch,
                        may_join: broker.is_active() && has_a_disk,
                    };
                    (broker.id, standing)
                })
                .collect(),
        }
    }
}

impl Assignment {
    /// How many replicas there are to be, without those that leave.
    #[must_use]
    pub fn replication_factor(&self) -> usize {
        let stays = |replica: &&BrokerId| !self.removing.contains(replica);
        self.replicas.iter().filter(stays).count()
    }
}

/// A broker as the metadata image shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The incarnation that is registered.
    pub broker_epoch: BrokerEpoch,
    /// Neither fenced nor in its controlled shutdown (KIP-841), and the replica's directory is online.
    pub may_join: bool,
}

/// When a record counts as being on a replica (`acks.durability`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is flushed to the disk.
    #[default]
    Flushed,
    /// When it is in the page cache: it survives a process, not a power cut.
    PageCache,
}

/// The settings replication lives by. They may change at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// `min.insync.replicas`, as configured.
    pub min_insync_replicas: usize,
    pub durability: Durability,
    /// `replica.lag.time.max.ms`: how long ago a follower may have been caught up last.
    pub replica_lag_time_max: Duration,
    /// How long to wait before a proposal without an answer is sent again, or one is made anew after a refusal.
    pub isr_retry_backoff: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            min_insync_replicas: 1,
            durability: Durability::Flushed,
            replica_lag_time_max: Duration::from_secs(30),
            isr_retry_backoff: Duration::from_millis(100),
        }
    }
}

impl Terms {
    /// How many replicas must have a record: never more than there are.
    #[must_use]
    pub fn effective_min_isr(&self, replicas: usize) -> usize {
        self.min_insync_replicas.min(replicas)
    }
}
