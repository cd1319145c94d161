//! The partitions this broker holds: a map and the hands that carry out what a partition asks for.
//! Law: a map, not a brain. A partition decides under its own lock; what follows (flush, propose, complete, wake)
//! is done after the lock has ended, and no lock crosses an await.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use kuorum_metadata::control::reassignment;
use kuorum_metadata::record::{BrokerEventKind, ConfigResource, LeaderRecoveryState};
use kuorum_metadata::{MetadataDelta, MetadataImage, PartitionImage};
use kuorum_protocol::{BrokerId, DirectoryId, Offset, PartitionIndex, TopicId};
use kuorum_replication::assignment::Standing;
use kuorum_replication::{Assignment, Durability, IsrReply};
use kuorum_storage::{
    FlushHandle, Flushable, Flusher, FoundLog, Log, LogDirs, LogError, PutAside, RealDir,
    StorageFailure,
};
use kuorum_transport::Clock;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::alter_partition::IsrProposals;
use crate::assign_directories::Placements;
use crate::cluster::Membership;
use crate::event_reporter::EventReports;
use crate::metrics::Metrics;
use crate::partition::{Effects, Identity, Partition, Truncation};
use crate::replica_fetcher::Fetchers;
use crate::salvage::Salvage;
use crate::throttle::{RateLimit, Throttle};
use crate::topic_settings::TopicSettings;

/// Logs that are opened or made at the same time.
const PARALLEL: usize = 8;

/// A partition's identity on this broker.
pub type Key = (TopicId, PartitionIndex);

/// A partition that has its log on this broker.
#[derive(Debug)]
pub struct Hosted {
    /// The topic's name.
    pub topic: Arc<str>,
    pub topic_id: TopicId,
    pub index: PartitionIndex,
    /// The directory its log lies in.
    pub directory: DirectoryId,
    state: Mutex<Partition<RealDir>>,
    parked: Mutex<Vec<Weak<Notify>>>,
    /// Whom to wake when the follower has something new to ask.
    fetcher: Mutex<Option<Arc<Notify>>>,
    flush: OnceLock<FlushHandle>,
    /// Held while a flush runs: it writes by name, so it must end before the name means another log.
    flushing: Mutex<()>,
    /// The partition is being deleted: what its files say no longer matters.
    removed: AtomicBool,
    /// The flushed end that the checkpoint on the disk names; −1 before the first.
    checkpointed: AtomicI64,
    /// Whether serving its replicas that are not in sync is throttled.
    served_throttled: AtomicBool,
    /// Whether this replica is not in sync, and fetching it is throttled.
    fetched_throttled: AtomicBool,
    hands: Arc<Hands>,
}

/// What carrying out effects takes.
#[derive(Debug)]
struct Hands {
    clock: Clock,
    metrics: Arc<Metrics>,
    proposals: Arc<IsrProposals>,
    throttle: Throttle,
    reports: Arc<EventReports>,
    salvage: Arc<Salvage>,
    failures: mpsc::UnboundedSender<(DirectoryId, StorageFailure)>,
}

impl Hosted {
    /// The flushed end that the checkpoint on the disk names; −1 before the first.
    pub fn checkpointed(&self) -> Offset {
        Offset(self.checkpointed.load(Ordering::Relaxed))
    }

    /// The checkpoint on the disk names this flushed end.
    pub fn note_checkpoint(&self, flushed_end: Offset) {
        self.checkpointed.store(flushed_end.0, Ordering::Relaxed);
    }

    /// The limit on serving follower `broker` now, if there is one for it: a replica that is in sync has none.
    pub(crate) fn serving_limit(self: &Arc<Self>, broker: BrokerId) -> Option<&RateLimit> {
        if !self.served_throttled.load(Ordering::Relaxed) {
            return None;
        }
        let in_sync = self.with(|partition, _| {
            partition
                .leader()
                .is_some_and(|leader| leader.isr().maximal().contains(&broker))
        });
        (!in_sync).then_some(&self.hands.throttle.leader)
    }

    /// The limit on fetching this replica now, if there is one for it.
    pub(crate) fn fetching_limit(&self) -> Option<&RateLimit> {
        let throttled = self.fetched_throttled.load(Ordering::Relaxed);
        throttled.then_some(&self.hands.throttle.follower)
    }

    /// Takes over from the image whether this replica is throttled.
    fn note_throttle(&self, image: &MetadataImage, partition: &PartitionImage, me: BrokerId) {
        let configs = image.configs_of(&ConfigResource::Topic(self.topic.to_string()));
        let is_named = |list: &str| {
            let list = configs.and_then(|configs| configs.get(list));
            list.is_some_and(|list| reassignment::is_listed(list, self.index, me))
        };
        let served = is_named(reassignment::LEADER_REPLICAS);
        let fetched = !partition.isr.contains(&me) && is_named(reassignment::FOLLOWER_REPLICAS);
        self.served_throttled.store(served, Ordering::Relaxed);
        self.fetched_throttled.store(fetched, Ordering::Relaxed);
    }

