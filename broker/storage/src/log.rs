//! The face of one partition's log: append, read, flush, cut, and what retention takes away.
//! Law: offsets have no gaps and epochs never go back. What is not flushed is not claimed. After an IO error every call
//! answers with that error. The caller holds the lock; only [`FlushJob::run`] works without it.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use kuorum_protocol::record::{BatchMut, BatchView, batches};
use kuorum_protocol::{LeaderEpoch, Monotonic, Now, Offset, Timestamp};

use crate::checkpoint::write_atomically;
use crate::config::{LogConfig, TimestampType};
use crate::dir::{Dir, DirFile};
use crate::error::{AppendError, LogError, ReadError, StorageFailure};
use crate::flush::FlushJob;
use crate::leader_epochs::LeaderEpochs;
use crate::log_dirs::DirHealth;
use crate::mark::{FLOOR, START};
use crate::producer_state::{ProducerStates, Verdict};
use crate::recovery::{self, Recovery};
use crate::retention::{self, Candidate};
use crate::salvage::{self, Aside, Bounds, Cause, Source};
use crate::segment::{SNAPSHOT, Segment, SegmentError, file_name};
use crate::segments::Segments;

/// The file that remembers the leader epochs.
pub(crate) const EPOCHS: &str = "leader-epoch-checkpoint";

/// So many places of a log that cannot be read are told of, each once.
const TOLD_AT_MOST: usize = 32;

/// What is known about a log before it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Where it begins, from the log-start checkpoint.
    pub log_start: Offset,
    /// Everything below was flushed, from the recovery-point checkpoint.
    pub recovery_point: Offset,
    /// The high watermark checkpoint, as far as this replica had flushed.
    pub high_watermark: Offset,
    /// The directory was closed in an orderly way.
    pub clean: bool,
    /// The kernel has not booted since the log was last written: the page cache has lost nothing.
    pub same_boot: bool,
}

/// What an append did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendInfo {
    /// Offset of the first record; the log's end if there was nothing to append.
    pub first_offset: Offset,
    /// Offset of the last record; the log's end − 1 if there was nothing to append.
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
    /// The highest timestamp in it, or `Timestamp::NONE`.
    pub max_timestamp: Timestamp,
}

/// A flushed end that may be written into the recovery-point checkpoint; see [`Log::prepare_checkpoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryPoint {
    /// Everything below is durable.
    pub offset: Offset,
    history: u64,
}

/// One partition's log.
#[derive(Debug)]
pub struct Log<D: Dir> {
    dir: D,
    config: LogConfig,
    health: Arc<DirHealth>,
    failed: Option<StorageFailure>,
    segments: Segments<D>,
    start: Offset,
    /// What the mark of the start says, once that is known to outlast a power cut.
    marked_start: Option<Offset>,
    /// What the mark says that was made, or found, and may not outlast one: the next flush covers it.
    unsynced_mark: Option<Offset>,
    flushed: Offset,
    epochs: LeaderEpochs,
    producers: ProducerStates,
    /// Raised by every truncation: a flush that began before says nothing about what came after.
    history: u64,
    /// The highest offset that a checkpoint on disk may call flushed.
    checkpointed_at_most: Offset,
    floor: Option<Offset>,
    flushing: bool,
    /// Files besides the active log that the next flush must cover.
    dirty_files: Vec<Arc<D::File>>,
    names_dirty: bool,
    own_name_dirty: bool,
    /// A file beside the log that is to be durable no later than the log's own name.
    beside: Option<&'static str>,
    /// The log's own name, and the file beside it, outlast a power cut.
    named: bool,
    epochs_dirty: bool,
    /// Offset of the newest producer snapshot.
    snapshot_at: Option<Offset>,
    unflushed_since: Option<Monotonic>,
    /// What the wall clock said last.
    wall: Timestamp,
    /// Where reads found other bytes than were written.
    damaged: Mutex<BTreeSet<Offset>>,
}

impl<D: Dir> Log<D> {
    /// Opens the log in `dir`, which is created if need be. What is found is made durable before this returns, so the
    /// flushed end is the end.
    ///
    /// # Errors
    /// `Storage` if the disk fails, `NewerVersion` if a newer program wrote a file of ours.
    pub fn open(
        dir: D,
        config: LogConfig,
        known: Known,
        now: Now,
    ) -> Result<(Self, Recovery), LogError> {
        Self::open_in(dir, config, known, now, Arc::default())
    }

