//! One replica of one partition: where replication's decisions meet the log.
//! Law: synchronous, one lock around it, time handed in, effects handed out. Epochs are checked under the same `&mut`
//! as the append. A parked produce belongs to the leader epoch that appended it and fails with it.

mod effects;
mod error;
mod salvager;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use kuorum_protocol::{
    BrokerEpoch, BrokerId, LeaderEpoch, Monotonic, Now, Offset, PartitionEpoch, PartitionIndex,
    Timestamp, TopicId,
};
use kuorum_replication::acks::{Acks, Completion};
use kuorum_replication::follower::{Cut, FetchFailure, LogView};
use kuorum_replication::leader::{FetchRefused, FollowerFetch, LogEnds, Step};
use kuorum_replication::mutation::{self, Mutation};
use kuorum_replication::{
    Assignment, Durability, Follower, FollowerStep, IsrReply, Leader, Terms, Ticket, Waiters,
};
use kuorum_storage::{
    AppendError, Dir, EpochEntry, FlushJob, Log, LogConfig, LogError, RecoveryPoint, StorageFailure,
};

pub use effects::{Effects, ProduceToken, Truncation};
pub use error::{LeaderHint, ProduceError, ReadError};
pub use salvager::{SalvagePolicy, Salvager, Stopwatch};

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
    waiters: Waiters<T>,
    /// Follower generations and proposal numbers never repeat in the life of a process.
    generation: u64,
    next_proposal: u64,
    /// Since when something is unflushed, for `flush.ms`.
    dirty_since: Option<Monotonic>,
    /// Where what an unclean election makes this replica cut off is set aside; `None` to set nothing aside.
    salvager: Option<Salvager<D>>,
    salvage_policy: SalvagePolicy,
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

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record; of the first time, if the batch is a duplicate.
    pub base_offset: Offset,
    /// The offset after the last record: what acks=all waits for.
    pub until: Offset,
    /// `Timestamp::NONE` with CreateTime.
    pub log_append_time: Timestamp,
    pub log_start: Offset,
    pub leader_epoch: LeaderEpoch,
    /// The batch was here already; nothing was appended.
    pub duplicate: bool,
}

/// Which records a consumer may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Everything below the high watermark.
    #[default]
    ReadUncommitted,
    /// Everything below the last stable offset.
    ReadCommitted,
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A consumer sees committed records only.
    Consumer { isolation: Isolation },
    /// A replica sees everything, and tells by its offset what it has.
    Replica {
        broker: BrokerId,
        /// −1 when the request's version does not carry it.
        broker_epoch: BrokerEpoch,
    },
}

/// One partition of one Fetch.
#[derive(Clone, Copy, Debug)]
pub struct ReadSpec {
    pub from: Offset,
    pub max_bytes: usize,
    /// Return one whole batch even if it is larger than `max_bytes`.
    pub at_least_one: bool,
    /// The leader epoch the caller knows (v9+).
    pub current_leader_epoch: Option<LeaderEpoch>,
    /// The epoch of the record before `from` (v12+): a difference in history is told instead of records.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    pub reader: Reader,
}

/// What a read found.
#[derive(Clone, Debug)]
pub struct ReadOutcome {
    pub records: Bytes,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start: Offset,
    /// The histories part: the caller's last epoch ends here in this log. `records` is empty then.
    pub diverging: Option<(LeaderEpoch, Offset)>,
}

/// What ListOffsets may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetQuery {
    /// The end: the bound of what the reader may see.
    Latest,
    /// The start.
    Earliest,
    /// The record with the highest timestamp.
    MaxTimestamp,
    /// The first record at or after this time.
    At(Timestamp),
}

/// What ListOffsets found. Latest and Earliest have no timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    pub timestamp: Timestamp,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
}

