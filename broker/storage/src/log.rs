//! The face of one partition's log.

use std::io;

use bytes::Bytes;
use kuorum_protocol::{LeaderEpoch, Now, Offset, Timestamp};

use crate::config::LogConfig;
use crate::dir::Dir;
use crate::error::{AppendError, LogError, ReadError};
use crate::flush::FlushJob;
use crate::leader_epochs::LeaderEpochs;
use crate::producer_state::ProducerStates;
use crate::recovery::Recovery;

/// What is known about a log before it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Where it begins, from the log-start checkpoint.
    pub log_start: Offset,
    /// Everything below was flushed, from the recovery-point checkpoint.
    pub recovery_point: Offset,
    /// The high watermark checkpoint; data below it was flushed too.
    pub high_watermark: Offset,
    /// The directory was closed in an orderly way.
    pub clean: bool,
    /// The kernel has not booted since, so nothing written can be lost.
    pub same_boot: bool,
}

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    /// Offset of the first record; the log's end if nothing was appended.
    pub first_offset: Offset,
    /// Offset of the last record; the log's end − 1 if nothing was appended.
    pub last_offset: Offset,
    /// The time the log gave the records, or `Timestamp::NONE` with CreateTime.
    pub log_append_time: Timestamp,
    /// The batch was here already: the offsets are those of the first time, and nothing was appended.
    pub duplicate: bool,
    /// Bytes appended.
    pub bytes: usize,
}

/// One segment, for DescribeLogDirs and tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its first offset.
    pub base_offset: Offset,
    /// Bytes of its log file that hold records.
    pub size_bytes: u64,
    /// The highest timestamp in it.
    pub max_timestamp: Timestamp,
}

/// One partition's log.
#[derive(Debug)]
pub struct Log<D: Dir> {
    dir: D,
}

#[allow(clippy::todo, unused_variables)]
impl<D: Dir> Log<D> {
    /// Opens the log in `dir`, which is created if need be.
    pub fn open(
        dir: D,
        config: LogConfig,
        known: Known,
        now: Now,
    ) -> Result<(Self, Recovery), LogError> {
        todo!()
    }
    /// Appends one validated batch, patched in place.
    pub fn append_as_leader(
        &mut self,
        batch: &mut [u8],
        epoch: LeaderEpoch,
        now: Now,
    ) -> Result<AppendInfo, AppendError> {
        todo!()
    }
    /// Appends what a leader sent.
    pub fn append_as_follower(
        &mut self,
        records: &[u8],
        fetch_epoch: LeaderEpoch,
        now: Now,
    ) -> Result<AppendInfo, AppendError> {
        todo!()
    }
    /// Appends a batch that already has its offset (the Raft log).
    pub fn append_at(&mut self, batch: &[u8]) -> Result<AppendInfo, AppendError> {
        todo!()
    }
    /// Whole batches from the one that contains `from`, none that reaches `until`.
    pub fn read(
        &self,
        from: Offset,
        until: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Bytes, ReadError> {
        todo!()
    }
    /// The first offset.
    pub fn start_offset(&self) -> Offset {
        todo!()
    }
    /// The offset after the last record.
    pub fn end_offset(&self) -> Offset {
        todo!()
    }
    /// Everything below is durable.
    pub fn flushed_end(&self) -> Offset {
        todo!()
    }
    /// Bytes of all segments.
    pub fn size_bytes(&self) -> u64 {
        todo!()
    }
    /// The epochs.
    pub fn leader_epochs(&self) -> &LeaderEpochs {
        todo!()
    }
    /// `epoch` begins at `start` (on becoming leader, even with no data).
    pub fn assign_epoch(&mut self, epoch: LeaderEpoch, start: Offset) {
        todo!()
    }
    /// The first record below `until` whose timestamp is at least `timestamp`.
    pub fn offset_for_timestamp(
        &self,
        timestamp: Timestamp,
        until: Offset,
    ) -> Result<Option<(Timestamp, Offset, LeaderEpoch)>, ReadError> {
        todo!()
    }
    /// The record below `until` with the highest timestamp.
    pub fn max_timestamp(
        &self,
        until: Offset,
    ) -> Result<Option<(Timestamp, Offset, LeaderEpoch)>, ReadError> {
        todo!()
    }
    /// Cuts the log back to `end`; returns the new end, which is lower than `end` if a batch straddles it.
    pub fn truncate_to(&mut self, end: Offset) -> Result<Offset, LogError> {
        todo!()
    }
    /// Drops everything; the log is empty and begins at `start`.
    pub fn reset_to(&mut self, start: Offset) -> Result<(), LogError> {
        todo!()
    }
    /// Moves the start up to `start` and deletes segments below it; returns the new start.
    pub fn advance_start(&mut self, start: Offset) -> Result<Offset, LogError> {
        todo!()
    }
    /// A snapshot of what is dirty; `None` when nothing is, or a flush is under way.
    pub fn begin_flush(&mut self) -> Option<FlushJob<D>> {
        todo!()
    }
    /// Takes note of how a flush ended; an error makes the log fail for good.
    pub fn finish_flush(
        &mut self,
        job: FlushJob<D>,
        result: io::Result<()>,
    ) -> Result<Offset, LogError> {
        todo!()
    }
    /// Deletes segments that retention no longer keeps; never above `high_watermark`. Returns the new start.
    pub fn delete_expired(&mut self, now: Now, high_watermark: Offset) -> Result<Offset, LogError> {
        todo!()
    }
    /// Flushes, trims and closes.
    pub fn close(self) -> Result<Offset, LogError> {
        todo!()
    }
    /// Closes and deletes every file.
    pub fn delete(self) -> Result<(), LogError> {
        todo!()
    }
    /// The idempotent producers.
    pub fn producers(&self) -> &ProducerStates {
        todo!()
    }
    /// Every segment, oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        todo!()
    }
    /// The configuration.
    pub fn config(&self) -> &LogConfig {
        todo!()
    }
    /// Changes the configuration.
    pub fn set_config(&mut self, config: LogConfig) {
        todo!()
    }
}