    /// As [`open`](Self::open), sharing the health of the directory it lies in.
    ///
    /// # Errors
    /// As `open`; a failure is noted in `health`.
    pub fn open_in(
        dir: D,
        config: LogConfig,
        known: Known,
        now: Now,
        health: Arc<DirHealth>,
    ) -> Result<(Self, Recovery), LogError> {
        health.check()?;
        let opened = recovery::recover(&dir, &config, &known, now.wall).inspect_err(|error| {
            if let LogError::Storage(failure) = error {
                health.fail(failure);
            }
        })?;
        let mut log = Self {
            dir,
            health,
            failed: None,
            flushed: opened.segments.active().next,
            segments: opened.segments,
            start: opened.start,
            marked_start: Some(opened.start).filter(|_| opened.start_marked && known.clean),
            unsynced_mark: Some(opened.start).filter(|_| !(opened.start_marked && known.clean)),
            epochs: opened.epochs,
            producers: opened.producers,
            history: 0,
            checkpointed_at_most: known.recovery_point.max(known.high_watermark),
            floor: opened.floor,
            flushing: false,
            dirty_files: Vec::new(),
            // Whether an earlier process got as far as syncing them is not known.
            names_dirty: opened.names_dirty || !known.clean,
            own_name_dirty: opened.is_new || !known.clean,
            beside: None,
            named: !opened.is_new && known.clean,
            epochs_dirty: opened.epochs_dirty,
            snapshot_at: opened.snapshot_at,
            unflushed_since: None,
            wall: now.wall,
            damaged: Mutex::default(),
            config,
        };
        log.checkpointed_at_most = log.checkpointed_at_most.max(log.flushed);
        if !opened.start_marked {
            log.create_start_mark()
                .map_err(|cause| log.fail("open", cause))?;
        }
        log.producers
            .expire(now.wall, log.config.producer_id_expiration_ms);
        Ok((log, opened.recovery))
    }

    /// A new log, or one of an older version, gets its mark with the first flush: until then nothing was deleted.
    fn create_start_mark(&mut self) -> io::Result<()> {
        START.create(&self.dir, self.start)?;
        self.names_dirty = true;
        Ok(())
    }

    // ---- what it says of itself ----

    /// The first offset that may be read.
    pub fn start_offset(&self) -> Offset {
        self.start
    }

    /// The offset after the last record.
    pub fn end_offset(&self) -> Offset {
        // A reset that failed half-way leaves no segment. The log has failed then, and may still be asked.
        self.segments
            .last()
            .map_or(self.start, |segment| segment.next)
    }

    /// Everything below is durable.
    pub fn flushed_end(&self) -> Offset {
        self.flushed
    }

    /// Bytes of all batches.
    pub fn size_bytes(&self) -> u64 {
        self.segments.size_bytes()
    }

    /// About how many of them come after `offset`: to the size of a segment, for a progress bar.
    pub fn bytes_after(&self, offset: Offset) -> u64 {
        if offset >= self.end_offset() {
            return 0;
        }
        let segments = self.segments.from(offset).iter();
        segments
            .map(|segment| {
                // Within the first one, as if all its records were of one size.
                let records = (segment.next.0 - segment.base.0).max(1) as u64;
                let left = (segment.next.0 - offset.0.max(segment.base.0)).max(0) as u64;
                (u128::from(segment.size) * u128::from(left) / u128::from(records)) as u64
            })
            .sum()
    }

    /// Which epoch began where.
    pub fn leader_epochs(&self) -> &LeaderEpochs {
        &self.epochs
    }

    /// The idempotent producers.
    pub fn producers(&self) -> &ProducerStates {
        &self.producers
    }

    /// The configuration.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Changes the configuration, from the next call on.
    pub fn set_config(&mut self, config: LogConfig) {
        self.config = config;
    }