/// What a leader answered to a fetch.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub records: Bytes,
    pub high_watermark: Offset,
    pub log_start: Offset,
    pub diverging: Option<(LeaderEpoch, Offset)>,
}

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
            generation: 0,
            next_proposal: 1,
            dirty_since: None,
            salvager: None,
            salvage_policy: SalvagePolicy::default(),
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
                    self.become_follower(leader, assignment, fx);
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
        self.follow_leaders_high_watermark(fx);
        self.ask_for_flush(now, fx);
    }

    /// This replica follows `leader` in the epoch of `assignment`: first it compares histories.
    pub fn become_follower(
        &mut self,
        leader: BrokerId,
        assignment: &Assignment,
        fx: &mut Effects<T>,
    ) {
        self.leave_role(assignment, fx);
        let follower = Follower::new(leader, assignment.leader_epoch, self.generation);
        self.generation = follower.generation();
        self.role = Role::Follower(follower);
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
        fx.role_changed = true;
        if !mutation::off(Mutation::AckOutlivesEpoch) {
            let hint = self.leader_hint();
            for token in self.waiters.drain() {
                fx.completed
                    .push((token, Err(ProduceError::NotLeader(hint))));
            }
        }
    }

    fn led_by_this_process(&self, epoch: LeaderEpoch) -> bool {
        self.log
            .leader_epochs()
            .latest()
            .is_none_or(|latest| latest < epoch || mutation::off(Mutation::RestartedLeaderResumes))
    }
}

/// Produce.
impl<D: Dir, T> Partition<D, T> {
    /// Whether a produce with these acks may append now.
    ///
    /// # Errors
    /// `NotLeader`, `NotEnoughReplicas`, `Storage`.
    pub fn admit(&self, acks: Acks) -> Result<(), ProduceError> {
        match &self.role {
            Role::Leader(leader) if leader.admits(acks) => Ok(()),
            Role::Leader(_) => Err(ProduceError::NotEnoughReplicas),
            Role::Failed(failure) => Err(ProduceError::Storage(failure.clone())),
            Role::Follower(_) | Role::Leaderless => {
                Err(ProduceError::NotLeader(self.leader_hint()))
            }
        }
    }

    /// Appends one validated batch, patching its offset and epoch where it lies. [`Self::admit`] comes first, and
    /// [`Self::park`] after, under the same lock.
    ///
    /// # Errors
    /// `NotLeader`; `Refused` for what the log does not take, with nothing changed; `Storage`, and the partition is
    /// offline.
    pub fn append(
        &mut self,
        batch: &mut [u8],
        now: Now,
        fx: &mut Effects<T>,
    ) -> Result<Appended, ProduceError> {
        let leader_epoch = match &self.role {
            Role::Leader(leader) => leader.leader_epoch(),
            Role::Failed(failure) => return Err(ProduceError::Storage(failure.clone())),
            Role::Follower(_) | Role::Leaderless => {
                return Err(ProduceError::NotLeader(self.leader_hint()));
            }
        };
        let before = self.log_view();
        let info = match self.log.append_as_leader(batch, leader_epoch, now) {
            Ok(info) => info,
            Err(AppendError::Storage(failure)) => {
                self.last_words = Some(before);
                self.fail(&failure, fx);
                return Err(ProduceError::Storage(failure));
            }
            Err(refused) => return Err(ProduceError::Refused(refused)),
        };
        if !info.duplicate {
            fx.appended = true;
            self.log_changed(now, fx);
            self.ask_for_flush(now, fx);
        }
        Ok(Appended {
            base_offset: info.first_offset,
            until: info.last_offset.plus(1),
            log_append_time: info.log_append_time,
            log_start: self.log.start_offset(),
            leader_epoch,
            duplicate: info.duplicate,
        })
    }

    /// Waits for the high watermark to reach `until` (what [`Appended`] says); `token` comes back in
    /// `Effects::completed`, perhaps at once.
    pub fn park(&mut self, until: Offset, deadline: Monotonic, token: T, fx: &mut Effects<T>) {
        match &self.role {
            Role::Leader(leader) => match leader.completion(until) {
                Some(completion) => fx.completed.push((token, outcome(completion))),
                None => self.waiters.park(until, deadline, token),
            },
            Role::Failed(failure) => {
                fx.completed
                    .push((token, Err(ProduceError::Storage(failure.clone()))));
            }
            Role::Follower(_) | Role::Leaderless => {
                let hint = self.leader_hint();
                fx.completed
                    .push((token, Err(ProduceError::NotLeader(hint))));
            }
        }
    }
}

