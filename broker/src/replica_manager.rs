//! The partitions this broker holds: a map and the hands that carry out what a partition asks for.
//! Law: a map, not a brain. A partition decides under its own lock; what follows (flush, propose, complete, wake)
//! is done after the lock has ended, and no lock crosses an await.

mod hosted;
mod news;
mod opening;
mod parallel;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kuorum_protocol::{BrokerId, DirectoryId, Offset, PartitionIndex, TopicId};
use kuorum_replication::{Mutation, mutation};
use kuorum_storage::{AnyDir, Flusher, Log, LogDirs, StorageFailure};
use kuorum_transport::Clock;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::error;

pub use hosted::Hosted;
pub use opening::Opened;

use crate::alter_partition::IsrProposals;
use crate::assign_directories::{Placement, Placements};
use crate::cluster::Membership;
use crate::event_reporter::EventReports;
use crate::metrics::Metrics;
use crate::partition::{Effects, Identity, Partition, ReadError};
use crate::replica_fetcher::Fetchers;
use crate::salvage::Salvage;
use crate::throttle::Throttle;

use hosted::{FlushTarget, Hands};
use parallel::in_parallel;

/// How often somebody looks whether a directory has failed on behalf of no partition.
const LOOK_AT_DIRECTORIES: Duration = Duration::from_secs(1);

/// A partition's identity on this broker.
pub type Key = (TopicId, PartitionIndex);

/// What the manager works with.
#[derive(Debug)]
pub struct Tools {
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub log_dirs: Arc<LogDirs<AnyDir>>,
    pub flusher: Flusher,
    pub membership: Arc<Membership>,
    pub proposals: Arc<IsrProposals>,
    pub placements: Arc<Placements>,
    pub reports: Arc<EventReports>,
    pub fetchers: Arc<Fetchers>,
    pub salvage: Arc<Salvage>,
    /// `replica.lag.time.max.ms`.
    pub replica_lag_time_max: Duration,
}

/// The map.
#[derive(Debug)]
pub struct ReplicaManager {
    me: BrokerId,
    tools: Tools,
    hands: Arc<Hands>,
    hosted: RwLock<HashMap<Key, Arc<Hosted>>>,
    /// The newest fetch of each follower that is being answered here.
    newest_fetches: Mutex<HashMap<BrokerId, Arc<Notify>>>,
    failures: Mutex<Option<mpsc::UnboundedReceiver<(DirectoryId, StorageFailure)>>>,
    /// Held from the look at what is hosted until the checkpoints that say so are written.
    checkpoints: Mutex<()>,
}

impl ReplicaManager {
    /// Leaders that this broker could fetch from until a moment ago, and since when it cannot.
    pub fn just_lost(&self) -> Vec<(BrokerId, Instant)> {
        self.tools.fetchers.just_lost()
    }

    /// Holds nothing yet.
    pub fn new(tools: Tools) -> Arc<Self> {
        let (failures, failed) = mpsc::unbounded_channel();
        let hands = Arc::new(Hands {
            clock: tools.clock.clone(),
            membership: Arc::clone(&tools.membership),
            metrics: Arc::clone(&tools.metrics),
            proposals: Arc::clone(&tools.proposals),
            throttle: Throttle::default(),
            reports: Arc::clone(&tools.reports),
            salvage: Arc::clone(&tools.salvage),
            failures,
        });
        Arc::new(Self {
            me: tools.membership.id,
            tools,
            hands,
            hosted: RwLock::new(HashMap::new()),
            newest_fetches: Mutex::new(HashMap::new()),
            failures: Mutex::new(Some(failed)),
            checkpoints: Mutex::new(()),
        })
    }

    /// The replica of a partition on this broker, if its log is here.
    pub fn get(&self, topic_id: TopicId, index: PartitionIndex) -> Option<Arc<Hosted>> {
        self.hosted.read().get(&(topic_id, index)).cloned()
    }

    /// Every replica on this broker.
    pub fn all(&self) -> Vec<Arc<Hosted>> {
        self.hosted.read().values().cloned().collect()
    }

    /// Writes the checkpoints of what is hosted now, one round after the other.
    pub fn checkpoint(&self) {
        let _round = self.checkpoints.lock();
        crate::log_maintenance::checkpoint(&self.tools.log_dirs, &self.all());
    }

    /// How many replicas this broker holds.
    pub fn len(&self) -> usize {
        self.hosted.read().len()
    }

    /// Whether this broker holds no replica.
    pub fn is_empty(&self) -> bool {
        self.hosted.read().is_empty()
    }

    /// The log directories.
    pub fn log_dirs(&self) -> &LogDirs<AnyDir> {
        &self.tools.log_dirs
    }

    /// A fetch of follower `broker` begins here. An older one of the same follower that is still parked is to be answered
    /// at once, because this one asks for its partitions too; when this one's turn comes, what is returned is notified.
    pub fn fetch_begins(&self, broker: BrokerId) -> Arc<Notify> {
        let newest = Arc::new(Notify::new());
        let older = self
            .newest_fetches
            .lock()
            .insert(broker, Arc::clone(&newest));
        if let Some(older) = older {
            older.notify_one();
        }
        newest
    }

