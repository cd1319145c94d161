//! How a replica sets aside what an unclean election makes it cut off.
//! Law: bounded in bytes and in time; what goes wrong is told and never stops the cut.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kuorum_protocol::{LeaderEpoch, Monotonic, Now, Offset};
use kuorum_storage::salvage::{Aside, Bounds, Cause};
use kuorum_storage::{Dir, Log, LogError};

use super::Identity;

/// Reads a monotonic clock while something takes its time.
#[derive(Clone)]
pub struct Stopwatch(Arc<dyn Fn() -> Monotonic + Send + Sync>);

impl Stopwatch {
    /// One that reads this clock.
    pub fn new(read: impl Fn() -> Monotonic + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl fmt::Debug for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stopwatch")
    }
}

/// Why something is set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is cut off where the leader's history parts from it.
    Cut,
    /// The leader, elected uncleanly, has deleted everything before its start, and this log ends there: what it shared with
    /// the leader's cannot be told from what it did not.
    Outrun,
    /// A move has taken the replica away, and nobody compares its history any more: what others have may be among it.
    Leaves,
}

/// What a replica is about to lose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    /// All from here on.
    pub(super) first: Offset,
    /// By whose election.
    pub(super) unclean_epoch: LeaderEpoch,
    pub(super) why: Why,
}

/// What a topic wants of its salvage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SalvagePolicy {
    /// `salvage.enable`.
    pub enable: bool,
    /// `salvage.retention.bytes`: no item is larger than all that may be kept; `None` for no limit.
    pub item_bytes: Option<u64>,
}

impl Default for SalvagePolicy {
    fn default() -> Self {
        Self {
            enable: true,
            item_bytes: None,
        }
    }
}

/// Where things are set aside, and what that may cost.
#[derive(Clone, Debug)]
pub struct Salvager<D> {
    /// The salvage directory beside the log.
    pub dir: D,
    /// The largest item, in bytes.
    pub item_bytes: u64,
    /// How long copying may take, from the moment at which the work that needs it began.
    pub copy_max: Duration,
    pub stopwatch: Stopwatch,
}

impl<D: Dir> Salvager<D> {
    /// Sets aside what `log` is about to lose; `None` if that is nothing.
    ///
    /// # Errors
    /// As [`Log::set_aside`].
    pub(super) fn set_aside(
        &self,
        log: &mut Log<D>,
        identity: &Identity,
        policy: SalvagePolicy,
        loss: Loss,
        now: Now,
    ) -> Result<Option<Aside>, LogError> {
        let unclean_epoch = loss.unclean_epoch;
        let mut words = format!("unclean election of leader epoch {unclean_epoch}");
        words += match loss.why {
            Why::Cut => "",
            Why::Outrun => {
                "; the new leader has deleted all up to the end of this log, so some of it may have been deleted by request"
            }
            Why::Leaves => {
                "; the replica was moved away before its history was compared, so some of it may not be lost"
            }
        };
        let cause = Cause {
            topic: &identity.topic,
            topic_id: identity.topic_id,
            partition: identity.index,
            unclean_epoch,
            words: &words,
            now: now.wall,
        };
        let in_time = || (self.stopwatch.0)().since(now.monotonic) < self.copy_max;
        let bounds = Bounds {
            item_bytes: policy.item_bytes.unwrap_or(u64::MAX).min(self.item_bytes),
            in_time: &in_time,
        };
        log.set_aside(loss.first, &cause, &self.dir, bounds)
    }
}