/// Read.
impl<D: Dir, T> Partition<D, T> {
    /// Reads for a consumer or a replica. A replica's fetch is also its report of what it has.
    ///
    /// # Errors
    /// Every one of [`ReadError`] but `OffsetNotAvailable`.
    pub fn read(
        &mut self,
        spec: ReadSpec,
        now: Now,
        fx: &mut Effects<T>,
    ) -> Result<ReadOutcome, ReadError> {
        self.check_leader(spec.current_leader_epoch)?;
        let log_end = self.log.end_offset();
        if let Some(diverging) = self.diverging(&spec, log_end)? {
            if mutation::off(Mutation::DivergenceIsProgress)
                && let Reader::Replica {
                    broker,
                    broker_epoch,
                } = spec.reader
            {
                let spec = ReadSpec {
                    from: spec.from.min(log_end),
                    ..spec
                };
                self.follower_progress(broker, broker_epoch, &spec, log_end, now, fx)?;
            }
            return Ok(self.read_outcome(Bytes::new(), Some(diverging)));
        }
        let log_start = self.log.start_offset();
        if spec.from < log_start || spec.from > log_end {
            return Err(ReadError::OffsetOutOfRange { log_start, log_end });
        }
        let until = match spec.reader {
            Reader::Consumer { isolation } => self.readable_until(isolation),
            Reader::Replica {
                broker,
                broker_epoch,
            } => {
                self.follower_progress(broker, broker_epoch, &spec, log_end, now, fx)?;
                log_end
            }
        };
        if spec.from >= until {
            return Ok(self.read_outcome(Bytes::new(), None));
        }
        match self
            .log
            .read(spec.from, until, spec.max_bytes, spec.at_least_one)
        {
            Ok(records) => Ok(self.read_outcome(records, None)),
            Err(error) => Err(self.read_failed(error.into(), fx)),
        }
    }

    /// Answers ListOffsets. `replica` sees up to the log end.
    ///
    /// # Errors
    /// As [`Self::read`]; `OffsetNotAvailable` for all but `Earliest` until the high watermark is known to be true.
    pub fn list_offset(
        &mut self,
        query: OffsetQuery,
        current_leader_epoch: Option<LeaderEpoch>,
        reader: Reader,
        fx: &mut Effects<T>,
    ) -> Result<Option<FoundOffset>, ReadError> {
        let leader = self.check_leader(current_leader_epoch)?;
        let leader_epoch = leader.leader_epoch();
        let until = match reader {
            Reader::Replica { .. } => self.log.end_offset(),
            Reader::Consumer { isolation } => {
                if query != OffsetQuery::Earliest && !leader.knows_high_watermark() {
                    return Err(ReadError::OffsetNotAvailable);
                }
                self.readable_until(isolation)
            }
        };
        let found = match query {
            OffsetQuery::Latest => {
                return Ok(Some(FoundOffset {
                    timestamp: Timestamp::NONE,
                    offset: until,
                    leader_epoch,
                }));
            }
            OffsetQuery::Earliest => {
                let offset = self.log.start_offset();
                let epochs = self.log.leader_epochs();
                return Ok(Some(FoundOffset {
                    timestamp: Timestamp::NONE,
                    offset,
                    leader_epoch: epochs.epoch_at(offset).unwrap_or(leader_epoch),
                }));
            }
            OffsetQuery::MaxTimestamp => self.log.max_timestamp(until),
            OffsetQuery::At(timestamp) => self.log.offset_for_timestamp(timestamp, until),
        };
        match found {
            Ok(found) => Ok(found.map(|(timestamp, offset, leader_epoch)| FoundOffset {
                timestamp,
                offset,
                leader_epoch,
            })),
            Err(error) => Err(self.read_failed(error.into(), fx)),
        }
    }

