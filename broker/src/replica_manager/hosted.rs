//! A partition that has its log on this broker, and the hands that carry out what it asks for.
//! Law: a partition decides under its own lock; what follows (flush, propose, complete, wake) is done after the lock has
//! ended.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use kuorum_metadata::control::reassignment;
use kuorum_metadata::record::{BrokerEventKind, ConfigResource};
use kuorum_metadata::{MetadataImage, PartitionImage};
use kuorum_protocol::{BrokerId, DirectoryId, Offset, PartitionIndex, TopicId};
use kuorum_replication::IsrReply;
use kuorum_storage::{AnyDir, FlushHandle, Flushable, StorageFailure};
use kuorum_transport::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tracing::{error, info, warn};

use super::Key;
use crate::alter_partition::IsrProposals;
use crate::cluster::Membership;
use crate::event_reporter::EventReports;
use crate::metrics::Metrics;
use crate::partition::{Effects, Figures, Partition, Truncation};
use crate::salvage::Salvage;
use crate::throttle::{RateLimit, Throttle};

/// A partition that has its log on this broker.
#[derive(Debug)]
pub struct Hosted {
    /// The topic's name.
    pub topic: Arc<str>,
    pub topic_id: TopicId,
    pub index: PartitionIndex,
    /// The directory its log lies in.
    pub directory: DirectoryId,
    pub(super) state: Mutex<Partition<AnyDir>>,
    pub(super) parked: Mutex<Vec<Weak<Notify>>>,
    /// Whom to wake when the follower has something new to ask.
    pub(super) fetcher: Mutex<Option<Arc<Notify>>>,
    pub(super) flush: OnceLock<FlushHandle>,
    /// Held while a flush runs: it writes by name, so it must end before the name means another log.
    pub(super) flushing: Mutex<()>,
    /// The partition is being deleted: what its files say no longer matters.
    pub(super) removed: AtomicBool,
    /// The flushed end that the checkpoint on the disk names; −1 before the first.
    pub(super) checkpointed: AtomicI64,
    /// Whether serving its replicas that are not in sync is throttled.
    pub(super) served_throttled: AtomicBool,
    /// Whether this replica is not in sync, and fetching it is throttled.
    pub(super) fetched_throttled: AtomicBool,
    /// Whether a reassignment is bringing this replica here.
    pub(super) arriving: AtomicBool,
    pub(super) hands: Arc<Hands>,
}

