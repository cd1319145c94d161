//! One segment: a log file, its two indexes, and where it ends.
//! Law: the log file holds batches and then zeros, nothing of ours. Bytes this process did not write are checked each
//! time they are handed out; an index entry is believed only after a look at where it lands.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use kuorum_protocol::record::{BatchView, DecompressLimit, RecordsReader};
use kuorum_protocol::{LeaderEpoch, Offset, Timestamp};

use crate::config::LogConfig;
use crate::dir::{Dir, DirFile};
use crate::offset_index::{OffsetIndex, Place};
use crate::scan::{BatchHeader, Scan, Step};
use crate::time_index::TimeIndex;

/// The first step of preallocation; each next one is twice as big.
const FIRST_STEP: u64 = 64 * 1024;
/// The largest step of preallocation.
const LARGEST_STEP: u64 = 16 * 1024 * 1024;

pub(crate) const LOG: &str = "log";
pub(crate) const INDEX: &str = "index";
pub(crate) const TIME_INDEX: &str = "timeindex";
pub(crate) const SNAPSHOT: &str = "snapshot";
pub(crate) const DAMAGED: &str = "damaged";

/// `00000000000000000042.log`
pub(crate) fn file_name(offset: Offset, extension: &str) -> String {
    format!("{:020}.{extension}", offset.0)
}

/// The offset and extension of such a name.
pub(crate) fn parse_name(name: &str) -> Option<(Offset, &str)> {
    let (digits, extension) = name.split_once('.')?;
    let is_ours = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_ours
        .then(|| digits.parse().ok())
        .flatten()
        .map(|offset| (Offset(offset), extension))
}

/// Why a segment cannot give what was asked for.
#[derive(Debug)]
pub(crate) enum SegmentError {
    /// Its bytes are not what was written, from this offset on.
    Corrupt(Offset),
    Io(io::Error),
}

impl From<io::Error> for SegmentError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

#[derive(Debug)]
pub(crate) struct Segment<D: Dir> {
    pub(crate) base: Offset,
    pub(crate) log: Arc<D::File>,
    pub(crate) offsets: OffsetIndex<D::File>,
    pub(crate) times: TimeIndex<D::File>,
    /// The offset after its last record.
    pub(crate) next: Offset,
    /// Bytes of the log file that hold batches.
    pub(crate) size: u64,
    /// The highest timestamp in it, and the last offset of the batch that has it.
    pub(crate) max_timestamp: Option<(Timestamp, Offset)>,
    /// The timestamp that its age is counted from.
    pub(crate) first_timestamp: Option<Timestamp>,
    /// Length of the log file.
    pub(crate) allocated: u64,
    step: u64,
    /// Bytes before this position were not written by this process.
    pub(crate) trusted_from: u64,
    bytes_since_entry: u64,
}

impl<D: Dir> Segment<D> {
    /// A new, empty segment. Its names are durable after the directory is synced.
    pub(crate) fn create(dir: &D, base: Offset) -> io::Result<Self> {
        let log = Arc::new(dir.create_file(&file_name(base, LOG))?);
        let index = Arc::new(dir.create_file(&file_name(base, INDEX))?);
        let time_index = Arc::new(dir.create_file(&file_name(base, TIME_INDEX))?);
        Ok(Self {
            base,
            log,
            offsets: OffsetIndex::open(index, base)?,
            times: TimeIndex::open(time_index, base)?,
            next: base,
            size: 0,
            max_timestamp: None,
            first_timestamp: None,
            allocated: 0,
            step: FIRST_STEP,
            trusted_from: 0,
            bytes_since_entry: 0,
        })
    }