    /// Answers OffsetsForLeaderEpoch: the newest epoch not above `epoch` and where it ends, `None` if unknown.
    ///
    /// # Errors
    /// `NotLeader`, `FencedLeaderEpoch`, `UnknownLeaderEpoch`, `Storage`.
    pub fn end_offset_for_epoch(
        &self,
        current_leader_epoch: Option<LeaderEpoch>,
        epoch: LeaderEpoch,
    ) -> Result<Option<(LeaderEpoch, Offset)>, ReadError> {
        self.check_leader(current_leader_epoch)?;
        if mutation::off(Mutation::EpochsEndAtLogEnd) {
            return Ok(Some((epoch, self.log.end_offset())));
        }
        Ok(self.own_end_of(epoch))
    }

    /// Moves the log's start to `before`, or to the high watermark if `None`. Returns where it is now.
    ///
    /// # Errors
    /// `OffsetOutOfRange` beyond the high watermark; `NotLeader`; `Storage`.
    pub fn delete_records(
        &mut self,
        before: Option<Offset>,
        fx: &mut Effects<T>,
    ) -> Result<Offset, ReadError> {
        self.check_leader(None)?;
        let start = before.unwrap_or(self.high_watermark);
        if start > self.high_watermark || start.0 < 0 {
            return Err(ReadError::OffsetOutOfRange {
                log_start: self.log.start_offset(),
                log_end: self.high_watermark,
            });
        }
        if start <= self.log.start_offset() {
            return Ok(self.log.start_offset());
        }
        match self.log.advance_start(start) {
            Ok(start) => {
                fx.role_changed = true; // parked fetches below it must learn that they are out of range
                Ok(start)
            }
            Err(error) => {
                let failure = self.log_failed(error, fx);
                Err(ReadError::Storage(failure))
            }
        }
    }

    /// Leads, and in the epoch the caller knows? KIP-320.
    fn check_leader(&self, current: Option<LeaderEpoch>) -> Result<&Leader, ReadError> {
        if let Role::Failed(failure) = &self.role {
            return Err(ReadError::Storage(failure.clone()));
        }
        let hint = self.leader_hint();
        let compared = current.filter(|epoch| epoch.0 >= 0);
        if let Some(epoch) = compared.filter(|_| !mutation::off(Mutation::EpochsNotCompared)) {
            if epoch < hint.leader_epoch {
                return Err(ReadError::FencedLeaderEpoch(hint));
            }
            if epoch > hint.leader_epoch {
                return Err(ReadError::UnknownLeaderEpoch);
            }
        }
        self.leader().ok_or(ReadError::NotLeader(hint))
    }

    /// Whether the caller's history parts from this one before `from` (KIP-595).
    fn diverging(
        &self,
        spec: &ReadSpec,
        log_end: Offset,
    ) -> Result<Option<(LeaderEpoch, Offset)>, ReadError> {
        let Some(last) = spec.last_fetched_epoch.filter(|epoch| epoch.0 >= 0) else {
            return Ok(None);
        };
        let Some((epoch, end)) = self.own_end_of(last) else {
            return Err(ReadError::OffsetOutOfRange {
                log_start: self.log.start_offset(),
                log_end,
            });
        };
        Ok((epoch < last || end < spec.from).then_some((epoch, end)))
    }

    fn follower_progress(
        &mut self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        spec: &ReadSpec,
        leader_end: Offset,
        now: Now,
        fx: &mut Effects<T>,
    ) -> Result<(), ReadError> {
        let Role::Leader(leader) = &mut self.role else {
            return Err(ReadError::NotLeader(self.leader_hint()));
        };
        let fetch = FollowerFetch {
            broker,
            broker_epoch,
            from: spec.from,
            leader_end,
        };
        match leader.on_follower_fetch(fetch, now.monotonic) {
            Ok(step) => {
                self.after(step, fx);
                Ok(())
            }
            Err(FetchRefused::NotAReplica) => Err(ReadError::UnknownLeaderEpoch),
            Err(FetchRefused::StaleBrokerEpoch) => Err(ReadError::StaleBrokerEpoch),
        }
    }

