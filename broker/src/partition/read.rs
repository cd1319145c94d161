//! What a leader tells those who read: records, offsets, where epochs end. And DeleteRecords, which bounds them.
//! Law: a consumer sees nothing beyond the high watermark, and nobody is told anything but by the leader, in the epoch
//! that the caller knows.

use bytes::Bytes;
use kuorum_protocol::record::batches;
use kuorum_protocol::{BrokerEpoch, BrokerId, LeaderEpoch, Now, Offset, Timestamp};
use kuorum_replication::Leader;
use kuorum_replication::leader::{FetchRefused, FollowerFetch};
use kuorum_replication::mutation::{self, Mutation};
use kuorum_storage::Dir;

use super::{Effects, Partition, ReadError, Role};

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
    /// Up to here this reader could have read.
    pub readable_until: Offset,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    pub log_start: Offset,
    /// The histories part: the caller's last epoch ends here in this log. `records` is empty then.
    pub diverging: Option<(LeaderEpoch, Offset)>,
}

impl ReadOutcome {
    /// Whether a read from `from` left something that it could have read: at a limit, or at the end of a segment.
    pub fn is_cut_short(&self, from: Offset) -> bool {
        let last = batches(&self.records).filter_map(Result::ok).last();
        last.map_or(from, |batch| batch.next_offset()) < self.readable_until
    }
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
            return Ok(self.read_outcome(Bytes::new(), spec.from, Some(diverging)));
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
            return Ok(self.read_outcome(Bytes::new(), until, None));
        }
        match self
            .log
            .read(spec.from, until, spec.max_bytes, spec.at_least_one)
        {
            Ok(records) => Ok(self.read_outcome(records, until, None)),
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

    /// Moves the log's start to `before`, or to the high watermark if `None`. Returns where it is now, durably. Blocks.
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
        // One that was raised while this replica followed becomes durable here.
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
        readable_until: Offset,
        diverging: Option<(LeaderEpoch, Offset)>,
    ) -> ReadOutcome {
        ReadOutcome {
            records,
            readable_until,
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