    /// Which partition it is.
    pub fn key(&self) -> Key {
        (self.topic_id, self.index)
    }

    /// Wakes `waiter` once (`notify_one`) at the next change that may interest a parked fetch: an append, a higher
    /// high watermark, a change of leader or of the log's start. Register first, then read, then wait.
    pub fn wake_on_change(&self, waiter: &Arc<Notify>) {
        let mut parked = self.parked.lock();
        parked.retain(|known| known.strong_count() > 0);
        parked.push(Arc::downgrade(waiter));
    }

    /// Runs `act` under the partition's lock, then carries out the effects it left: submits a flush, queues an ISR
    /// proposal, completes parked produces, wakes parked fetches. Never blocks on a disk flush.
    pub fn with<R>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut Partition<RealDir>, &mut Effects) -> R,
    ) -> R {
        let mut effects = Effects::default();
        let result = act(&mut self.state.lock(), &mut effects);
        self.carry_out(effects);
        result
    }

    /// Hands the controllers' answer to the partition.
    pub fn isr_decided(self: &Arc<Self>, number: u64, reply: IsrReply) {
        let now = self.hands.clock.now();
        self.with(|partition, effects| partition.isr_decided(number, reply, now, effects));
    }

    /// A change of the ISR was decided as this broker proposed it.
    pub(crate) fn count_isr_change(&self, size: std::cmp::Ordering) {
        match size {
            std::cmp::Ordering::Greater => {
                self.hands.metrics.isr_expands.inc();
            }
            std::cmp::Ordering::Less => {
                self.hands.metrics.isr_shrinks.inc();
            }
            std::cmp::Ordering::Equal => {}
        }
    }

    /// A follower has fetched so many bytes of records.
    pub(crate) fn count_fetched(&self, bytes: usize) {
        self.hands.metrics.replication_bytes_in.inc_by(bytes as u64);
    }

    /// Whoever fetches for this follower is to be woken through `fetcher`.
    pub(crate) fn set_fetcher(&self, fetcher: Option<Arc<Notify>>) {
        *self.fetcher.lock() = fetcher;
    }

    fn carry_out(self: &Arc<Self>, effects: Effects) {
        let Effects {
            completed,
            propose_isr,
            high_watermark_advanced,
            log_dirty,
            appended,
            fetcher_ready,
            role_changed,
            truncated,
            set_aside,
            misfit,
            storage_failed,
        } = effects;
        for (token, outcome) in completed {
            // A producer that has gone away wants no answer.
            drop(token.send(outcome));
        }
        if high_watermark_advanced || appended || role_changed {
            let parked = std::mem::take(&mut *self.parked.lock());
            for waiter in parked.iter().filter_map(Weak::upgrade) {
                waiter.notify_one();
            }
        }
        if log_dirty && let Some(flush) = self.flush.get() {
            flush.submit();
        }
        if fetcher_ready && let Some(fetcher) = &*self.fetcher.lock() {
            fetcher.notify_one();
        }
        if let Some(proposal) = propose_isr {
            self.hands.proposals.push(self, proposal);
        }
        if let Some(aside) = set_aside {
            self.hands
                .salvage
                .was_set_aside(&self.topic, self.index, aside);
        }
        if let Some(cut) = truncated {
            self.report_cut(&cut);
        }
        if let Some(cause) = misfit {
            warn!(topic = %self.topic, partition = self.index, %cause,
                  "what a leader sent does not fit this log; comparing histories again");
        }
        if let Some(failure) = storage_failed
            && !self.removed.load(Ordering::Acquire)
        {
            error!(topic = %self.topic, partition = self.index, directory = %self.directory, cause = %failure,
                   "a partition is offline because its disk failed");
            // Nobody listens only when the broker is going down.
            drop(self.hands.failures.send((self.directory, failure)));
        }
    }

    fn report_cut(&self, cut: &Truncation) {
        let at = self.hands.clock.now().wall;
        let what = event_of(cut);
        self.hands.reports.push(self.topic_id, self.index, at, what);
        if cut.to > cut.from {
            info!(topic = %self.topic, partition = self.index, from = cut.from.0, to = cut.to.0,
                  "a follower begins anew where its leader's log begins");
            return;
        }
        info!(
            topic = %self.topic,
            partition = self.index,
            from = cut.from.0,
            to = cut.to.0,
            records = cut.from.0 - cut.to.0,
            epoch = cut.epoch.map(|epoch| epoch.0),
            unclean = cut.unclean,
            "a follower cut off what its leader does not have"
        );
    }
}

/// What the cluster remembers of a cut.
fn event_of(cut: &Truncation) -> BrokerEventKind {
    let (from, to, leader_epoch) = (cut.from, cut.to, cut.leader_epoch);
    match to > from {
        true => BrokerEventKind::ReplicaRestarted {
            from,
            to,
            leader_epoch,
        },
        false => BrokerEventKind::ReplicaTruncated {
            from,
            to,
            epoch: cut.epoch,
            leader_epoch,
            unclean: cut.unclean,
        },
    }
}

