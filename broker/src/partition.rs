//! One replica of one partition: where replication's decisions meet the log.
//! Law: synchronous, one lock around it, time handed in, effects handed out. Epochs are checked under the same `&mut`
//! as the append. A parked produce belongs to the leader epoch that appended it and fails with it.

mod effects;
mod error;
mod following;
mod produce;
mod read;
mod salvager;
mod status;
#[cfg(test)]
mod tests;
mod upkeep;

use std::sync::Arc;

use kuorum_protocol::{
    BrokerId, LeaderEpoch, Monotonic, Now, Offset, PartitionEpoch, PartitionIndex, TopicId,
};
use kuorum_replication::follower::LogView;
use kuorum_replication::mutation::{self, Mutation};
use kuorum_replication::{Assignment, Follower, IsrReply, Leader, Terms, Waiters};
use kuorum_storage::salvage::Aside;
use kuorum_storage::{Dir, EpochEntry, Log, LogConfig, StorageFailure};

pub use effects::{Effects, ProduceToken, Truncation};
pub use error::{LeaderHint, ProduceError, ReadError};
pub use following::Fetched;
pub use produce::Appended;
pub use read::{FoundOffset, Isolation, OffsetQuery, ReadOutcome, ReadSpec, Reader};
use salvager::Why;
pub use salvager::{SalvagePolicy, Salvager, Stopwatch};
pub use status::{Figures, FollowerStatus, Status};

/// Which replica this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The topic's name.
    pub topic: Arc<str>,
    pub topic_id: TopicId,
    pub index: PartitionIndex,
    /// The broker that holds this replica.
    pub me: BrokerId,
}

/// One replica of one partition.
#[derive(Debug)]
pub struct Partition<D: Dir, T = ProduceToken> {
    identity: Identity,
    log: Log<D>,
    terms: Terms,
    role: Role,
    /// What the newest assignment applied says; stale ones are ignored by it.
    known: Assignment,
    /// Whether any assignment was applied since the process began.
    assigned: bool,
    high_watermark: Offset,
    /// Produces that wait for the high watermark.
    waiters: Waiters<Offset, T>,
    /// Refusals that wait for the answer to a proposal.
    refusals: Waiters<u64, T>,
    /// Follower generations and proposal numbers never repeat in the life of a process.
    generation: u64,
    next_proposal: u64,
    /// The high watermark that the leader last told this follower; `None` before the first time in this role.
    leaders_high_watermark: Option<Offset>,
    /// Since when something is unflushed, for `flush.ms`.
    dirty_since: Option<Monotonic>,
    /// Where what an unclean election makes this replica cut off is set aside; `None` to set nothing aside.
    salvager: Option<Salvager<D>>,
    salvage_policy: SalvagePolicy,
    /// The latest leader epoch in which this process led, or found that its log and the leader's agree.
    agreed_in: Option<LeaderEpoch>,
    /// The log as it was before it failed: a log that failed half-way through a cut has nothing sound to say.
    last_words: Option<LogView>,
}

#[derive(Debug)]
enum Role {
    Leader(Box<Leader>),
    Follower(Follower),
    /// Nobody leads, or nobody has said yet who does.
    Leaderless,
    /// The disk failed. Final.
    Failed(StorageFailure),
}

impl<D: Dir, T> Partition<D, T> {
    /// A replica whose log has been opened. It serves nobody until [`Self::apply`] says what it is. The checkpointed
    /// high watermark is a floor.
    #[must_use]
    pub fn new(
        identity: Identity,
        log: Log<D>,
        terms: Terms,
        checkpointed_high_watermark: Offset,
    ) -> Self {
        let high_watermark = checkpointed_high_watermark
            .min(log.end_offset())
            .max(log.start_offset());
        Self {
            identity,
            log,
            terms,
            role: Role::Leaderless,
            known: Assignment {
                leader_epoch: LeaderEpoch::UNKNOWN,
                partition_epoch: PartitionEpoch(-1),
                ..Assignment::default()
            },
            assigned: false,
            high_watermark,
            waiters: Waiters::default(),
            refusals: Waiters::default(),
            generation: 0,
            next_proposal: 1,
            leaders_high_watermark: None,
            dirty_since: None,
            salvager: None,
            salvage_policy: SalvagePolicy::default(),
            agreed_in: None,
            last_words: None,
        }
    }

    /// Sets aside what an unclean election makes this replica cut off.
    #[must_use]
    pub fn with_salvager(mut self, salvager: Option<Salvager<D>>) -> Self {
        self.salvager = salvager;
        self
    }