    /// Those of these replicas whose place is settled: their logs outlast a power cut, which new ones are made to do, or are offline for good with the
    /// directory that they were made in. A log that was still empty then is lost, and nothing with it.
    pub async fn settled(self: &Arc<Self>, placements: Vec<Placement>) -> Vec<Placement> {
        let this = Arc::clone(self);
        let made = tokio::task::spawn_blocking(move || {
            let settled = in_parallel(&placements, |(topic_id, index, directory)| {
                let hosted = this.get(*topic_id, *index)?;
                let has_failed = || {
                    let mut failed = this.tools.log_dirs.failed().into_iter();
                    failed.any(|(one, _)| one == *directory)
                };
                let place = match hosted.make_it_last() {
                    true => *directory,
                    false if !has_failed() => return None,
                    false if hosted.is_empty() => DirectoryId::LOST,
                    false => *directory,
                };
                Some((*topic_id, *index, place))
            });
            settled.into_iter().flatten().collect()
        });
        made.await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// Moves the starts of logs that are led here, several at a time, on threads that may wait for the disk. Answers in order.
    pub async fn delete_records(
        &self,
        asked: Vec<(Arc<Hosted>, Option<Offset>)>,
    ) -> Vec<Result<Offset, ReadError>> {
        let done = tokio::task::spawn_blocking(move || {
            in_parallel(&asked, |(hosted, before)| {
                hosted.with(|partition, effects| partition.delete_records(*before, effects))
            })
        });
        done.await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// [`Hosted::with`].
    pub fn with<R>(
        &self,
        hosted: &Arc<Hosted>,
        act: impl FnOnce(&mut Partition<AnyDir>, &mut Effects) -> R,
    ) -> R {
        hosted.with(act)
    }

    fn host(
        self: &Arc<Self>,
        topic: &str,
        topic_id: TopicId,
        index: PartitionIndex,
        directory: DirectoryId,
        log: Log<AnyDir>,
        high_watermark: Offset,
    ) -> Arc<Hosted> {
        let topic: Arc<str> = topic.into();
        let identity = Identity {
            topic: Arc::clone(&topic),
            topic_id,
            index,
            me: self.me,
        };
        let hosted = Arc::new(Hosted {
            topic,
            topic_id,
            index,
            directory,
            state: Mutex::new(
                Partition::new(identity, log, Default::default(), high_watermark)
                    .with_salvager(self.tools.salvage.salvager(directory)),
            ),
            parked: Mutex::new(Vec::new()),
            fetcher: Mutex::new(None),
            flush: OnceLock::new(),
            flushing: Mutex::new(()),
            removed: AtomicBool::new(false),
            checkpointed: AtomicI64::new(-1),
            served_throttled: AtomicBool::new(false),
            fetched_throttled: AtomicBool::new(false),
            arriving: AtomicBool::new(false),
            hands: Arc::clone(&self.hands),
        });
        let target = Arc::new(FlushTarget(Arc::downgrade(&hosted)));
        let handle = self.tools.flusher.register(target);
        assert!(
            hosted.flush.set(handle).is_ok(),
            "a partition is registered with the flusher once"
        );
        self.hosted
            .write()
            .insert((topic_id, index), Arc::clone(&hosted));
        hosted
    }

    /// Takes directories whose disk failed offline, all their partitions with them, until `stop` is cancelled. The
    /// others go on; when the last one fails the broker stays up, fenced.
    pub async fn watch_failures(self: Arc<Self>, stop: CancellationToken) {
        let Some(mut failed) = self.failures.lock().take() else {
            return;
        };
        let mut offline: BTreeSet<DirectoryId> = BTreeSet::new();
        let mut look = tokio::time::interval(LOOK_AT_DIRECTORIES);
        loop {
            let (directory, failure) = tokio::select! {
                () = stop.cancelled() => return,
                failure = failed.recv() => match failure {
                    Some(failure) => failure,
                    None => return,
                },
                // What failed on behalf of no partition, as a checkpoint does.
                _ = look.tick() => {
                    let mut all = self.tools.log_dirs.failed().into_iter();
                    match all.find(|(directory, _)| !offline.contains(directory)) {
                        Some(failure) => failure,
                        None => continue,
                    }
                }
            };
            if mutation::off(Mutation::DiskFailureGoesUntold) || !offline.insert(directory) {
                continue;
            }
            let mut partitions = 0;
            for hosted in self.all() {
                if hosted.directory == directory {
                    hosted.with(|partition, effects| partition.disk_failed(&failure, effects));
                    self.tools.fetchers.leave(&hosted);
                    partitions += 1;
                }
            }
            let was_last = self
                .tools
                .log_dirs
                .directories()
                .iter()
                .all(|(known, works)| !works || offline.contains(known));
            error!(%directory, partitions, cause = %failure, "a log directory has failed and is offline until the broker restarts");
            if was_last {
                error!(
                    "no log directory is left; this broker stays fenced. Repair its disks and restart it."
                );
            }
            self.tools.membership.directory_failed(directory, was_last);
        }
    }
}