    fn readable_until(&self, isolation: Isolation) -> Offset {
        if mutation::off(Mutation::ConsumersReadToLogEnd) {
            return self.log.end_offset();
        }
        match isolation {
            Isolation::ReadUncommitted => self.high_watermark,
            Isolation::ReadCommitted => self.last_stable_offset(),
        }
    }

    fn read_outcome(
        &self,
        records: Bytes,
        diverging: Option<(LeaderEpoch, Offset)>,
    ) -> ReadOutcome {
        ReadOutcome {
            records,
            high_watermark: self.high_watermark,
            last_stable_offset: self.last_stable_offset(),
            log_start: self.log.start_offset(),
            diverging,
        }
    }

    fn read_failed(&mut self, error: ReadError, fx: &mut Effects<T>) -> ReadError {
        if let ReadError::Storage(failure) = &error {
            self.fail(failure, fx);
        }
        error
    }
}

/// Disk and time.
impl<D: Dir, T> Partition<D, T> {
    /// What to flush, if anything and if no flush is under way. Run the job without the lock, then hand it back.
    pub fn begin_flush(&mut self) -> Option<FlushJob<D>> {
        match self.role {
            Role::Failed(_) => None,
            _ => self.log.begin_flush(),
        }
    }

    /// A flush has ended. An error is final: the partition is offline.
    pub fn finish_flush(
        &mut self,
        job: FlushJob<D>,
        result: io::Result<()>,
        now: Now,
        fx: &mut Effects<T>,
    ) {
        match self.log.finish_flush(job, result) {
            Ok(_) if matches!(self.role, Role::Failed(_)) => {}
            Ok(_) => {
                self.dirty_since = None;
                self.log_changed(now, fx);
                fx.fetcher_ready |= matches!(self.role, Role::Follower(_));
                self.ask_for_flush(now, fx);
            }
            Err(error) => {
                self.log_failed(error, fx);
            }
        }
    }

    /// Gets the log ready for its recovery-point checkpoint; `None` once the disk has failed. Write the checkpoint, then
    /// call [`Self::checkpointed`] with the same point.
    pub fn prepare_checkpoint(&mut self, fx: &mut Effects<T>) -> Option<RecoveryPoint> {
        if matches!(self.role, Role::Failed(_)) {
            return None;
        }
        match self.log.prepare_checkpoint() {
            Ok(point) => Some(point),
            Err(error) => {
                self.log_failed(error, fx);
                None
            }
        }
    }

    /// The checkpoint that says `point` is durable.
    pub fn checkpointed(&mut self, point: RecoveryPoint, fx: &mut Effects<T>) {
        if matches!(self.role, Role::Failed(_)) {
            return;
        }
        if let Err(error) = self.log.checkpointed(point) {
            self.log_failed(error, fx);
        }
    }

    /// Deletes what retention no longer keeps, below the high watermark. Returns the log's start.
    pub fn delete_expired(&mut self, now: Now, fx: &mut Effects<T>) -> Offset {
        if !matches!(self.role, Role::Failed(_)) {
            match self.log.delete_expired(now, self.high_watermark) {
                Ok(start) => return start,
                Err(error) => {
                    self.log_failed(error, fx);
                }
            }
        }
        self.log.start_offset()
    }

    /// Time has passed: ends produces whose deadline has come, looks for followers out of sync, sends proposals
    /// again, and flushes by `flush.ms`.
    pub fn tick(&mut self, now: Now, fx: &mut Effects<T>) {
        for token in self.waiters.expire(now.monotonic) {
            fx.completed.push((token, Err(ProduceError::TimedOut)));
        }
        if let Role::Leader(leader) = &mut self.role {
            let step = leader.tick(now.monotonic);
            self.after(step, fx);
        }
        if matches!(self.role, Role::Failed(_)) {
            return;
        }
        if let Some(since) = self.dirty_since {
            let due = u64::try_from(self.log.config().flush_ms).unwrap_or(0);
            let age = now.monotonic.since(since).as_millis();
            fx.log_dirty |= age >= u128::from(due);
        }
    }

