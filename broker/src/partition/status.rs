//! A replica as an operator sees it.
//! Law: only looked at, never changed.

use kuorum_protocol::{BrokerId, LeaderEpoch, Monotonic, Now, Offset, PartitionEpoch};
use kuorum_storage::Dir;

use super::{Partition, Role};

/// A replica as an operator sees it. Ages count from `now`.
#[derive(Clone, Debug)]
pub struct Status {
    pub role: &'static str,
    pub leader: Option<BrokerId>,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    pub log_start: Offset,
    pub high_watermark: Offset,
    pub log_end: Offset,
    pub flushed_end: Offset,
    /// Produces that wait for the high watermark.
    pub parked: usize,
    /// On the leader: each follower.
    pub followers: Vec<FollowerStatus>,
}

/// A follower as its leader sees it.
#[derive(Clone, Copy, Debug)]
pub struct FollowerStatus {
    pub broker: BrokerId,
    /// `None` until it fetched in this epoch.
    pub log_end: Option<Offset>,
    pub last_fetch_ms_ago: Option<u64>,
    pub caught_up_ms_ago: Option<u64>,
}

impl<D: Dir, T> Partition<D, T> {
    /// The replica as an operator sees it.
    #[must_use]
    pub fn status(&self, now: Now) -> Status {
        let ago = |at: Option<Monotonic>| at.map(|at| now.monotonic.since(at).as_millis() as u64);
        let view = self.log_view();
        Status {
            role: match &self.role {
                Role::Leader(_) => "leader",
                Role::Follower(follower) if follower.is_truncating() => "truncating",
                Role::Follower(_) => "follower",
                Role::Leaderless => "leaderless",
                Role::Failed(_) => "failed",
            },
            leader: self.known.leader,
            leader_epoch: self.known.leader_epoch,
            partition_epoch: self.known.partition_epoch,
            log_start: view.log_start,
            high_watermark: self.high_watermark,
            log_end: view.log_end,
            flushed_end: view.flushed_end,
            parked: self.waiters.len(),
            followers: self.leader().map_or_else(Vec::new, |leader| {
                leader
                    .followers()
                    .map(|(broker, progress)| FollowerStatus {
                        broker,
                        log_end: progress.log_end(),
                        last_fetch_ms_ago: ago(progress.last_fetch()),
                        caught_up_ms_ago: ago(progress.last_caught_up()),
                    })
                    .collect()
            }),
        }
    }
}