/// What carrying out effects takes.
#[derive(Debug)]
pub(super) struct Hands {
    pub(super) clock: Clock,
    pub(super) membership: Arc<Membership>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) proposals: Arc<IsrProposals>,
    pub(super) throttle: Throttle,
    pub(super) reports: Arc<EventReports>,
    pub(super) salvage: Arc<Salvage>,
    pub(super) failures: mpsc::UnboundedSender<(DirectoryId, StorageFailure)>,
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
    pub(super) fn note_throttle(
        &self,
        image: &MetadataImage,
        partition: &PartitionImage,
        me: BrokerId,
    ) {
        let configs = image.configs_of(&ConfigResource::Topic(self.topic.to_string()));
        let is_named = |list: &str| {
            let list = configs.and_then(|configs| configs.get(list));
            list.is_some_and(|list| reassignment::is_listed(list, self.index, me))
        };
        let served = is_named(reassignment::LEADER_REPLICAS);
        let fetched = !partition.isr.contains(&me) && is_named(reassignment::FOLLOWER_REPLICAS);
        self.served_throttled.store(served, Ordering::Relaxed);
        self.fetched_throttled.store(fetched, Ordering::Relaxed);
        let arriving = partition.adding_replicas.contains(&me);
        self.arriving.store(arriving, Ordering::Relaxed);
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

    /// The replica in numbers, for the metrics.
    pub(crate) fn figures(&self) -> Figures {
        self.state.lock().figures()
    }

    /// Adds who waits for a change here; one fetch waits at many partitions.
    pub(crate) fn note_waiters(&self, waiters: &mut HashSet<*const Notify>) {
        let parked = self.parked.lock();
        let alive = parked.iter().filter(|waiter| waiter.strong_count() > 0);
        waiters.extend(alive.map(Weak::as_ptr));
    }

    /// Runs `act` under the partition's lock, then carries out the effects it left: submits a flush, queues an ISR
    /// proposal, completes parked produces, wakes parked fetches. What serves or fetches does no flush under this lock;
    /// what cuts a log, deletes of it or moves its start durably does, and is only called where blocking is allowed.
    pub fn with<R>(
        self: &Arc<Self>,
        act: impl FnOnce(&mut Partition<AnyDir>, &mut Effects) -> R,
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

    /// A change of the ISR that this broker proposed was refused, or nobody answered.
    pub(crate) fn count_failed_isr_update(&self) {
        self.hands.metrics.failed_isr_updates.inc();
    }

    /// A follower has fetched so many bytes of records.
    pub(crate) fn count_fetched(&self, bytes: usize) {
        self.hands.metrics.replication_bytes_in.inc_by(bytes as u64);
        if self.arriving.load(Ordering::Relaxed) {
            let arrived = &self.hands.metrics.reassignment_bytes_in;
            arrived.inc_by(bytes as u64);
        }
    }

    /// Whoever fetches for this follower is to be woken through `fetcher`.
    pub(crate) fn set_fetcher(&self, fetcher: Option<Arc<Notify>>) {
        *self.fetcher.lock() = fetcher;
    }

    /// Flushes what is dirty. Blocks.
    fn flush_now(self: &Arc<Self>) {
        let _running = self.flushing.lock();
        let begun = self.state.lock().begin_flush();
        let Some(job) = begun else {
            return;
        };
        let began = self.hands.clock.now().monotonic;
        let result = job.run();
        let now = self.hands.clock.now();
        let took = now.monotonic.since(began).as_secs_f64();
        self.hands.metrics.flush_seconds.observe(took);
        self.with(|partition, effects| partition.finish_flush(job, result, now, effects));
    }

    /// Makes the log's being there outlast a power cut, if it does not yet; whether it does now. Blocks.
    pub(super) fn make_it_last(self: &Arc<Self>) -> bool {
        let lasts = || self.state.lock().log().is_named();
        if !lasts() {
            self.flush_now();
        }
        lasts()
    }

    /// Whether nothing was ever in the log.
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().log().end_offset() == Offset::ZERO
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
            let leader_epoch = self.state.lock().leader_hint().leader_epoch.0;
            let broker_epoch = self.hands.membership.epoch().map(|epoch| epoch.0);
            warn!(topic = %self.topic, partition = self.index, leader_epoch, broker_epoch, %cause,
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
        let leader_epoch = cut.leader_epoch.0;
        let broker_epoch = self.hands.membership.epoch().map(|epoch| epoch.0);
        let cause = cause_of(cut);
        if cut.to > cut.from {
            info!(topic = %self.topic, partition = self.index, leader_epoch, broker_epoch, from = cut.from.0, to = cut.to.0,
                  cause, "a follower begins anew where its leader's log begins");
            return;
        }
        info!(
            topic = %self.topic,
            partition = self.index,
            leader_epoch,
            broker_epoch,
            from = cut.from.0,
            to = cut.to.0,
            records = cut.from.0 - cut.to.0,
            epoch = cut.epoch.map(|epoch| epoch.0),
            unclean = cut.unclean,
            cause,
            "a follower cut off what its leader does not have"
        );
    }
}

/// Why a follower cut its log, for the log.
fn cause_of(cut: &Truncation) -> &'static str {
    match (cut.to > cut.from, cut.unclean) {
        (true, _) => "the log ends before the leader's begins",
        (false, true) => {
            "what is cut was written before an unclean election, whose leader did not have it"
        }
        (false, false) => "what is cut was never committed, and the leader does not have it",
    }
}

/// What the cluster remembers of a cut.
pub(super) fn event_of(cut: &Truncation) -> BrokerEventKind {
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
pub(super) struct FlushTarget(pub(super) Weak<Hosted>);

impl Flushable for FlushTarget {
    fn flush(&self) {
        if let Some(hosted) = self.0.upgrade() {
            hosted.flush_now();
        }
    }
}