    /// The disk of this replica failed in someone else's hands (another partition of the same directory): offline.
    pub fn disk_failed(&mut self, failure: &StorageFailure, fx: &mut Effects<T>) {
        self.fail(failure, fx);
    }

    fn ends(&self) -> LogEnds {
        LogEnds {
            log_end: self.log.end_offset(),
            flushed_end: self.log.flushed_end(),
        }
    }

    /// Tells the leader that its log has grown or more of it is flushed.
    fn log_changed(&mut self, now: Now, fx: &mut Effects<T>) {
        let ends = self.ends();
        if let Role::Leader(leader) = &mut self.role {
            let step = leader.on_log(ends, now.monotonic);
            self.after(step, fx);
        }
    }

    /// Asks for a flush if something unflushed must not wait: always when only flushed records count, otherwise by
    /// `flush.messages` now and by `flush.ms` later.
    fn ask_for_flush(&mut self, now: Now, fx: &mut Effects<T>) {
        let LogEnds {
            log_end,
            flushed_end,
        } = self.ends();
        if flushed_end >= log_end {
            return;
        }
        let by_count = log_end.0 - flushed_end.0 >= self.log.config().flush_messages;
        if self.terms.durability == Durability::Flushed || by_count {
            fx.log_dirty = true;
        } else {
            self.dirty_since.get_or_insert(now.monotonic);
        }
    }

    fn after(&mut self, step: Step, fx: &mut Effects<T>) {
        if step.proposal.is_some() {
            fx.propose_isr = step.proposal;
        }
        if step.high_watermark_advanced {
            self.follow_leaders_high_watermark(fx);
        }
        if mutation::off(Mutation::AckOutlivesEpoch) {
            self.release_waiters(fx);
        }
    }

    fn follow_leaders_high_watermark(&mut self, fx: &mut Effects<T>) {
        let Role::Leader(leader) = &self.role else {
            return;
        };
        let high_watermark = leader.high_watermark();
        if high_watermark <= self.high_watermark && !mutation::off(Mutation::HighWatermarkFalls) {
            return;
        }
        assert!(
            high_watermark <= self.log.end_offset(),
            "nobody may read what is not here"
        );
        self.high_watermark = high_watermark;
        fx.high_watermark_advanced = true;
        self.release_waiters(fx);
    }

    fn release_waiters(&mut self, fx: &mut Effects<T>) {
        for (until, token) in self.waiters.release(self.high_watermark) {
            let result = match &self.role {
                Role::Leader(leader) => leader.completion(until).map_or(Ok(()), outcome),
                _ => Ok(()),
            };
            fx.completed.push((token, result));
        }
    }

    fn log_failed(&mut self, error: LogError, fx: &mut Effects<T>) -> StorageFailure {
        let failure = match error {
            LogError::Storage(failure) => failure,
            other => StorageFailure {
                what: "working on the log",
                path: format!("{}-{}", self.identity.topic, self.identity.index),
                cause: Arc::new(io::Error::other(other.to_string())),
            },
        };
        self.fail(&failure, fx);
        failure
    }

    /// In the same step as the error: nothing is appended, acknowledged or read from here on (KAFKA-10778).
    fn fail(&mut self, failure: &StorageFailure, fx: &mut Effects<T>) {
        if matches!(self.role, Role::Failed(_)) {
            return;
        }
        self.role = Role::Failed(failure.clone());
        for token in self.waiters.drain() {
            fx.completed
                .push((token, Err(ProduceError::Storage(failure.clone()))));
        }
        fx.storage_failed = Some(failure.clone());
        fx.role_changed = true;
    }
}

/// The follower's side.
impl<D: Dir, T> Partition<D, T> {
    /// What to ask the leader now.
    #[must_use]
    pub fn next_step(&self, now: Now) -> FollowerStep {
        match &self.role {
            Role::Follower(follower) => {
                follower.next_step(&self.log_view(), self.terms.durability, now.monotonic)
            }
            _ => FollowerStep::Nothing,
        }
    }