    /// Which replica this is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The log, to look at. Of one that failed only [`Self::log_view`] is sound.
    #[must_use]
    pub fn log(&self) -> &Log<D> {
        &self.log
    }

    /// Takes the log out, to close or delete it. Parked produces must have been failed by [`Self::go_offline`].
    #[must_use]
    pub fn into_log(self) -> Log<D> {
        self.log
    }

    /// Whether this replica leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    /// The leader's state, if this replica leads.
    #[must_use]
    pub fn leader(&self) -> Option<&Leader> {
        match &self.role {
            Role::Leader(leader) => Some(leader),
            _ => None,
        }
    }

    /// Who leads, as far as this replica knows.
    #[must_use]
    pub fn leader_hint(&self) -> LeaderHint {
        LeaderHint {
            leader: self.known.leader,
            leader_epoch: self.known.leader_epoch,
        }
    }

    /// The latest leader epoch that this replica has heard of, from the metadata or in its log.
    #[must_use]
    pub fn knows_until(&self) -> LeaderEpoch {
        let in_the_log = self.log_view().latest_epoch;
        let known = self.known.leader_epoch;
        in_the_log.map_or(known, |latest| latest.max(known))
    }

    /// Everything below may be read by consumers.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// The bound of read_committed: the high watermark, as no transaction can be open.
    #[must_use]
    pub fn last_stable_offset(&self) -> Offset {
        self.high_watermark
    }

    /// Where the leader epochs that have records in this log begin, oldest first.
    #[must_use]
    pub fn epoch_starts(&self) -> Vec<EpochEntry> {
        self.log.leader_epochs().entries().to_vec()
    }

    /// What the replication-offset checkpoint may claim: never more than would survive a power cut.
    #[must_use]
    pub fn high_watermark_to_checkpoint(&self) -> Offset {
        self.high_watermark.min(self.log.flushed_end())
    }
}

/// What the cluster decides about this replica.
impl<D: Dir, T> Partition<D, T> {
    /// The metadata image shows the partition, or the brokers of its replicas, like this. News older than what is
    /// known is ignored. A process that has just started must not call this before its own registration is in the
    /// image: until then the image may show a leadership of the process before it.
    pub fn apply(&mut self, assignment: &Assignment, now: Now, fx: &mut Effects<T>) {
        if matches!(self.role, Role::Failed(_)) {
            self.known = assignment.clone();
            return;
        }
        let newness = (assignment.leader_epoch, assignment.partition_epoch);
        let known = (self.known.leader_epoch, self.known.partition_epoch);
        if self.assigned && newness < known {
            return;
        }
        let same_epoch = self.assigned && assignment.leader_epoch == self.known.leader_epoch;
        match assignment.leader {
            Some(leader) if leader == self.identity.me => match &mut self.role {
                Role::Leader(current) if same_epoch => {
                    let step = current.on_metadata(assignment, now.monotonic);
                    self.known = assignment.clone();
                    self.after(step, fx);
                }
                _ => self.become_leader(assignment, now, fx),
            },
            Some(_) | None
                if mutation::off(Mutation::DeposedLeaderStays)
                    && matches!(self.role, Role::Leader(_)) => {}
            Some(leader) if assignment.replicas.contains(&self.identity.me) => {
                if same_epoch && matches!(self.role, Role::Follower(_)) {
                    self.known = assignment.clone();
                } else {
                    self.become_follower(leader, assignment, now, fx);
                }
            }
            _ => self.go_offline(assignment, fx),
        }
    }

    /// This replica leads in the epoch of `assignment`, which begins where its log ends.
    pub fn become_leader(&mut self, assignment: &Assignment, now: Now, fx: &mut Effects<T>) {
        self.leave_role(assignment, fx);
        if !self.led_by_this_process(assignment.leader_epoch) {
            // The log already knows this epoch, so a process before this one led it: it must not be resumed. The
            // registration of this process makes the controllers begin another.
            self.role = Role::Leaderless;
            return;
        }
        if mutation::off(Mutation::LatestBeforeEpochStart) {
            self.high_watermark = self.log.start_offset();
        }
        self.log
            .assign_epoch(assignment.leader_epoch, self.log.end_offset());
        let leader = Leader::new(
            self.identity.me,
            assignment,
            self.terms,
            self.ends(),
            self.high_watermark,
            self.next_proposal,
            now.monotonic,
        );
        self.role = Role::Leader(Box::new(leader));
        self.agreed_in = Some(assignment.leader_epoch);
        self.follow_leaders_high_watermark(fx);
        self.ask_for_flush(now, fx);
    }