/// What the flusher holds of a partition: no more than a way to find it, so that a deleted one can go.
#[derive(Debug)]
struct FlushTarget(Weak<Hosted>);

impl Flushable for FlushTarget {
    fn flush(&self) {
        let Some(hosted) = self.0.upgrade() else {
            return;
        };
        let _running = hosted.flushing.lock();
        let begun = hosted.state.lock().begin_flush();
        let Some(job) = begun else {
            return;
        };
        let result = job.run();
        let now = hosted.hands.clock.now();
        hosted.with(|partition, effects| partition.finish_flush(job, result, now, effects));
    }
}

/// What the manager works with.
#[derive(Debug)]
pub struct Tools {
    pub clock: Clock,
    pub metrics: Arc<Metrics>,
    pub log_dirs: Arc<LogDirs<RealDir>>,
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

/// What opening the logs at the start of the process found.
#[derive(Debug, Default)]
pub struct Opened {
    /// Replicas whose log is not what it promised to be: damaged, or shorter than its high watermark.
    pub damaged: Vec<Key>,
    /// Replicas that are intact only if their records count as safe once they are on the disk, because the machine
    /// has booted since.
    pub after_a_boot: Vec<(Arc<str>, Key)>,
}

impl ReplicaManager {
    /// Holds nothing yet.
    pub fn new(tools: Tools) -> Arc<Self> {
        let (failures, failed) = mpsc::unbounded_channel();
        let hands = Arc::new(Hands {
            clock: tools.clock.clone(),
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
    pub fn log_dirs(&self) -> &LogDirs<RealDir> {
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

    /// [`Hosted::with`].
    pub fn with<R>(
        &self,
        hosted: &Arc<Hosted>,
        act: impl FnOnce(&mut Partition<RealDir>, &mut Effects) -> R,
    ) -> R {
        hosted.with(act)
    }

    /// Opens every log that lies in the directories, several at a time. Blocks; called once, before the broker
    /// registers. The logs' settings come later, with the metadata.
    pub fn open_found(self: &Arc<Self>) -> Opened {
        let found: Vec<(FoundLog<RealDir>, TopicId)> = self
            .tools
            .log_dirs
            .found()
            .iter()
            .filter_map(|found| match found.topic_id {
                Some(topic_id) => Some((found.clone(), topic_id)),
                None => {
                    warn!(topic = %found.topic, partition = found.partition,
                          "a log without a topic id is left alone: nobody can say whose it is");
                    None
                }
            })
            .collect();
        let results = in_parallel(&found, |(found, topic_id)| self.open_one(found, *topic_id));
        let mut opened = Opened::default();
        for ((found, topic_id), result) in found.iter().zip(results) {
            let key = (*topic_id, found.partition);
            match result {
                Some(true) if !found.known.same_boot => {
                    opened
                        .after_a_boot
                        .push((Arc::from(found.topic.as_str()), key));
                }
                Some(true) => {}
                Some(false) => opened.damaged.push(key),
                // Offline with its directory, which the registration does not list.
                None => {}
            }
        }
        info!(
            logs = found.len(),
            damaged = opened.damaged.len(),
            "opened the logs"
        );
        opened
    }

    /// Opens one log and says whether it is what it promised to be; `None` if its disk failed.
    fn open_one(self: &Arc<Self>, found: &FoundLog<RealDir>, topic_id: TopicId) -> Option<bool> {
        let opened =
            self.tools
                .log_dirs
                .open_log(found, Default::default(), self.tools.clock.now());
        let (log, recovery) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                error!(topic = %found.topic, partition = found.partition, directory = %found.directory,
                       cause = %error, "a log could not be opened");
                return None;
            }
        };
        let mut intact = true;
        if let Some(torn) = &recovery.torn {
            info!(topic = %found.topic, partition = found.partition, end = torn.at.0, bytes = recovery.truncated_bytes,
                  reason = %torn.reason, "cut away the torn end of a log; nothing that was acknowledged is in it");
        }
        if let Some(corruption) = &recovery.corruption {
            error!(topic = %found.topic, partition = found.partition, offset = corruption.at.0,
                   reason = %corruption.reason, "a log is damaged below its flushed end; its leader will be asked for the records");
            intact = false;
        }
        let high_watermark = recovery.high_watermark(found.known.high_watermark);
        if log.end_offset() < high_watermark {
            error!(topic = %found.topic, partition = found.partition, end = log.end_offset().0,
                   high_watermark = high_watermark.0, "a log ends before its high watermark");
            intact = false;
        }
        self.tools
            .salvage
            .forget_uncut(found.directory, topic_id, found.partition, &log);
        self.host(
            &found.topic,
            topic_id,
            found.partition,
            found.directory,
            log,
            high_watermark,
        );
        Some(intact)
    }

    fn host(
        self: &Arc<Self>,
        topic: &str,
        topic_id: TopicId,
        index: PartitionIndex,
        directory: DirectoryId,
        log: Log<RealDir>,
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

    /// Acts on what changed: makes logs, changes roles and settings, deletes what is gone. Without a delta everything
    /// is looked at. The next change waits until this one is acted on.
    pub async fn apply(self: &Arc<Self>, image: &Arc<MetadataImage>, delta: Option<MetadataDelta>) {
        if delta.as_ref().is_some_and(MetadataDelta::is_empty) {
            return;
        }
        let (this, image) = (Arc::clone(self), Arc::clone(image));
        // Logs are made and cut here, which blocks.
        let acted = tokio::task::spawn_blocking(move || this.act_on(&image, delta.as_ref())).await;
        if let Err(panic) = acted {
            std::panic::resume_unwind(panic.into_panic());
        }
    }

    fn act_on(self: &Arc<Self>, image: &MetadataImage, delta: Option<&MetadataDelta>) {
        self.tell_addresses(image);
        self.remove_gone(image, delta);
        let mine: Vec<(Key, Arc<str>, Arc<PartitionImage>)> = self.assigned_to_me(image, delta);
        self.make_missing(image, &mine);
        let brokers_changed = delta.is_none_or(|delta| !delta.brokers_changed.is_empty());
        let looked_at: HashSet<Key> = mine.iter().map(|(key, ..)| *key).collect();
        for (key, _, partition) in &mine {
            if let Some(hosted) = self.get(key.0, key.1) {
                self.assign(&hosted, image, partition);
            }
        }
        if brokers_changed {
            // Who may join an ISR depends on the brokers.
            for hosted in self.all() {
                if !looked_at.contains(&hosted.key())
                    && let Some(partition) = image.partition(hosted.topic_id, hosted.index)
                {
                    self.assign(&hosted, image, partition);
                }
            }
        }
        self.change_settings(image, delta);
    }

    fn tell_addresses(&self, image: &MetadataImage) {
        let addresses = image
            .brokers()
            .filter(|broker| broker.id != self.me)
            .filter_map(|broker| {
                let address = broker.listener(crate::context::INTERNAL)?;
                Some((broker.id, format!("{}:{}", address.host, address.port)))
            });
        self.tools.fetchers.know(addresses);
    }

    /// The partitions to look at that have a replica here.
    fn assigned_to_me(
        &self,
        image: &MetadataImage,
        delta: Option<&MetadataDelta>,
    ) -> Vec<(Key, Arc<str>, Arc<PartitionImage>)> {
        let mine = |partition: &PartitionImage| partition.replicas.contains(&self.me);
        match delta {
            None => image
                .partitions()
                .filter(|(_, _, partition)| mine(partition))
                .map(|(topic, index, partition)| {
                    (
                        (topic.id, index),
                        Arc::from(topic.name.as_str()),
                        Arc::clone(partition),
                    )
                })
                .collect(),
            Some(delta) => delta
                .partitions_changed
                .iter()
                .filter_map(|key| {
                    let topic = image.topic_by_id(key.0)?;
                    let partition = topic.partition(key.1)?;
                    mine(partition)
                        .then(|| (*key, Arc::from(topic.name.as_str()), Arc::clone(partition)))
                })
                .collect(),
        }
    }

    /// Makes the logs of partitions that are new here, several at a time.
    fn make_missing(
        self: &Arc<Self>,
        image: &MetadataImage,
        mine: &[(Key, Arc<str>, Arc<PartitionImage>)],
    ) {
        let working: BTreeSet<DirectoryId> = self
            .tools
            .log_dirs
            .directories()
            .into_iter()
            .filter_map(|(directory, works)| works.then_some(directory))
            .collect();
        let missing: Vec<_> = mine
            .iter()
            .filter(|(key, topic, partition)| {
                if self.get(key.0, key.1).is_some() {
                    return false;
                }
                // A replica that lived in a directory that failed is not made anew elsewhere (KAFKA-16234).
                match partition.directory(self.me) {
                    Some(directory)
                        if !working.contains(&directory)
                            && self.tools.log_dirs.directories().iter().any(|(known, _)| *known == directory) =>
                    {
                        warn!(%topic, partition = key.1, %directory, "a replica stays offline with its directory");
                        false
                    }
                    _ => true,
                }
            })
            .collect();
        let made = AtomicUsize::new(0);
        in_parallel(&missing, |(key, topic, _)| {
            let settings = TopicSettings::of(image, topic, self.tools.replica_lag_time_max);
            let now = self.tools.clock.now();
            match self
                .tools
                .log_dirs
                .create_log(topic, key.1, key.0, settings.log, now)
            {
                Ok((directory, log)) => {
                    let hosted = self.host(topic, key.0, key.1, directory, log, Offset::ZERO);
                    hosted.with(|partition, effects| {
                        partition.set_salvage_policy(settings.salvage);
                        partition.set_terms(settings.terms, now, effects);
                    });
                    made.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    error!(%topic, partition = key.1, cause = %error, "a log could not be made");
                }
            }
        });
        let made = made.into_inner();
        if made > 0 {
            info!(logs = made, "made new logs");
        }
    }

    /// Tells a replica what the image says of it.
    fn assign(&self, hosted: &Arc<Hosted>, image: &MetadataImage, partition: &PartitionImage) {
        hosted.note_throttle(image, partition, self.me);
        let assignment = assignment(image, partition);
        let now = self.tools.clock.now();
        let (before, after) = hosted.with(|replica, effects| {
            let before = (replica.is_leader(), replica.leader_hint());
            replica.apply(&assignment, now, effects);
            (before, (replica.is_leader(), replica.leader_hint()))
        });
        if before != after {
            info!(
                topic = %hosted.topic,
                partition = hosted.index,
                leader = partition.leader.map(|leader| leader.0),
                leader_epoch = partition.leader_epoch.0,
                leads = after.0,
                "a partition's leader changed"
            );
        }
        match partition.leader {
            Some(leader) if leader != self.me => {
                self.tools
                    .fetchers
                    .follow(hosted, leader, partition.leader_epoch)
            }
            _ => self.tools.fetchers.leave(hosted),
        }
        if partition.directory(self.me) != Some(hosted.directory) {
            self.tools
                .placements
                .push(hosted.topic_id, hosted.index, hosted.directory);
        }
    }

    /// Lets go of replicas of deleted topics, and of those that were assigned elsewhere.
    fn remove_gone(self: &Arc<Self>, image: &MetadataImage, delta: Option<&MetadataDelta>) {
        let gone: Vec<Arc<Hosted>> = self
            .all()
            .into_iter()
            .filter(|hosted| {
                let touched = delta.is_none_or(|delta| {
                    delta.topics_removed.contains_key(&hosted.topic_id)
                        || delta.partitions_changed.contains(&hosted.key())
                });
                touched
                    && match image.partition(hosted.topic_id, hosted.index) {
                        None => true,
                        // A replica leaves with a new leader epoch: one that knows a later epoch than this image stays.
                        Some(partition) => {
                            !partition.replicas.contains(&self.me)
                                && hosted.state.lock().knows_until() <= partition.leader_epoch
                        }
                    }
            })
            .collect();
        if gone.is_empty() {
            return;
        }
        if delta.is_none() && image.topic_count() == 0 {
            // More likely the controllers were formatted anew than that every topic was deleted while this broker was down.
            warn!(
                logs = gone.len(),
                "the cluster knows no topic at all; the logs that lie here are left alone"
            );
            return;
        }
        for hosted in &gone {
            hosted.removed.store(true, Ordering::Release);
            self.hosted.write().remove(&hosted.key());
            self.tools.fetchers.leave(hosted);
            let nobody = Assignment {
                leader: None,
                ..known_assignment(hosted)
            };
            let deleted = StorageFailure {
                what: "use",
                path: format!("{}-{}", hosted.topic, hosted.index),
                cause: Arc::new(std::io::Error::other("the log is being deleted")),
            };
            hosted.with(|partition, effects| {
                partition.go_offline(&nobody, effects);
                // Whoever still holds it must not write where another log may be made under the same name.
                partition.disk_failed(&deleted, effects);
            });
            drop(hosted.flushing.lock());
            info!(topic = %hosted.topic, partition = hosted.index, "deleting a log");
        }
        // What the checkpoints say of these logs must not be taken for what they say of a later topic of the same name.
        self.checkpoint();
        let failed = |hosted: &Hosted, error: &LogError| {
            warn!(topic = %hosted.topic, partition = hosted.index, cause = %error, "a log could not be deleted");
        };
        // The name is free from here on: a replica may leave, and come back with the next change.
        let aside: Vec<(Arc<Hosted>, PutAside)> = gone
            .into_iter()
            .filter_map(|hosted| {
                let log_dirs = &self.tools.log_dirs;
                let (index, id) = (hosted.index, hosted.topic_id);
                match log_dirs.put_aside(&hosted.topic, index, id, hosted.directory) {
                    Ok(aside) => aside.map(|aside| (hosted, aside)),
                    Err(error) => {
                        failed(&hosted, &error);
                        None
                    }
                }
            })
            .collect();
        let this = Arc::clone(self);
        // Files may be many and large; nobody waits for them.
        std::thread::spawn(move || {
            for (hosted, aside) in aside {
                if let Err(error) = this.tools.log_dirs.remove_aside(&aside) {
                    failed(&hosted, &error);
                }
            }
        });
    }

    fn change_settings(&self, image: &MetadataImage, delta: Option<&MetadataDelta>) {
        let everywhere = delta.is_none_or(|delta| {
            delta.configs_changed.iter().any(|resource| {
                matches!(
                    resource,
                    ConfigResource::ClusterDefault | ConfigResource::ControllerFile
                )
            })
        });
        let changed: HashSet<&str> = delta
            .into_iter()
            .flat_map(|delta| &delta.configs_changed)
            .filter_map(|resource| match resource {
                ConfigResource::Topic(name) => Some(name.as_str()),
                _ => None,
            })
            .collect();
        let mine = ConfigResource::Broker(self.me);
        if everywhere || delta.is_some_and(|delta| delta.configs_changed.contains(&mine)) {
            self.hands.throttle.configure(image, self.me);
        }
        if !everywhere && changed.is_empty() {
            return;
        }
        let now = self.tools.clock.now();
        let mut settings: HashMap<Arc<str>, TopicSettings> = HashMap::new();
        for hosted in self.all() {
            if !everywhere && !changed.contains(&*hosted.topic) {
                continue;
            }
            let wanted = settings
                .entry(Arc::clone(&hosted.topic))
                .or_insert_with(|| {
                    TopicSettings::of(image, &hosted.topic, self.tools.replica_lag_time_max)
                })
                .clone();
            hosted.with(|partition, effects| {
                partition.set_terms(wanted.terms, now, effects);
                partition.set_log_config(wanted.log);
                partition.set_salvage_policy(wanted.salvage);
            });
            if let Some(partition) = image.partition(hosted.topic_id, hosted.index) {
                hosted.note_throttle(image, partition, self.me);
            }
        }
    }

    /// Takes directories whose disk failed offline, all their partitions with them, until `stop` is cancelled. The
    /// others go on; when the last one fails the broker stays up, fenced.
    pub async fn watch_failures(self: Arc<Self>, stop: CancellationToken) {
        let Some(mut failed) = self.failures.lock().take() else {
            return;
        };
        let mut offline: BTreeSet<DirectoryId> = BTreeSet::new();
        loop {
            let (directory, failure) = tokio::select! {
                () = stop.cancelled() => return,
                failure = failed.recv() => match failure {
                    Some(failure) => failure,
                    None => return,
                },
            };
            if !offline.insert(directory) {
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

    /// The replicas that are not intact (docs/storage.md): damaged or too short; gone from a directory they were told to lie
    /// in; or kept in the page cache only, and the machine has booted since.
    pub fn not_intact(&self, opened: Opened, image: &MetadataImage) -> Vec<Key> {
        let mut not_intact: BTreeSet<Key> = opened.damaged.into_iter().collect();
        for (topic, key) in opened.after_a_boot {
            let settings = TopicSettings::of(image, &topic, self.tools.replica_lag_time_max);
            if settings.terms.durability == Durability::PageCache {
                not_intact.insert(key);
            }
        }
        let offline: HashSet<DirectoryId> = self
            .tools
            .log_dirs
            .directories()
            .into_iter()
            .filter_map(|(directory, works)| (!works).then_some(directory))
            .collect();
        for (topic, index, partition) in image.partitions() {
            let key = (topic.id, index);
            // Without a directory it was never made, and has lost nothing; one that is offline with its directory may
            // have it all still.
            let place = partition
                .directory(self.me)
                .filter(|directory| !offline.contains(directory));
            if place.is_some() && self.get(key.0, key.1).is_none() {
                error!(topic = %topic.name, partition = index, "a replica's log is gone; its leader will be asked for all of it");
                not_intact.insert(key);
            }
        }
        not_intact.into_iter().collect()
    }

    /// Closes every log in an orderly way and marks the directories as cleanly shut down. Blocks. Everything that
    /// uses a partition must have ended.
    pub fn close(self: Arc<Self>) {
        let Some(this) = Arc::into_inner(self) else {
            warn!("somebody still uses the logs; they will be checked at the next start");
            return;
        };
        let Self { tools, hosted, .. } = this;
        tools.fetchers.close();
        tools.proposals.clear();
        tools.flusher.shutdown();
        let hosted: Vec<Arc<Hosted>> = hosted.into_inner().into_values().collect();
        crate::log_maintenance::checkpoint(&tools.log_dirs, &hosted);
        let closing = Mutex::new(hosted);
        let all_closed = AtomicBool::new(true);
        std::thread::scope(|scope| {
            for _ in 0..PARALLEL {
                scope.spawn(|| {
                    loop {
                        let Some(next) = closing.lock().pop() else {
                            return;
                        };
                        if !close_one(next) {
                            all_closed.store(false, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        if !all_closed.into_inner() {
            warn!(
                "some logs could not be closed in an orderly way; they will be checked at the next start"
            );
            return;
        }
        match Arc::into_inner(tools.log_dirs).map(LogDirs::close) {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                warn!(cause = %error, "the log directories could not be marked as cleanly shut down");
            }
            None => warn!(
                "somebody still uses the log directories; they will be checked at the next start"
            ),
        }
    }
}

fn close_one(hosted: Arc<Hosted>) -> bool {
    let (topic, index) = (Arc::clone(&hosted.topic), hosted.index);
    let Some(hosted) = Arc::into_inner(hosted) else {
        warn!(%topic, partition = index, "somebody still uses a log that is being closed");
        return false;
    };
    match hosted.state.into_inner().into_log().close() {
        Ok(_) => true,
        Err(error) => {
            warn!(%topic, partition = index, cause = %error, "a log could not be closed");
            false
        }
    }
}

/// What the partition knows already, as an assignment that names nobody.
fn known_assignment(hosted: &Arc<Hosted>) -> Assignment {
    let hint = hosted.state.lock().leader_hint();
    Assignment {
        leader_epoch: hint.leader_epoch,
        ..Assignment::default()
    }
}

/// A partition as replication needs it: what was agreed, and how the brokers of its replicas stand.
pub fn assignment(image: &MetadataImage, partition: &PartitionImage) -> Assignment {
    Assignment {
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
            .filter_map(|id| {
                let broker = image.broker(*id)?;
                // A replica whose directory is offline does not come back by itself: the high watermark must not wait
                // for it as for one that is about to join.
                let has_a_disk = partition
                    .directory(*id)
                    .is_none_or(|directory| broker.directories.contains(&directory));
                Some((
                    *id,
                    Standing {
                        broker_epoch: broker.epoch,
                        may_join: broker.is_active() && has_a_disk,
                    },
                ))
            })
            .collect(),
    }
}

/// Runs `work` on every item, a few at a time, and returns the results in order.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let threads = PARALLEL.min(items.len());
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut done = Vec::new();
                    loop {
                        let turn = next.fetch_add(1, Ordering::Relaxed);
                        let Some(item) = items.get(turn) else {
                            return done;
                        };
                        done.push((turn, work(item)));
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    results.sort_unstable_by_key(|(turn, _)| *turn);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use kuorum_metadata::MetadataImage;
    use kuorum_metadata::record::{
        BrokerEventKind, LeaderRecoveryState, MetadataRecord, PartitionRecord, RegisterBroker,
    };
    use kuorum_protocol::{
        BrokerId, DirectoryId, IncarnationId, LeaderEpoch, Offset, PartitionEpoch, TopicId,
    };
    use uuid::Uuid;

    use super::{assignment, event_of, in_parallel};
    use crate::partition::Truncation;
    use crate::testing::{Desk, Topic, topic_id};

    fn directory(number: u128) -> DirectoryId {
        DirectoryId(Uuid::from_u128(number))
    }

    fn broker(id: i32, online: &[u128], fenced: bool, leaving: bool) -> MetadataRecord {
        MetadataRecord::RegisterBroker(RegisterBroker {
            broker_id: BrokerId(id),
            incarnation_id: IncarnationId(Uuid::nil()),
            broker_epoch: None,
            listeners: Vec::new(),
            http: String::new(),
            rack: None,
            directories: online.iter().copied().map(directory).collect(),
            fenced,
            in_controlled_shutdown: leaving,
            version: String::new(),
            last_report: 0,
        })
    }

    #[tokio::test]
    async fn the_checkpoints_forget_a_topic_before_its_name_is_free() {
        let desk = Desk::with(&[Topic::default()]).await;
        let log_starts = || {
            let dir = &desk.rooms.config.log_dirs[0];
            let path = std::path::Path::new(dir).join("log-start-offset-checkpoint");
            std::fs::read_to_string(path).expect("a checkpoint")
        };
        desk.rooms.replicas.checkpoint();
        assert_eq!(log_starts(), "0\n1\norders 0 0\n");
        let topic_id = topic_id("orders");
        desk.learn(vec![MetadataRecord::RemoveTopic { topic_id }])
            .await;
        assert_eq!(log_starts(), "0\n0\n");
    }

    /// What the cluster says of the one partition of `orders`.
    fn replicas(brokers: &[i32], leader: i32, epoch: i32) -> MetadataRecord {
        let brokers: Vec<BrokerId> = brokers.iter().copied().map(BrokerId).collect();
        let mut change = kuorum_metadata::record::PartitionChange::of(
            topic_id("orders"),
            0,
            PartitionEpoch(epoch),
            "a move",
        );
        change.leader_epoch = Some(LeaderEpoch(epoch));
        change.leader = Some(Some(BrokerId(leader)));
        change.directories = Some(vec![DirectoryId::ZERO; brokers.len()]);
        change.isr = Some(vec![BrokerId(leader)]);
        change.replicas = Some(brokers);
        MetadataRecord::PartitionChange(change)
    }

    #[tokio::test]
    async fn a_replica_that_left_has_no_log_and_one_that_comes_back_begins_anew() {
        let desk = Desk::with(&[Topic::default()]).await;
        let manager = &desk.rooms.replicas;
        let data = std::path::PathBuf::from(&desk.rooms.config.log_dirs[0]);
        let found = || std::fs::exists(data.join("orders-0")).expect("a directory to look into");
        let end = || {
            let hosted = manager.get(topic_id("orders"), 0).expect("it is hosted");
            manager.with(&hosted, |partition, _| partition.log().end_offset().0)
        };
        for round in 0..3 {
            // Written in the epoch it leads in.
            let hosted = manager.get(topic_id("orders"), 0).expect("it is hosted");
            let now = desk.rooms.clock.now();
            let appended = manager.with(&hosted, |partition, effects| {
                let mut batch = crate::testing::batch(&["a", "b"]).to_vec();
                partition.append(&mut batch, now, effects)
            });
            assert_eq!(appended.expect("it leads").until.0, 2, "round {round}");
            drop(hosted);
            assert!(found() && end() == 2);
            // On the way it is still one of them; then it is not, and at once it is again.
            let epoch = 3 * round + 1;
            desk.learn(vec![replicas(&[2, 1], 2, epoch)]).await;
            assert!(found(), "round {round}: it is still a replica");
            desk.learn(vec![replicas(&[2], 2, epoch + 1)]).await;
            assert!(
                manager.is_empty() && !found(),
                "round {round}: its files are gone"
            );
            desk.learn(vec![replicas(&[1, 2], 1, epoch + 2)]).await;
            assert!(found() && end() == 0, "round {round}: a new log");
        }
    }

    #[tokio::test]
    async fn metadata_older_than_the_log_removes_nothing() {
        let desk = Desk::with(&[Topic::default()]).await;
        desk.learn(vec![replicas(&[1], 1, 7)]).await;
        desk.learn(vec![replicas(&[2], 2, 6)]).await;
        assert!(!desk.rooms.replicas.is_empty());
        desk.learn(vec![replicas(&[2], 2, 8)]).await;
        assert!(desk.rooms.replicas.is_empty());
    }

    #[tokio::test]
    async fn a_cut_is_reported() {
        let desk = Desk::with(&[Topic::default()]).await;
        let hosted = desk.rooms.replicas.get(topic_id("orders"), 0).unwrap();
        let reports = &desk.rooms.replicas.tools.reports;
        assert!(reports.oldest().is_empty());
        hosted.with(|_, effects| {
            effects.truncated = Some(Truncation {
                from: Offset(9),
                to: Offset(4),
                epoch: None,
                leader_epoch: LeaderEpoch(2),
                unclean: false,
            });
        });
        let waiting = reports.oldest();
        assert_eq!(waiting.len(), 1);
        assert_eq!(
            (waiting[0].number, waiting[0].topic_id),
            (1, topic_id("orders"))
        );
        assert!(matches!(
            waiting[0].what,
            BrokerEventKind::ReplicaTruncated {
                from: Offset(9),
                to: Offset(4),
                ..
            }
        ));
    }

    #[test]
    fn what_is_remembered_of_a_cut() {
        let cut = |from, to| Truncation {
            from: Offset(from),
            to: Offset(to),
            epoch: Some(LeaderEpoch(3)),
            leader_epoch: LeaderEpoch(5),
            unclean: true,
        };
        let (from, leader_epoch) = (Offset(200), LeaderEpoch(5));
        assert_eq!(
            event_of(&cut(200, 150)),
            BrokerEventKind::ReplicaTruncated {
                from,
                to: Offset(150),
                epoch: Some(LeaderEpoch(3)),
                leader_epoch,
                unclean: true,
            }
        );
        assert_eq!(
            event_of(&cut(200, 900)),
            BrokerEventKind::ReplicaRestarted {
                from,
                to: Offset(900),
                leader_epoch,
            }
        );
    }

    #[test]
    fn who_may_join_an_isr() {
        let topic_id = TopicId(Uuid::from_u128(1));
        let rows = [
            ("active", broker(2, &[7], false, false), Some(true)),
            ("fenced", broker(2, &[7], true, false), Some(false)),
            ("leaving", broker(2, &[7], false, true), Some(false)),
            (
                "its directory is offline",
                broker(2, &[8], false, false),
                Some(false),
            ),
            ("not registered", broker(3, &[7], false, false), None),
        ];
        for (name, record, may_join) in rows {
            let mut image = MetadataImage::default();
            let partition = MetadataRecord::Partition(PartitionRecord {
                topic_id,
                partition: 0,
                replicas: vec![BrokerId(1), BrokerId(2)],
                directories: vec![DirectoryId::ZERO, directory(7)],
                isr: vec![BrokerId(1)],
                leader: Some(BrokerId(1)),
                leader_epoch: LeaderEpoch(0),
                partition_epoch: PartitionEpoch(0),
                leader_recovery_state: LeaderRecoveryState::Recovered,
                elr: Vec::new(),
                last_known_elr: Vec::new(),
                last_unclean_epoch: None,
                adding_replicas: Vec::new(),
                removing_replicas: Vec::new(),
                original_replicas: Vec::new(),
            });
            let topic = MetadataRecord::Topic {
                name: "t".to_owned(),
                topic_id,
            };
            image.apply_records(4, &[record, topic, partition]);
            let partition = image.partition(topic_id, 0).expect("it was made");
            let standing = assignment(&image, partition).standing;
            let of_two = standing.get(&BrokerId(2)).map(|standing| standing.may_join);
            assert_eq!(of_two, may_join, "{name}");
        }
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..100).collect();
        let doubled = in_parallel(&items, |item| item * 2);
        assert_eq!(
            doubled,
            items.iter().map(|item| item * 2).collect::<Vec<_>>()
        );
        assert!(in_parallel(&[], |item: &usize| *item).is_empty());
    }
}