    /// Every segment, oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let info = |segment: &Segment<D>| SegmentInfo {
            base_offset: segment.base,
            size_bytes: segment.size,
            max_timestamp: segment
                .max_timestamp
                .map_or(Timestamp::NONE, |(highest, _)| highest),
        };
        self.segments.iter().map(info).collect()
    }

    /// The directory it lies in.
    pub fn dir(&self) -> &D {
        &self.dir
    }

    /// The IO error that ended this log or its directory, if any.
    pub fn failure(&self) -> Option<StorageFailure> {
        self.usable().err()
    }

    /// Whether `flush.messages` or `flush.ms` ask for a flush, whatever the acks.
    pub fn is_flush_due(&self, now: Monotonic) -> bool {
        let unflushed = self.end_offset().0 - self.flushed.0;
        let age = self
            .unflushed_since
            .map_or(0, |since| now.since(since).as_millis() as i64);
        unflushed > 0 && (unflushed >= self.config.flush_messages || age >= self.config.flush_ms)
    }

    fn usable(&self) -> Result<(), StorageFailure> {
        match &self.failed {
            Some(failure) => Err(failure.clone()),
            None => self.health.check(),
        }
    }

    /// An IO error: the log ends here, and its directory with it.
    fn fail(&mut self, what: &'static str, cause: io::Error) -> StorageFailure {
        let failure = StorageFailure {
            what,
            path: self.dir.path(),
            cause: Arc::new(cause),
        };
        self.failed = Some(failure.clone());
        self.health.fail(&failure);
        failure
    }

    fn fail_segment(&mut self, what: &'static str, error: SegmentError) -> LogError {
        match error {
            SegmentError::Io(cause) => self.fail(what, cause).into(),
            SegmentError::Corrupt(offset) => LogError::Corrupt { offset },
        }
    }

    /// A file beside the log that is to be durable no later than the first record.
    pub(crate) fn cover_with_next_flush(&mut self, name: &'static str) {
        self.beside = Some(name);
        self.own_name_dirty = true;
        self.named = false;
    }

    // ---- append ----

    /// Appends one validated batch as the leader of `epoch`: gives it its offsets, epoch and, with LogAppendTime, its
    /// time, all in place. A batch of an idempotent producer that is here already is not appended again; the answer has
    /// its original offsets.
    ///
    /// # Errors
    /// `TooLarge`, `LargerThanSegment`, `Corrupt` and `WrongEpoch` for the batch; the producer's `OutOfOrderSequence`,
    /// `InvalidProducerEpoch` and `InvalidTransactionState`; `Storage`.
    pub fn append_as_leader(
        &mut self,
        batch: &mut [u8],
        epoch: LeaderEpoch,
        now: Now,
    ) -> Result<AppendInfo, AppendError> {
        self.usable()?;
        let end = self.end_offset();
        let view = self.one_batch(batch)?;
        self.fits(view.size())?;
        let last = self.epochs.latest().unwrap_or(LeaderEpoch::UNKNOWN);
        if epoch < last {
            return Err(AppendError::WrongEpoch {
                batch: epoch,
                last,
                current: epoch,
            });
        }
        if let Verdict::Duplicate(original) = self.producers.check(&view)? {
            return Ok(AppendInfo {
                first_offset: original.first_offset,
                last_offset: original.last_offset,
                log_append_time: self.append_time(original.timestamp),
                duplicate: true,
                bytes: 0,
            });
        }
        let mut patched = BatchMut::parse(batch).expect("it was parsed a moment ago");
        patched.set_base_offset(end);
        patched.set_leader_epoch(epoch);
        if self.config.timestamp_type == TimestampType::LogAppendTime {
            patched.set_log_append_time(now.wall);
        }
        let view = patched.view();
        self.wall = now.wall;
        self.write_run(view.as_bytes())?;
        self.unflushed_since.get_or_insert(now.monotonic);
        Ok(AppendInfo {
            first_offset: end,
            last_offset: view.last_offset(),
            log_append_time: self.append_time(now.wall),
            duplicate: false,
            bytes: view.size(),
        })
    }

    fn append_time(&self, time: Timestamp) -> Timestamp {
        match self.config.timestamp_type {
            TimestampType::CreateTime => Timestamp::NONE,
            TimestampType::LogAppendTime => time,
        }
    }

    /// Appends what the leader of `fetch_epoch` sent: whole batches that begin exactly where this log ends. Nothing is
    /// appended unless all of them are sound.
    ///
    /// # Errors
    /// `Corrupt`, `OutOfSequence`, `WrongEpoch` if a batch is of an epoch above the fetch's or below the log's last
    /// (KAFKA-18723); `Storage`.
    pub fn append_as_follower(
        &mut self,
        records: &[u8],
        fetch_epoch: LeaderEpoch,
        now: Now,
    ) -> Result<AppendInfo, AppendError> {
        self.usable()?;
        let end = self.end_offset();
        let mut expected = end;
        let mut last = self.epochs.latest().unwrap_or(LeaderEpoch::UNKNOWN);
        // A log that begins inside of a batch (DeleteRecords) gets that batch whole.
        let mut may_begin_before = self.is_empty();
        for batch in batches(records) {
            let corrupt = |reason| AppendError::Corrupt {
                offset: expected,
                reason,
            };
            let batch = batch.map_err(|_| corrupt("no whole batch"))?;
            if !batch.crc_is_valid() {
                return Err(corrupt("the CRC does not match"));
            }
            let (base, next) = (batch.base_offset(), batch.next_offset());
            let contains = may_begin_before && base <= expected && next > expected;
            let follows = base == expected || (self.config.compact && base > expected);
            if batch.last_offset_delta() < 0 || !(follows || contains) {
                return Err(AppendError::OutOfSequence {
                    expected,
                    found: base,
                });
            }
            let epoch = batch.leader_epoch();
            if epoch > fetch_epoch || epoch < last {
                return Err(AppendError::WrongEpoch {
                    batch: epoch,
                    last,
                    current: fetch_epoch,
                });
            }
            may_begin_before = false;
            last = epoch;
            expected = next;
        }
        if records.is_empty() {
            return Ok(Self::nothing_appended(end));
        }
        let first = BatchView::parse(records).expect("every batch was parsed a moment ago");
        let first_offset = first.base_offset();
        if first_offset < end {
            self.restart_at(first_offset, self.start)
                .map_err(|cause| self.fail("append", cause))?;
        }
        self.wall = now.wall;
        self.write_run(records)?;
        self.unflushed_since.get_or_insert(now.monotonic);
        Ok(AppendInfo {
            first_offset,
            last_offset: expected.plus(-1),
            log_append_time: Timestamp::NONE,
            duplicate: false,
            bytes: records.len(),
        })
    }

    /// Appends one batch that has its offset already, which must be the log's end: the Raft log, where neither epochs
    /// nor producers mean anything.
    ///
    /// # Errors
    /// `Corrupt`, `OutOfSequence`, `LargerThanSegment`; `Storage`.
    pub fn append_at(&mut self, batch: &[u8]) -> Result<AppendInfo, AppendError> {
        self.usable()?;
        let view = self.one_batch(batch)?;
        self.fits_segment(view.size())?;
        let end = self.end_offset();
        if view.base_offset() != end || view.last_offset_delta() < 0 {
            return Err(AppendError::OutOfSequence {
                expected: end,
                found: view.base_offset(),
            });
        }
        self.write_run(batch)?;
        Ok(AppendInfo {
            first_offset: end,
            last_offset: view.last_offset(),
            log_append_time: Timestamp::NONE,
            duplicate: false,
            bytes: view.size(),
        })
    }

    fn nothing_appended(end: Offset) -> AppendInfo {
        AppendInfo {
            first_offset: end,
            last_offset: end.plus(-1),
            log_append_time: Timestamp::NONE,
            duplicate: false,
            bytes: 0,
        }
    }

    fn one_batch<'a>(&self, bytes: &'a [u8]) -> Result<BatchView<'a>, AppendError> {
        let corrupt = |reason| AppendError::Corrupt {
            offset: self.end_offset(),
            reason,
        };
        let view = BatchView::parse(bytes).map_err(|_| corrupt("no whole batch"))?;
        if view.size() != bytes.len() || view.last_offset_delta() < 0 {
            return Err(corrupt("not exactly one batch"));
        }
        Ok(view)
    }

    fn fits(&self, size: usize) -> Result<(), AppendError> {
        if size > self.config.max_message_bytes {
            return Err(AppendError::TooLarge {
                size,
                max: self.config.max_message_bytes,
            });
        }
        self.fits_segment(size)
    }

    fn fits_segment(&self, size: usize) -> Result<(), AppendError> {
        let segment_bytes = self.config.segment_bytes;
        if size as u64 > segment_bytes {
            return Err(AppendError::LargerThanSegment {
                size,
                segment_bytes,
            });
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.segments.len() == 1 && self.segments.active().size == 0
    }

    /// Writes sound batches that follow the log's end, as many at once as fit into the active segment.
    fn write_run(&mut self, bytes: &[u8]) -> Result<(), StorageFailure> {
        let written = self.try_write_run(bytes);
        written.map_err(|cause| self.fail("append", cause))
    }

    fn try_write_run(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let first = BatchView::parse(rest).expect("only sound batches are written");
            let active = self.segments.active();
            let (size, last) = (first.size() as u64, first.last_offset());
            if active.is_full(size, last, first.max_timestamp(), &self.config) {
                self.roll(first.base_offset())?;
            }
            let (active, room) = {
                let active = self.segments.active_mut();
                let room = self.config.segment_bytes.saturating_sub(active.size);
                (active, room)
            };
            let mut run = first.size();
            for batch in batches(&rest[run..]) {
                let size = batch.expect("only sound batches are written").size();
                if (run + size) as u64 > room {
                    break;
                }
                run += size;
            }
            active.write(&rest[..run], &self.config)?;
            for batch in batches(&rest[..run]) {
                let batch = batch.expect("only sound batches are written");
                active.note(
                    &batch,
                    batch.size() as u64,
                    self.config.index_interval_bytes,
                )?;
                self.producers.apply(&batch, self.wall);
                self.epochs_dirty |= self
                    .epochs
                    .assign(batch.leader_epoch(), batch.base_offset());
            }
            rest = &rest[run..];
        }
        Ok(())
    }

    /// Seals the active segment and begins a new one at `base`, with a snapshot of the producers beside it.
    fn roll(&mut self, base: Offset) -> io::Result<()> {
        let active = self.segments.active_mut();
        active.seal()?;
        self.dirty_files.push(Arc::clone(&active.log));
        self.dirty_files.push(active.offsets.file());
        self.dirty_files.push(active.times.file());
        self.write_snapshot(base)?;
        let segment = Segment::create(&self.dir, base)?;
        self.segments.push(segment);
        self.names_dirty = true;
        Ok(())
    }

    /// Writes the producers' state at `offset`, which is the log's end; durable with the next flush. A torn one is
    /// recognised by its CRC.
    fn write_snapshot(&mut self, offset: Offset) -> io::Result<()> {
        if self.snapshot_at == Some(offset) {
            return Ok(());
        }
        let file = Arc::new(self.dir.create_file(&file_name(offset, SNAPSHOT))?);
        file.write_at(&self.producers.to_snapshot(), 0)?;
        self.dirty_files.push(file);
        self.names_dirty = true;
        self.snapshot_at = Some(offset);
        Ok(())
    }

    // ---- read ----

    /// Whole batches from the one that contains `from`, none that reaches beyond `until`, about `max_bytes` of them; with
    /// `at_least_one` the first even if it alone is larger. Empty when `from` is at the end, or nothing is below `until`.
    ///
    /// # Errors
    /// `OutOfRange` below the start or above the end; `Corrupt` if the bytes are not what was written; `Storage`.
    pub fn read(
        &self,
        from: Offset,
        until: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Bytes, ReadError> {
        self.usable()?;
        let (start, end) = (self.start, self.end_offset());
        if from < start || from > end {
            return Err(ReadError::OutOfRange {
                offset: from,
                start,
                end,
            });
        }
        if from == end || from >= until {
            return Ok(Bytes::new());
        }
        for segment in self.segments.from(from) {
            // Only a gap that compaction left leads into the next segment.
            if segment.next <= from {
                continue;
            }
            let bytes = segment
                .read(from, until, max_bytes, at_least_one)
                .map_err(|error| self.read_error("read", error))?;
            return Ok(bytes);
        }
        Ok(Bytes::new())
    }

    fn read_error(&self, what: &'static str, error: SegmentError) -> ReadError {
        match error {
            SegmentError::Corrupt(offset) => {
                if self.is_news(offset) {
                    tracing::error!(
                        dir = self.dir.path(), %offset,
                        "a batch on the disk is not what was written, and whoever reads it is refused. If another \
                         replica is in sync: stop this process, move this directory away and start it again, and \
                         all of it is fetched anew"
                    );
                }
                ReadError::Corrupt { offset }
            }
            SegmentError::Io(cause) => {
                let failure = StorageFailure {
                    what,
                    path: self.dir.path(),
                    cause: Arc::new(cause),
                };
                self.health.fail(&failure);
                failure.into()
            }
        }
    }

    /// Whether damage at `offset` has not been told of; readers come back for as long as it is there.
    fn is_news(&self, offset: Offset) -> bool {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        damaged.len() < TOLD_AT_MOST && damaged.insert(offset)
    }

    /// The first record at or after the start and below `until` whose timestamp is at least `timestamp`.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub fn offset_for_timestamp(
        &self,
        timestamp: Timestamp,
        until: Offset,
    ) -> Result<Option<(Timestamp, Offset, LeaderEpoch)>, ReadError> {
        self.usable()?;
        for segment in self.segments.from(self.start) {
            let found = segment
                .first_at_or_after(timestamp, self.start, until)
                .map_err(|error| self.read_error("search by time", error))?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The first record with the highest timestamp of those below `until`.
    ///
    /// # Errors
    /// `Corrupt`, `Storage`.
    pub fn max_timestamp(
        &self,
        until: Offset,
    ) -> Result<Option<(Timestamp, Offset, LeaderEpoch)>, ReadError> {
        self.usable()?;
        let mut best: Option<(Timestamp, Offset, LeaderEpoch)> = None;
        for segment in self.segments.from(self.start) {
            let found = segment
                .highest(self.start, until)
                .map_err(|error| self.read_error("search by time", error))?;
            if let Some(found) = found
                && best.is_none_or(|best| found.0 > best.0)
            {
                best = Some(found);
            }
        }
        Ok(best)
    }

    // ---- epochs ----

    /// `epoch` begins at `start`, which is the log's end: on becoming leader, even with no data (KAFKA-7415). Durable
    /// with the first flush that covers data of that epoch.
    pub fn assign_epoch(&mut self, epoch: LeaderEpoch, start: Offset) {
        self.epochs_dirty |= self.epochs.assign(epoch, start);
    }

    // ---- flush ----

    /// Whether there is something that a flush would make durable, be it only that there is a log.
    pub fn is_dirty(&self) -> bool {
        self.flushed < self.end_offset() || self.own_name_dirty
    }

    /// Whether the log's being there outlasts a power cut, also if nothing is in it.
    pub fn is_named(&self) -> bool {
        self.named
    }

    /// What is dirty now, to be made durable without the lock; `None` when nothing is, or a flush is under way already.
    /// Every job must come back through [`finish_flush`](Self::finish_flush).
    pub fn begin_flush(&mut self) -> Option<FlushJob<D>> {
        if self.flushing || !self.is_dirty() || self.usable().is_err() {
            return None;
        }
        self.flushing = true;
        self.unflushed_since = None;
        Some(self.take_dirty())
    }

    fn take_dirty(&mut self) -> FlushJob<D> {
        let mut files = std::mem::take(&mut self.dirty_files);
        files.push(Arc::clone(&self.segments.active().log));
        let sync_parent = std::mem::take(&mut self.own_name_dirty);
        FlushJob {
            dir: self.dir.clone(),
            upto: self.end_offset(),
            history: self.history,
            files,
            epochs: std::mem::take(&mut self.epochs_dirty).then(|| self.epochs.to_text()),
            sync_dir: std::mem::take(&mut self.names_dirty),
            beside: self.beside.filter(|_| sync_parent),
            start_mark: self.unsynced_mark.take(),
            sync_parent,
        }
    }

    /// Takes note of how a flush ended, and answers with the flushed end. A truncation since it began makes it count for
    /// nothing.
    ///
    /// # Errors
    /// `Storage`: a failed flush is data lost, and ends the log for good.
    #[allow(clippy::needless_pass_by_value)] // a job is finished once
    pub fn finish_flush(
        &mut self,
        job: FlushJob<D>,
        result: io::Result<()>,
    ) -> Result<Offset, LogError> {
        self.flushing = false;
        self.usable()?;
        if let Err(cause) = result {
            return Err(self.fail("flush", cause).into());
        }
        if job.sync_parent {
            self.is_now_named();
        }
        if job.history == self.history {
            // Whatever has been written since was durable at once.
            self.marked_start = self.marked_start.or(job.start_mark);
            self.flushed = self.flushed.max(job.upto);
            self.checkpointed_at_most = self.checkpointed_at_most.max(self.flushed);
        }
        Ok(self.flushed)
    }

    fn is_now_named(&mut self) {
        self.beside = None;
        self.named = true;
    }

    /// The flushed end, for the recovery-point checkpoint, after writing a snapshot of the producers so that the next
    /// restart need not read what lies below. Once the checkpoint is written, hand it to `checkpointed`.
    ///
    /// # Errors
    /// `Storage`.
    pub fn prepare_checkpoint(&mut self) -> Result<RecoveryPoint, LogError> {
        self.usable()?;
        let end = self.end_offset();
        self.write_hints(end)
            .map_err(|cause| self.fail("write a snapshot", cause))?;
        self.remove_old_snapshots()
            .map_err(|cause| self.fail("remove snapshots", cause))?;
        Ok(RecoveryPoint {
            offset: self.flushed,
            history: self.history,
        })
    }

    fn write_hints(&mut self, end: Offset) -> io::Result<()> {
        let active = self.segments.active_mut();
        active.offsets.write_pending()?;
        active.times.write_pending()?;
        self.write_snapshot(end)
    }

    /// The flushed end, for one who keeps it elsewhere and reads all of the log at a restart. Once that is written, hand it to
    /// `checkpointed`.
    pub fn flushed_point(&self) -> RecoveryPoint {
        RecoveryPoint {
            offset: self.flushed,
            history: self.history,
        }
    }

    /// The checkpoint with `point` has been written and is durable.
    ///
    /// # Errors
    /// `Storage`.
    pub fn checkpointed(&mut self, point: RecoveryPoint) -> Result<(), LogError> {
        self.usable()?;
        if point.history != self.history {
            return Ok(());
        }
        self.checkpointed_at_most = self.flushed;
        // The batch that holds the start may not be flushed, although nothing above the start is claimed: a checkpoint cannot
        // say that.
        if self.flushed <= self.start && self.segments.first().base < self.start {
            return Ok(());
        }
        if self.floor.take().is_some() {
            FLOOR
                .remove(&self.dir)
                .map_err(|cause| self.fail("remove the floor", cause))?;
        }
        Ok(())
    }

    /// Snapshots between segments are only worth keeping while they are the newest.
    fn remove_old_snapshots(&mut self) -> io::Result<()> {
        let mut between = self.snapshots()?;
        between.retain(|at| !self.segments.iter().any(|segment| segment.base == *at));
        // The newest may not be durable yet: the one before it stays until the next time.
        let keep = between.len().saturating_sub(2);
        for at in &between[..keep] {
            self.dir.remove(&file_name(*at, SNAPSHOT))?;
        }
        Ok(())
    }

    /// Offsets of the snapshots there are, rising.
    fn snapshots(&self) -> io::Result<Vec<Offset>> {
        recovery::snapshots(&self.dir)
    }

    // ---- cut ----

    /// Cuts the log back to `end` and loads the producers' state again; durable when it returns. Answers with the new
    /// end, which is lower than `end` if a batch straddles it. An `end` at or below the start empties the log.
    ///
    /// # Errors
    /// `Corrupt` if the place to cut cannot be found; `Storage`.
    pub fn truncate_to(&mut self, end: Offset) -> Result<Offset, LogError> {
        self.usable()?;
        if end >= self.end_offset() {
            self.epochs_dirty |= self.epochs.truncate_from_end(end);
            return Ok(self.end_offset());
        }
        if end <= self.start {
            self.reset_to(end)?;
            return Ok(end);
        }
        let boundary = self.boundary(end);
        let end = boundary.map_err(|error| self.fail_segment("truncate", error))?;
        if end <= self.start {
            // The batch that straddles `end` holds the start too.
            let start = self.start;
            self.reset_to(start)?;
            return Ok(start);
        }
        self.history += 1;
        self.lower_floor(end)
            .map_err(|cause| self.fail("truncate", cause))?;
        let cut = self.cut(end);
        cut.map_err(|error| self.fail_segment("truncate", error))?;
        let end = self.end_offset();
        self.flushed = self.flushed.min(end);
        self.epochs_dirty |= self.epochs.truncate_from_end(end);
        self.load_producers(end)?;
        Ok(end)
    }

    /// Sets aside everything from the batch that holds `from` on, or from the start if `from` lies below it, before it is cut
    /// away: durable when it returns. `None` if nothing is there to be cut. The log does not change. What goes wrong with the
    /// copy is told in the outcome and is no error: a cut must not fail for it.
    ///
    /// # Errors
    /// `Corrupt` if the place to cut cannot be found; `Storage` if the log's own bytes cannot be made durable.
    pub fn set_aside(
        &mut self,
        from: Offset,
        cause: &Cause<'_>,
        into: &D,
        bounds: Bounds<'_>,
    ) -> Result<Option<Aside>, LogError> {
        self.usable()?;
        let end = self.end_offset();
        if from >= end || self.start >= end {
            return Ok(None);
        }
        let boundary = self.boundary(from.max(self.start));
        let first = boundary
            .map_err(|error| self.fail_segment("set aside", error))?
            .max(self.start);
        // A name may lead to the bytes of another file by the time the power is back; bytes that were synced are there.
        let mut unflushed = self.segments.from(first.max(self.flushed)).iter();
        let synced = unflushed.try_for_each(|segment| segment.log.sync_data());
        synced.map_err(|cause| self.fail("set aside", cause))?;
        let source = Source {
            dir: &self.dir,
            segments: self.segments.from(first),
            epochs: &self.epochs,
            first,
            end,
        };
        Ok(Some(salvage::set_aside(&source, cause, into, bounds)))
    }

    /// Where the batch that holds `offset` begins.
    fn boundary(&self, offset: Offset) -> Result<Offset, SegmentError> {
        for segment in self.segments.from(offset) {
            if let Some(header) = segment.find(offset)? {
                return Ok(header.view().base_offset().min(offset));
            }
        }
        Ok(offset)
    }

    fn cut(&mut self, end: Offset) -> Result<(), SegmentError> {
        for at in self
            .snapshots()?
            .into_iter()
            .rev()
            .take_while(|at| *at > end)
        {
            self.dir.remove(&file_name(at, SNAPSHOT))?;
        }
        self.segments.remove_from(&self.dir, end)?;
        if self.segments.is_empty() {
            // The first segment begins at `end` itself.
            self.segments.restart_with(Segment::create(&self.dir, end)?);
            self.names_dirty = true;
        }
        self.dir.sync()?;
        // Files of removed segments need no flush any more, and it does no harm.
        self.segments.active_mut().truncate(end)
    }

    fn load_producers(&mut self, end: Offset) -> Result<(), LogError> {
        let loaded = recovery::load_producers(&self.dir, &self.segments, end, self.wall);
        match loaded {
            Ok(loaded) => {
                self.producers = loaded.states;
                self.snapshot_at = loaded.snapshot_at;
                Ok(())
            }
            Err(LogError::Storage(failure)) => {
                self.failed = Some(failure.clone());
                self.health.fail(&failure);
                Err(failure.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Makes sure that no checkpoint on disk calls anything at or above `end` flushed.
    fn lower_floor(&mut self, end: Offset) -> io::Result<()> {
        let already = self.floor.is_some_and(|floor| floor <= end);
        if end >= self.checkpointed_at_most || already {
            return Ok(());
        }
        FLOOR.write(&self.dir, end)?;
        self.floor = Some(end);
        Ok(())
    }

    /// Drops everything; the log is empty and begins at `start`. Durable when it returns.
    ///
    /// # Errors
    /// `Storage`.
    pub fn reset_to(&mut self, start: Offset) -> Result<(), LogError> {
        self.usable()?;
        self.history += 1;
        self.try_reset_to(start)
            .map_err(|cause| self.fail("reset", cause))?;
        self.start = start;
        self.flushed = start;
        self.epochs.clear();
        self.epochs_dirty = true;
        self.producers.clear();
        self.unflushed_since = None;
        Ok(())
    }

    fn try_reset_to(&mut self, start: Offset) -> io::Result<()> {
        self.lower_floor(start.min(self.start))?;
        for at in self.snapshots()?.into_iter().rev() {
            self.dir.remove(&file_name(at, SNAPSHOT))?;
        }
        self.snapshot_at = None;
        self.restart_at(start, start)
    }

    /// Replaces every segment by an empty one at `base`, in a log that begins at `start`. If it is cut short, any beginning
    /// of what was here may be left, also when the new start lies above: so first no checkpoint calls it flushed.
    fn restart_at(&mut self, base: Offset, start: Offset) -> io::Result<()> {
        self.lower_floor(base.min(self.start))?;
        self.segments.remove_from(&self.dir, Offset(i64::MIN))?;
        self.dirty_files.clear();
        // The old names must be gone before a new one can stand among them.
        self.dir.sync()?;
        self.mark_start(start)?;
        self.segments
            .restart_with(Segment::create(&self.dir, base)?);
        self.dir.sync()?;
        self.names_dirty = false;
        // A flush under way may have taken it, and may never end.
        if std::mem::take(&mut self.own_name_dirty) || self.flushing {
            if let Some(name) = self.beside {
                self.dir.open(name)?.sync_data()?;
            }
            self.dir.sync_parent()?;
            self.is_now_named();
        }
        Ok(())
    }

    /// Notes where the log begins, before anything below is deleted: durable when it returns.
    fn mark_start(&mut self, start: Offset) -> io::Result<()> {
        if self.marked_start != Some(start) {
            START.write(&self.dir, start)?;
            self.marked_start = Some(start);
            self.unsynced_mark = None;
        }
        Ok(())
    }

    /// Moves the start up to `start`, never back, and touches no disk: nothing is deleted, and a restart may find the start
    /// where it was. [`Self::delete_expired`] makes it durable and deletes what lies below. For a follower, whose leader says
    /// it again. The caller keeps it at or below the high watermark.
    ///
    /// # Errors
    /// `OutOfRange` above the end; `Storage`.
    pub fn raise_start(&mut self, start: Offset) -> Result<Offset, LogError> {
        self.may_start_at(start)?;
        self.start = self.start.max(start);
        Ok(self.start)
    }

    /// Moves the start up to `start` and deletes the segments below it; never back. Answers with the start, which is durable
    /// then. The caller keeps it at or below the high watermark.
    ///
    /// # Errors
    /// `OutOfRange` above the end; `Storage`.
    pub fn advance_start(&mut self, start: Offset) -> Result<Offset, LogError> {
        self.may_start_at(start)?;
        self.settle_start(self.start.max(start))?;
        let below = self
            .segments
            .iter()
            .take_while(|segment| segment.next <= self.start)
            .count();
        self.remove_oldest(below.min(self.segments.len() - 1))?;
        Ok(self.start)
    }

    fn may_start_at(&self, start: Offset) -> Result<(), LogError> {
        self.usable()?;
        let end = self.end_offset();
        if start <= end {
            return Ok(());
        }
        Err(LogError::OutOfRange {
            offset: start,
            start: self.start,
            end,
        })
    }

    /// The log begins at `start`, durably: what lies below may be deleted.
    fn settle_start(&mut self, start: Offset) -> Result<(), LogError> {
        self.mark_start(start)
            .map_err(|cause| self.fail("move the start", cause))?;
        self.start = start;
        // Not before: epochs that do not cover a log's first batch would have it read whole at a restart.
        self.epochs_dirty |= self.epochs.truncate_from_start(start);
        Ok(())
    }

    /// Deletes segments that retention no longer keeps, and those below a start that was raised; never above
    /// `high_watermark`, never the active one. Rolls the active segment if all of it has expired, so that it can go the next
    /// time. Forgets expired producers. Answers with the start, which is durable then.
    ///
    /// # Errors
    /// `Storage`.
    pub fn delete_expired(&mut self, now: Now, high_watermark: Offset) -> Result<Offset, LogError> {
        self.usable()?;
        self.wall = now.wall;
        self.producers
            .expire(now.wall, self.config.producer_id_expiration_ms);
        self.roll_expired(now)
            .map_err(|cause| self.fail("roll", cause))?;
        let candidate = |segment: &Segment<D>| Candidate {
            end: segment.next,
            size: segment.size,
            max_timestamp: segment.max_timestamp.map(|(highest, _)| highest),
        };
        let candidates: Vec<Candidate> = self.segments.iter().map(candidate).collect();
        let count = retention::expired(
            &candidates,
            &self.config,
            high_watermark,
            self.start,
            now.wall,
        );
        let gone = candidates[..count].last().map(|segment| segment.end);
        self.settle_start(gone.map_or(self.start, |end| self.start.max(end)))?;
        self.remove_oldest(count)?;
        Ok(self.start)
    }

    /// An active segment whose newest record has outlived its retention ends here.
    fn roll_expired(&mut self, now: Now) -> io::Result<()> {
        let active = self.segments.active();
        let age = active
            .max_timestamp
            .map(|(newest, _)| now.wall.0.saturating_sub(newest.0));
        let outlived = self.config.delete
            && age.is_some_and(|age| self.config.retention_ms.is_some_and(|keep| age > keep));
        if active.size > 0 && outlived {
            self.roll(active.next)
        } else {
            Ok(())
        }
    }

    fn remove_oldest(&mut self, count: usize) -> Result<(), LogError> {
        let removed = self.try_remove_oldest(count);
        removed.map_err(|cause| self.fail("delete segments", cause).into())
    }

    fn try_remove_oldest(&mut self, count: usize) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let first = self.segments.get(count).base;
        self.keep_producers_of_what_goes(first)?;
        self.segments.remove_oldest(&self.dir, count)?;
        for at in self.snapshots()?.into_iter().filter(|at| *at < first) {
            self.dir.remove(&file_name(at, SNAPSHOT))?;
        }
        Ok(())
    }

    /// The producers whose batches lie below `first` are known from the snapshot that was taken there at the roll. It is
    /// made durable in case no flush has covered it; if a power cut took it, it is made again while the batches are here.
    fn keep_producers_of_what_goes(&mut self, first: Offset) -> io::Result<()> {
        let name = file_name(first, SNAPSHOT);
        let kept = self.dir.read_file(&name)?;
        if kept.is_some_and(|bytes| ProducerStates::from_snapshot(&bytes, self.wall).is_ok()) {
            self.dir.open(&name)?.sync_data()?;
            return self.dir.sync();
        }
        let states = recovery::producers_at(&self.dir, &self.segments, first, self.wall)?;
        write_atomically(&self.dir, &name, &states.to_snapshot())
    }

    // ---- the end ----

    /// Flushes and trims everything, with a snapshot of the producers, so that the next opening reads next to nothing.
    /// Answers with the end, which is the recovery point.
    ///
    /// # Errors
    /// `Storage`.
    pub fn close(mut self) -> Result<Offset, LogError> {
        self.usable()?;
        self.try_close()
            .map_err(|cause| self.fail("close", cause))?;
        Ok(self.end_offset())
    }

    fn try_close(&mut self) -> io::Result<()> {
        let end = self.end_offset();
        if self.flushing {
            // What the flush under way has taken may never become durable.
            let unflushed = self.segments.from(self.flushed).iter();
            self.dirty_files
                .extend(unflushed.map(|segment| Arc::clone(&segment.log)));
            self.names_dirty = true;
            self.own_name_dirty = true;
            self.epochs_dirty = true;
        }
        self.segments.active_mut().close()?;
        self.mark_start(self.start)?;
        self.write_snapshot(end)?;
        self.take_dirty().run()
    }

    /// Deletes every file of the log; the directory itself stays.
    ///
    /// # Errors
    /// `Storage`.
    pub fn delete(mut self) -> Result<(), LogError> {
        self.usable()?;
        let dir = self.dir.clone();
        let delete = || -> io::Result<()> {
            for entry in dir.list()?.into_iter().rev().filter(|entry| !entry.is_dir) {
                dir.remove(&entry.name)?;
            }
            dir.sync()
        };
        delete().map_err(|cause| self.fail("delete", cause).into())
    }
}

#[cfg(test)]
mod tests;