    /// The leader has answered [`FollowerStep::EpochEnd`]; `None` when it knows no such epoch.
    pub fn on_epoch_end(
        &mut self,
        ticket: &Ticket,
        answer: Option<(LeaderEpoch, Offset)>,
        now: Now,
        fx: &mut Effects<T>,
    ) {
        let view = self.log_view();
        let log = &self.log;
        let Role::Follower(follower) = &mut self.role else {
            return;
        };
        if !follower.is_current(ticket, &view) {
            return;
        }
        let cut = follower.on_epoch_end(ticket, answer, &view, |epoch| {
            log.leader_epochs().end_offset_for(epoch, view.log_end)
        });
        self.cut(cut, now, fx);
    }

    /// The leader has answered [`FollowerStep::Fetch`].
    pub fn on_fetched(
        &mut self,
        ticket: &Ticket,
        fetched: &Fetched,
        now: Now,
        fx: &mut Effects<T>,
    ) {
        let view = self.log_view();
        let log = &self.log;
        let Role::Follower(follower) = &mut self.role else {
            return;
        };
        if !follower.is_current(ticket, &view) {
            return;
        }
        if let Some(diverging) = fetched.diverging {
            // Nothing else of this answer counts: its high watermark belongs to another history (KAFKA-14704).
            let cut = follower.on_diverging(ticket, diverging, &view, |epoch| {
                log.leader_epochs().end_offset_for(epoch, view.log_end)
            });
            self.cut(cut, now, fx);
            return;
        }
        if !fetched.records.is_empty() {
            let leader_epoch = follower.leader_epoch();
            match self.append_fetched(fetched, leader_epoch, &view, now, fx) {
                Ok(()) => fx.appended = true,
                Err(AppendError::Storage(failure)) => {
                    self.last_words = Some(view);
                    self.fail(&failure, fx);
                    return;
                }
                Err(misfit) => {
                    fx.misfit = Some(misfit);
                    let failure = FetchFailure::OutOfRange {
                        leader_log_start: None,
                    };
                    if let Role::Follower(follower) = &mut self.role {
                        let cut = follower.on_failure(failure, &view, now.monotonic);
                        self.cut(cut, now, fx);
                    }
                    return;
                }
            }
        }
        let Role::Follower(follower) = &mut self.role else {
            return;
        };
        follower.on_fetched();
        let high_watermark = fetched.high_watermark.min(self.log.end_offset());
        if high_watermark > self.high_watermark {
            self.high_watermark = high_watermark;
            fx.high_watermark_advanced = true;
        }
        if mutation::off(Mutation::AckOutlivesEpoch) {
            self.release_waiters(fx);
        }
        let log_start = fetched.log_start.min(self.high_watermark);
        if log_start > self.log.start_offset()
            && let Err(error) = self.log.advance_start(log_start)
        {
            self.log_failed(error, fx);
            return;
        }
        self.ask_for_flush(now, fx);
        fx.fetcher_ready = true;
    }

    /// Appends what the leader sent. The leader's log may start inside a batch (DeleteRecords), and whoever fetches from
    /// there gets the whole batch. If nothing here is beyond that start, the log begins anew with that batch: what it
    /// held is deleted anyway, and may even be of an epoch that the leader no longer remembers the end of.
    fn append_fetched(
        &mut self,
        fetched: &Fetched,
        leader_epoch: LeaderEpoch,
        view: &LogView,
        now: Now,
        fx: &mut Effects<T>,
    ) -> Result<(), AppendError> {
        let records = &fetched.records;
        match self.log.append_as_follower(records, leader_epoch, now) {
            Ok(_) => Ok(()),
            Err(AppendError::OutOfSequence { expected, found })
                if found < expected && view.log_end <= fetched.log_start =>
            {
                let storage = |error: LogError| match error {
                    LogError::Storage(failure) => AppendError::Storage(failure),
                    _ => AppendError::OutOfSequence { expected, found },
                };
                self.set_aside(view.log_start, view.latest_epoch, now, fx)
                    .map_err(storage)?;
                self.log.reset_to(found).map_err(storage)?;
                let appended = self.log.append_as_follower(records, leader_epoch, now);
                if appended.is_err() {
                    self.log.reset_to(fetched.log_start).map_err(storage)?;
                }
                let start = fetched.log_start.min(self.log.end_offset());
                self.log.advance_start(start).map_err(storage)?;
                self.high_watermark = self.high_watermark.max(start).min(self.log.end_offset());
                appended.map(|_| ())
            }
            Err(error) => Err(error),
        }
    }