    /// The files of a segment that is there, its indexes created if they are missing. Nothing is known of its content
    /// yet: `size` is 0, `next` is the base, until batches are noted.
    pub(crate) fn open(dir: &D, base: Offset) -> io::Result<Self> {
        let log = Arc::new(dir.open(&file_name(base, LOG))?);
        let open_or_create = |extension| match dir.open(&file_name(base, extension)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                dir.create_file(&file_name(base, extension))
            }
            result => result,
        };
        let index = Arc::new(open_or_create(INDEX)?);
        let time_index = Arc::new(open_or_create(TIME_INDEX)?);
        let allocated = log.len()?;
        Ok(Self {
            base,
            log,
            offsets: OffsetIndex::open(index, base)?,
            times: TimeIndex::open(time_index, base)?,
            next: base,
            size: 0,
            max_timestamp: None,
            first_timestamp: None,
            allocated,
            step: FIRST_STEP,
            trusted_from: allocated,
            bytes_since_entry: 0,
        })
    }

    /// Takes note of a batch that stands at the end of what is known, and indexes it if it is time to.
    pub(crate) fn note(
        &mut self,
        batch: &BatchView<'_>,
        size: u64,
        interval: u64,
    ) -> io::Result<()> {
        let last = batch.last_offset();
        if self
            .max_timestamp
            .is_none_or(|(known, _)| batch.max_timestamp() > known)
        {
            self.max_timestamp = Some((batch.max_timestamp(), last));
        }
        self.first_timestamp.get_or_insert(batch.max_timestamp());
        if self.bytes_since_entry > interval {
            self.offsets.push(Place {
                last,
                position: self.size,
            })?;
            if let Some((timestamp, offset)) = self.max_timestamp {
                self.times.push(timestamp, offset)?;
            }
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += size;
        self.size += size;
        self.next = last.plus(1);
        Ok(())
    }

    /// Writes batches at the end. They are not noted yet.
    pub(crate) fn write(&mut self, bytes: &[u8], config: &LogConfig) -> io::Result<()> {
        let end = self.size + bytes.len() as u64;
        if end > self.allocated {
            self.allocated = end;
            if config.preallocate {
                self.preallocate(end, config.segment_bytes);
            }
        }
        self.log.write_at(bytes, self.size)
    }

    /// Grows the file ahead of what is written. A file system that cannot, or has no room for it, does without.
    fn preallocate(&mut self, end: u64, segment_bytes: u64) {
        let ahead = (end + self.step).min(segment_bytes.max(end));
        if self.log.allocate(ahead).is_ok() {
            self.allocated = ahead;
        }
        self.step = (self.step * 2).min(LARGEST_STEP);
    }

    /// Forgets what is known from `position` on, where `next` is the next offset: a walk will note it anew.
    pub(crate) fn begin_at(&mut self, position: u64, next: Offset) -> io::Result<()> {
        self.size = position;
        self.next = next;
        self.offsets.truncate_to_size(position)?;
        self.times.truncate(next)?;
        self.max_timestamp = self.times.last();
        // The batch at `position` had an entry of its own.
        self.bytes_since_entry = if position > 0 { u64::MAX / 2 } else { 0 };
        self.first_timestamp = None;
        Ok(())
    }

    /// The walk is over; what it could not see of the segment's first batch is looked up.
    pub(crate) fn finish_walk(&mut self) -> io::Result<()> {
        self.first_timestamp = self.header_at(0)?.map(|first| first.view().max_timestamp());
        Ok(())
    }

    /// Whether a batch of `size` bytes that ends at `last` needs a new segment.
    pub(crate) fn is_full(
        &self,
        size: u64,
        last: Offset,
        timestamp: Timestamp,
        config: &LogConfig,
    ) -> bool {
        if self.size == 0 {
            return false;
        }
        let too_old = self
            .first_timestamp
            .is_some_and(|first| timestamp.0.saturating_sub(first.0) > config.segment_ms);
        self.size + size > config.segment_bytes.min(i32::MAX as u64)
            || last.0 - self.base.0 > i64::from(i32::MAX)
            || self.offsets.size_bytes() + 8 > config.segment_index_bytes
            || too_old
    }

    /// Nothing more will be appended: the file ends where its batches do, and the indexes are complete.
    pub(crate) fn seal(&mut self) -> io::Result<()> {
        if let Some((timestamp, offset)) = self.max_timestamp {
            self.times.push(timestamp, offset)?;
        }
        self.trim()?;
        self.offsets.write_pending()?;
        self.times.write_pending()
    }

    /// Cuts the file to its batches.
    pub(crate) fn trim(&mut self) -> io::Result<()> {
        if self.allocated != self.size {
            self.log.set_len(self.size)?;
            self.allocated = self.size;
        }
        Ok(())
    }

    /// Seals it and makes all of it durable.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.seal()?;
        self.log.sync_data()?;
        self.offsets.close()?;
        self.times.close()
    }

    /// Cuts away everything from the batch that reaches `end`; durable when it returns.
    pub(crate) fn truncate(&mut self, end: Offset) -> Result<(), SegmentError> {
        let Some(first_cut) = self.find(end)? else {
            return Ok(());
        };
        self.next = first_cut.view().base_offset().max(self.base);
        self.size = first_cut.position;
        self.allocated = self.size;
        self.trusted_from = self.trusted_from.min(self.size);
        self.log.set_len(self.size)?;
        self.log.sync_data()?;
        self.offsets.truncate_to_size(self.size)?;
        self.times.truncate(self.next)?;
        self.step = FIRST_STEP;
        self.learn_timestamps()?;
        Ok(())
    }

    /// Finds the highest timestamp again: from the time index, and the batches after its last entry.
    fn learn_timestamps(&mut self) -> Result<(), SegmentError> {
        self.max_timestamp = self.times.last();
        self.first_timestamp = None;
        self.bytes_since_entry = self.size - self.offsets.last().map_or(0, |last| last.position);
        if self.size == 0 {
            return Ok(());
        }
        let from = match self.max_timestamp {
            Some((_, offset)) => self.find(offset)?.map_or(0, |header| header.position),
            None => 0,
        };
        let log = Arc::clone(&self.log);
        let mut scan = Scan::new(&*log, from, self.size);
        while let Step::Batch(header) = scan.next_header()? {
            let batch = header.view();
            if self
                .max_timestamp
                .is_none_or(|(known, _)| batch.max_timestamp() > known)
            {
                self.max_timestamp = Some((batch.max_timestamp(), batch.last_offset()));
            }
        }
        self.first_timestamp = self.header_at(0)?.map(|first| first.view().max_timestamp());
        Ok(())
    }

    /// The header of the batch at `position`.
    pub(crate) fn header_at(&self, position: u64) -> io::Result<Option<BatchHeader>> {
        match Scan::new(&*self.log, position, self.size).next_header()? {
            Step::Batch(header) => Ok(Some(header)),
            Step::Bad(_) | Step::End => Ok(None),
        }
    }

    /// Where to begin a walk for `offset`: at the batch of an index entry if that is where it says, else at the start.
    fn walk_from(&self, offset: Offset) -> io::Result<u64> {
        let Some(place) = self.offsets.lookup(offset)? else {
            return Ok(0);
        };
        let lands = place.position < self.size
            && self
                .header_at(place.position)?
                .is_some_and(|header| header.view().last_offset() == place.last);
        Ok(if lands { place.position } else { 0 })
    }

    /// The first batch that reaches `offset`, if the segment has one.
    pub(crate) fn find(&self, offset: Offset) -> Result<Option<BatchHeader>, SegmentError> {
        let from = self.walk_from(offset)?;
        let mut scan = Scan::new(&*self.log, from, self.size);
        let mut reached = self.base;
        loop {
            match scan.next_header()? {
                Step::End => return Ok(None),
                Step::Bad(_) => return Err(SegmentError::Corrupt(reached)),
                Step::Batch(header) => {
                    reached = header.view().next_offset();
                    if reached > offset {
                        return Ok(Some(header));
                    }
                }
            }
        }
    }

    /// Whole batches from the one that reaches `from`, none that reaches beyond `until`.
    pub(crate) fn read(
        &self,
        from: Offset,
        until: Offset,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Bytes, SegmentError> {
        // Nothing is compacted away: a segment that reaches beyond `from` has the batch `from` is in, unless it is damaged.
        let Some(first) = self.find(from)? else {
            return match self.next > from {
                true => Err(SegmentError::Corrupt(from)),
                false => Ok(Bytes::new()),
            };
        };
        if first.view().base_offset() > from {
            return Err(SegmentError::Corrupt(from));
        }
        if first.view().next_offset() > until {
            return match self.is_sound(&first)? {
                true => Ok(Bytes::new()),
                false => Err(SegmentError::Corrupt(first.view().base_offset())),
            };
        }
        let mut wanted = (max_bytes as u64).min(self.size - first.position);
        if wanted < first.size {
            if !at_least_one {
                return Ok(Bytes::new());
            }
            wanted = first.size;
        }
        let mut bytes = self.log.read_up_to(wanted as usize, first.position)?;
        let good = self.good_prefix(&bytes, first.position, until);
        if good == 0 {
            return Err(SegmentError::Corrupt(first.view().base_offset()));
        }
        bytes.truncate(good);
        Ok(Bytes::from(bytes))
    }

    /// Whether a batch is what was written, as far as its checksum can tell.
    fn is_sound(&self, batch: &BatchHeader) -> Result<bool, SegmentError> {
        if batch.position >= self.trusted_from {
            return Ok(true);
        }
        let size = batch.size.min(self.size - batch.position) as usize;
        let bytes = self.log.read_up_to(size, batch.position)?;
        Ok(BatchView::parse(&bytes).is_ok_and(|batch| batch.crc_is_valid()))
    }

    /// How many of `bytes`, which stand at `position`, are whole and sound batches that end at or before `until`.
    fn good_prefix(&self, bytes: &[u8], position: u64, until: Offset) -> usize {
        let mut good = 0;
        let mut reached = None;
        while let Ok(batch) = BatchView::parse(&bytes[good..]) {
            let follows = reached.is_none_or(|reached| batch.base_offset() == reached);
            let known = position + good as u64 >= self.trusted_from || batch.crc_is_valid();
            if batch.next_offset() > until || !follows || !known {
                break;
            }
            reached = Some(batch.next_offset());
            good += batch.size();
        }
        good
    }

    /// The first record at or after `from` and below `until` whose timestamp is at least `wanted`.
    pub(crate) fn first_at_or_after(
        &self,
        wanted: Timestamp,
        from: Offset,
        until: Offset,
    ) -> Result<Option<(Timestamp, Offset, LeaderEpoch)>, SegmentError> {
        if self
            .max_timestamp
            .is_none_or(|(highest, _)| highest < wanted)
        {
            return Ok(None);
        }
        let begin = self
            .times
            .last_before(wanted)?
            .map_or(from, |(_, offset)| offset.max(from));
        let Some(first) = self.find(begin)? else {
            return Ok(None);
        };
        let mut scan = Scan::new(&*self.log, first.position, self.size);
        let mut reached = first.view().base_offset();
        loop {
            let header = match scan.next_header()? {
                Step::End => return Ok(None),
                Step::Bad(_) => return Err(SegmentError::Corrupt(reached)),
                Step::Batch(header) => header,
            };
            let batch = header.view();
            if batch.base_offset() >= until {
                return Ok(None);
            }
            reached = batch.next_offset();
            if batch.max_timestamp() < wanted {
                continue;
            }
            let matches = |timestamp: Timestamp, offset: Offset| {
                timestamp >= wanted && offset >= from && offset < until
            };
            if let Some((timestamp, offset)) = self.first_record(&header, matches)? {
                return Ok(Some((timestamp, offset, batch.leader_epoch())));
            }
        }
    }

    /// The first record with the highest timestamp of the batches at or after `from` and below `until`.
    pub(crate) fn highest(
        &self,
        from: Offset,
        until: Offset,
    ) -> Result<Option<(Timestamp, Offset, LeaderEpoch)>, SegmentError> {
        let Some((highest, last)) = self.max_timestamp else {
            return Ok(None);
        };
        let best = if from <= self.base && last < until {
            self.find(last)?.map(|header| (highest, header))
        } else {
            self.highest_header(from, until)?
        };
        let Some((highest, header)) = best else {
            return Ok(None);
        };
        let epoch = header.view().leader_epoch();
        let matches = |timestamp, offset| timestamp >= highest && offset >= from;
        let found = self.first_record(&header, matches)?;
        Ok(found.map(|(timestamp, offset)| (timestamp, offset, epoch)))
    }

    fn highest_header(
        &self,
        from: Offset,
        until: Offset,
    ) -> Result<Option<(Timestamp, BatchHeader)>, SegmentError> {
        let Some(first) = self.find(from)? else {
            return Ok(None);
        };
        let mut scan = Scan::new(&*self.log, first.position, self.size);
        let mut reached = first.view().base_offset();
        let mut best: Option<(Timestamp, BatchHeader)> = None;
        loop {
            let header = match scan.next_header()? {
                Step::End => return Ok(best),
                Step::Bad(_) => return Err(SegmentError::Corrupt(reached)),
                Step::Batch(header) => header,
            };
            reached = header.view().next_offset();
            if reached > until {
                return Ok(best);
            }
            let timestamp = header.view().max_timestamp();
            if best.as_ref().is_none_or(|(known, _)| timestamp > *known) {
                best = Some((timestamp, header));
            }
        }
    }

    fn first_record(
        &self,
        header: &BatchHeader,
        matches: impl Fn(Timestamp, Offset) -> bool,
    ) -> Result<Option<(Timestamp, Offset)>, SegmentError> {
        let corrupt = || SegmentError::Corrupt(header.view().base_offset());
        let bytes = self.log.read_up_to(header.size as usize, header.position)?;
        let batch = BatchView::parse(&bytes).map_err(|_| corrupt())?;
        if !batch.crc_is_valid() {
            return Err(corrupt());
        }
        let bytes = Bytes::from(bytes);
        let records =
            RecordsReader::new(&bytes, DecompressLimit::PRODUCED).map_err(|_| corrupt())?;
        for record in records {
            let record = record.map_err(|_| corrupt())?;
            if matches(record.timestamp, record.offset) {
                return Ok(Some((record.timestamp, record.offset)));
            }
        }
        Ok(None)
    }
}