    /// This replica follows `leader` in the epoch of `assignment`: first it compares histories.
    pub fn become_follower(
        &mut self,
        leader: BrokerId,
        assignment: &Assignment,
        now: Now,
        fx: &mut Effects<T>,
    ) {
        self.leave_role(assignment, fx);
        let mut follower = Follower::new(leader, assignment.leader_epoch, self.generation)
            .after_unclean(assignment.last_unclean_epoch);
        let me = self.identity.me;
        let counted_on = assignment.isr.contains(&me) || assignment.elr.contains(&me);
        let cut = follower.at_first(&self.log_view(), counted_on);
        self.role = Role::Follower(follower);
        self.cut(cut, now, fx);
        fx.log_dirty |= self.log.flushed_end() < self.log.end_offset();
        fx.fetcher_ready = true;
    }

    /// Nobody leads, or this replica is no longer one of the partition's.
    pub fn go_offline(&mut self, assignment: &Assignment, fx: &mut Effects<T>) {
        self.leave_role(assignment, fx);
        self.role = Role::Leaderless;
        fx.log_dirty |= self.log.flushed_end() < self.log.end_offset();
    }

    /// The controllers have answered proposal `number`, or never will.
    pub fn isr_decided(&mut self, number: u64, reply: IsrReply, now: Now, fx: &mut Effects<T>) {
        if let Role::Leader(leader) = &mut self.role {
            let step = leader.isr_decided(number, reply, now.monotonic);
            self.after(step, fx);
        }
    }

    /// Replication's settings have changed.
    pub fn set_terms(&mut self, terms: Terms, now: Now, fx: &mut Effects<T>) {
        self.terms = terms;
        if let Role::Leader(leader) = &mut self.role {
            let step = leader.set_terms(terms, now.monotonic);
            self.after(step, fx);
        }
        fx.fetcher_ready |= matches!(self.role, Role::Follower(_));
    }

    /// The log's settings have changed.
    pub fn set_log_config(&mut self, config: LogConfig) {
        self.log.set_config(config);
    }

    /// A move has taken this replica from the partition, and its log is about to be deleted. If that was never compared with
    /// a leader's since the partition's last unclean election, nobody can say any more how much of it the others have: all
    /// of it is set aside. Returns whether the log may be deleted: not if it should have been set aside and is not.
    #[must_use]
    pub fn leave_for_good(
        &mut self,
        last_unclean_epoch: Option<LeaderEpoch>,
        now: Now,
        fx: &mut Effects<T>,
    ) -> bool {
        if matches!(self.role, Role::Failed(_)) {
            return false;
        }
        if self.agreed_in >= last_unclean_epoch || mutation::off(Mutation::DeletedWithoutSalvage) {
            return true;
        }
        self.known.last_unclean_epoch = last_unclean_epoch;
        let view = self.log_view();
        match self.set_aside(view.log_start, view.latest_epoch, Why::Leaves, now, fx) {
            Ok(()) => match &fx.set_aside {
                None => true,
                Some(Aside::Kept(item) | Aside::KeptBefore(item)) => item.complete,
                Some(Aside::OutOfBounds | Aside::Failed(_)) => false,
            },
            Err(error) => {
                self.log_failed(error, fx);
                false
            }
        }
    }

    /// What the topic wants of its salvage has changed.
    pub fn set_salvage_policy(&mut self, policy: SalvagePolicy) {
        self.salvage_policy = policy;
    }

    /// Ends whatever this replica was: what waits on an old epoch is told so.
    fn leave_role(&mut self, assignment: &Assignment, fx: &mut Effects<T>) {
        if let Role::Leader(leader) = &self.role {
            self.next_proposal = leader.next_proposal();
        }
        self.known = assignment.clone();
        self.assigned = true;
        self.leaders_high_watermark = None;
        fx.role_changed = true;
        if !mutation::off(Mutation::AckOutlivesEpoch) {
            let hint = self.leader_hint();
            for token in self.waiters.drain() {
                fx.completed
                    .push((token, Err(ProduceError::NotLeader(hint))));
            }
        }
        for token in self.refusals.drain() {
            fx.completed
                .push((token, Err(ProduceError::NotLeader(self.leader_hint()))));
        }
    }

    fn led_by_this_process(&self, epoch: LeaderEpoch) -> bool {
        self.log
            .leader_epochs()
            .latest()
            .is_none_or(|latest| latest < epoch || mutation::off(Mutation::RestartedLeaderResumes))
    }
}