    /// The leader answered a step with an error, or did not answer it.
    pub fn on_fetch_error(
        &mut self,
        ticket: &Ticket,
        failure: FetchFailure,
        now: Now,
        fx: &mut Effects<T>,
    ) {
        let view = self.log_view();
        let Role::Follower(follower) = &mut self.role else {
            return;
        };
        if !follower.is_current(ticket, &view) {
            return;
        }
        let cut = follower.on_failure(failure, &view, now.monotonic);
        self.cut(cut, now, fx);
    }

    fn cut(&mut self, cut: Cut, now: Now, fx: &mut Effects<T>) {
        if let Role::Follower(follower) = &self.role {
            self.generation = follower.generation();
        }
        let before = self.log_view();
        let (from, epoch) = (before.log_end, before.latest_epoch);
        let first_cut = match cut {
            Cut::None => return,
            Cut::To(end) => end,
            Cut::Restart(_) => before.log_start,
        };
        let set_aside = self.set_aside(first_cut, epoch, now, fx);
        let done = set_aside.and_then(|()| match cut {
            Cut::Restart(start) => self.log.reset_to(start).map(|()| start),
            _ => self.log.truncate_to(first_cut),
        });
        let to = match done {
            Ok(to) => to,
            Err(error) => {
                self.last_words = Some(before);
                self.log_failed(error, fx);
                return;
            }
        };
        self.high_watermark = match cut {
            Cut::Restart(start) => start,
            _ => self.high_watermark.min(to),
        };
        if to != from {
            fx.truncated = Some(Truncation {
                from,
                to,
                epoch,
                leader_epoch: self.known.leader_epoch,
                unclean: epoch < self.known.last_unclean_epoch,
            });
        }
        self.ask_for_flush(now, fx);
        fx.fetcher_ready = true;
    }

    /// Before a cut from `first` on: what was written before the partition's last unclean election is set aside. Committed
    /// records may be among it, and nobody else may have them. An ordinary cut takes only what was never committed.
    fn set_aside(
        &mut self,
        first: Offset,
        latest_epoch: Option<LeaderEpoch>,
        now: Now,
        fx: &mut Effects<T>,
    ) -> Result<(), LogError> {
        let Some(unclean_epoch) = self.known.last_unclean_epoch else {
            return Ok(());
        };
        let policy = self.salvage_policy;
        let Some(salvager) = self.salvager.as_ref().filter(|_| policy.enable) else {
            return Ok(());
        };
        if latest_epoch >= Some(unclean_epoch) {
            return Ok(());
        }
        let aside = salvager.set_aside(
            &mut self.log,
            &self.identity,
            policy,
            unclean_epoch,
            first,
            now,
        )?;
        fx.set_aside = aside;
        Ok(())
    }

    fn own_end_of(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        self.log
            .leader_epochs()
            .end_offset_for(epoch, self.log.end_offset())
    }

    /// Where the log begins and ends; of a failed one, where it did.
    #[must_use]
    pub fn log_view(&self) -> LogView {
        if let Some(last_words) = self.last_words {
            return last_words;
        }
        LogView {
            log_start: self.log.start_offset(),
            log_end: self.log.end_offset(),
            flushed_end: self.log.flushed_end(),
            high_watermark: self.high_watermark,
            latest_epoch: self.log.leader_epochs().latest(),
        }
    }
}

fn outcome(completion: Completion) -> Result<(), ProduceError> {
    match completion {
        Completion::Done => Ok(()),
        Completion::NotEnoughReplicas => Err(ProduceError::NotEnoughReplicasAfterAppend),
    }
}
