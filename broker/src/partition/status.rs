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

/// A replica in numbers, for the metrics: cheap enough to ask of every partition at each scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of the log.
    pub size_bytes: u64,
    pub log_start: Offset,
    pub high_watermark: Offset,
    /// Produces that wait for the high watermark.
    pub parked: usize,
    /// Idempotent producers that the log knows.
    pub producers: usize,
    /// Of a follower: records below the high watermark its leader last told that are not here yet.
    pub lag: u64,
    /// On the leader: records that the follower furthest behind lacks, of those that have fetched in this epoch.
    pub followers_lag: u64,
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
    /// The replica in numbers.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let view = self.log_view();
        let behind = |end: Offset, follower: Offset| (end.0 - follower.0).max(0).unsigned_abs();
        let lag = match (&self.role, self.leaders_high_watermark) {
            (Role::Follower(_), Some(told)) => behind(told, view.log_end),
            _ => 0,
        };
        let followers = self
            .leader()
            .into_iter()
            .flat_map(|leader| leader.followers());
        let followers_lag = followers
            .filter_map(|(_, progress)| progress.log_end())
            .map(|end| behind(view.log_end, end))
            .max();
        let (size_bytes, producers) = match &self.role {
            // Of a log that failed nothing else is sound.
            Role::Failed(_) => (0, 0),
            _ => (self.log.size_bytes(), self.log.producers().len()),
        };
        Figures {
            size_bytes,
            log_start: view.log_start,
            high_watermark: self.high_watermark,
            parked: self.waiters.len() + self.refusals.len(),
            producers,
            lag,
            followers_lag: followers_lag.unwrap_or(0),
        }
    }

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
            parked: self.waiters.len() + self.refusals.len(),
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
