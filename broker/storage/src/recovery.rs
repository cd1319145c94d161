//! What a restart finds in a log's directory, and what it makes of it.
//! Law: what was known flushed is not read again, and is never cut away silently. Above it the log ends where sound
//! batches end. Zeros are the end of a file, not damage. Offsets follow each other exactly and epochs never go back,
//! because no CRC covers them. Bytes that are cut although sound ones may lie among them are set aside first. Where a log
//! begins is what was noted before anything below was deleted, and never what is left of it.

use std::io;
use std::sync::Arc;

use kuorum_protocol::{LeaderEpoch, Offset, Timestamp};

use crate::checkpoint::{TEMPORARY, write_atomically};
use crate::config::LogConfig;
use crate::dir::{Dir, DirFile, Entry};
use crate::error::{LogError, StorageFailure};
use crate::leader_epochs::LeaderEpochs;
use crate::log::{EPOCHS, Known};
use crate::mark::{FLOOR, Mark, Marked, START};
use crate::producer_state::{BadSnapshot, ProducerStates};
use crate::scan::{Scan, Step, remainder};
use crate::segment::{DAMAGED, INDEX, LOG, SNAPSHOT, Segment, TIME_INDEX, file_name, parse_name};
use crate::segments::{Segments, remove_files};

/// Endings of files that an unfinished operation left; Kafka's among them.
const LEFTOVERS: [&str; 4] = [TEMPORARY, ".deleted", ".cleaned", ".swap"];

/// Bytes below the known flushed end that are not what was written: the replica is not intact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The first offset that is lost; the log now ends there.
    pub at: Offset,
    /// What is wrong.
    pub reason: String,
}

/// The unflushed end of a log, cut away because it was not written whole. Nothing that was claimed is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The new end of the log.
    pub at: Offset,
    /// What was wrong there.
    pub reason: String,
}

/// What opening a log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Bytes of log files that were read.
    pub scanned_bytes: u64,
    /// Bytes that were cut away, not counting zeros at the end.
    pub truncated_bytes: u64,
    /// Set if the unflushed end was torn.
    pub torn: Option<TornTail>,
    /// Set if data that had been claimed is damaged or missing.
    pub corruption: Option<Corruption>,
    /// The log was cut back to here after its checkpoints were written: what they claim beyond is of a history that is no
    /// more, and says nothing of what lies there now.
    pub cut_back_to: Option<Offset>,
}

impl Recovery {
    /// What is left of a checkpointed high watermark.
    #[must_use]
    pub fn high_watermark(&self, checkpointed: Offset) -> Offset {
        self.cut_back_to
            .map_or(checkpointed, |floor| floor.min(checkpointed))
    }
}

/// What `Log::open` makes a log of.
#[derive(Debug)]
pub(crate) struct Opened<D: Dir> {
    pub(crate) segments: Segments<D>,
    pub(crate) start: Offset,
    /// The mark of the log's start is sound and says `start`.
    pub(crate) start_marked: bool,
    pub(crate) epochs: LeaderEpochs,
    pub(crate) epochs_dirty: bool,
    pub(crate) producers: ProducerStates,
    pub(crate) snapshot_at: Option<Offset>,
    pub(crate) floor: Option<Offset>,
    pub(crate) is_new: bool,
    pub(crate) names_dirty: bool,
    pub(crate) recovery: Recovery,
}

/// An IO error, or what makes a directory unusable.
enum Trouble {
    Io(io::Error),
    Newer {
        file: String,
        version: u16,
        known: u16,
    },
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Trouble {
    fn into_error<D: Dir>(self, dir: &D) -> LogError {
        match self {
            Self::Io(cause) => LogError::Storage(StorageFailure {
                what: "open",
                path: dir.path(),
                cause: Arc::new(cause),
            }),
            Self::Newer {
                file,
                version,
                known,
            } => LogError::NewerVersion {
                file: format!("{}/{file}", dir.path()),
                version,
                known,
            },
        }
    }
}

/// Opens what is there.
pub(crate) fn recover<D: Dir>(
    dir: &D,
    config: &LogConfig,
    known: &Known,
    now: Timestamp,
) -> Result<Opened<D>, LogError> {
    Recoverer::run(dir, config, known, now).map_err(|trouble| trouble.into_error(dir))
}

struct Recoverer<'a, D: Dir> {
    dir: &'a D,
    config: &'a LogConfig,
    known: &'a Known,
    now: Timestamp,
    /// Where the log's own mark says that it begins, if there is a sound one.
    marked_start: Option<Offset>,
    /// Where the checkpoint says so, as far as it is of this history.
    claimed_start: Offset,
    /// Everything below need not be read.
    recovery_point: Offset,
    /// Damage below is corruption, above it a torn end.
    flushed: Offset,
    epochs: LeaderEpochs,
    epochs_lost: bool,
    epochs_dirty: bool,
    names_dirty: bool,
    recovery: Recovery,
}

/// How the batches of one segment ended.
enum Ending {
    /// At the end of the file, or in zeros.
    Sound,
    /// The rest was cut away; what follows in later segments goes too.
    Cut,
}

impl<D: Dir> Recoverer<'_, D> {
    fn run(
        dir: &D,
        config: &LogConfig,
        known: &Known,
        now: Timestamp,
    ) -> Result<Opened<D>, Trouble> {
        let is_new = dir.create()?;
        let entries = tidy(dir)?;
        let floor = match read_mark(dir, &FLOOR)? {
            Marked::Absent => None,
            _ if known.clean => {
                FLOOR.remove(dir)?;
                None
            }
            Marked::At(floor) => Some(floor),
            // Then everything is read again.
            _ => Some(Offset::ZERO),
        };
        let marked_start = match read_mark(dir, &START)? {
            Marked::At(start) => Some(start),
            Marked::Damaged => {
                // There was one. The checkpoint is as old or older: at worst a log that is whole is copied anew.
                START.write(dir, known.log_start)?;
                Some(known.log_start)
            }
            Marked::Absent | Marked::Newer { .. } => None,
        };
        let limit = floor.unwrap_or(Offset(i64::MAX));
        let epochs = dir
            .read_file(EPOCHS)?
            .and_then(|bytes| LeaderEpochs::from_text(&String::from_utf8(bytes).ok()?));
        let mut recoverer = Recoverer {
            dir,
            config,
            known,
            now,
            marked_start,
            // A log that was reset may begin below where it did when the checkpoint was written; its mark knows.
            claimed_start: match marked_start {
                Some(_) => known.log_start.min(limit),
                None => known.log_start,
            },
            recovery_point: known.recovery_point.min(limit),
            flushed: known.recovery_point.max(known.high_watermark).min(limit),
            epochs_lost: epochs.is_none(),
            epochs: epochs.unwrap_or_default(),
            epochs_dirty: false,
            names_dirty: false,
            recovery: Recovery {
                cut_back_to: floor,
                ..Recovery::default()
            },
        };
        let mut opened = recoverer.open(&entries, floor)?;
        opened.is_new = is_new;
        Ok(opened)
    }

    fn open(&mut self, entries: &[Entry], floor: Option<Offset>) -> Result<Opened<D>, Trouble> {
        let log_start = self
            .claimed_start
            .max(self.marked_start.unwrap_or(self.claimed_start));
        if self.marked_start.is_some_and(|marked| marked < log_start) {
            START.write(self.dir, log_start)?;
        }
        let mut list = self.open_segments(entries, log_start)?;
        let end = list.last().map(|segment| segment.next);
        let created = end.is_none_or(|end| end < log_start);
        if created {
            // Nothing that may be read is left, or nothing was there.
            if let Some(end) = end.filter(|end| *end < self.claimed_start) {
                let reason = format!("the log ends at {end}, and starts at {log_start}");
                let at = log_start;
                let lost = Corruption { at, reason };
                self.recovery.corruption.get_or_insert(lost);
            }
            for segment in list.drain(..).rev() {
                remove_files(self.dir, segment.base)?;
                self.names_dirty = true;
            }
            self.remove_snapshots(|_| true)?;
            self.epochs_dirty |= !self.epochs.entries().is_empty();
            self.epochs.clear();
            list.push(Segment::create(self.dir, log_start)?);
        }
        let segments = Segments::new(list);
        let end = segments.active().next;
        if end < self.flushed && self.recovery.corruption.is_none() {
            let reason = format!("the log ends at {end}, {} had been flushed", self.flushed);
            self.recovery.corruption = Some(Corruption { at: end, reason });
        }
        if self.recovery.corruption.is_some() {
            self.recovery.torn = None;
        }
        self.epochs_dirty |= self.epochs.truncate_from_end(end);
        // Without a mark (a log of an older version) what is left is all that is known.
        let start = log_start.max(segments.first().base).min(end);
        self.epochs_dirty |= self.epochs.truncate_from_start(start);
        // Their removal must be durable before the log grows past them again.
        self.remove_snapshots(|at| at > end)?;
        self.make_durable(&segments)?;
        let producers = replay_producers(self.dir, &segments, end, self.now)?;
        self.recovery.scanned_bytes += producers.read_bytes;
        Ok(Opened {
            segments,
            start,
            start_marked: self.marked_start.is_some(),
            epochs: std::mem::take(&mut self.epochs),
            epochs_dirty: self.epochs_dirty,
            producers: producers.states,
            snapshot_at: producers.snapshot_at,
            floor,
            is_new: false,
            names_dirty: self.names_dirty || created,
            recovery: std::mem::take(&mut self.recovery),
        })
    }

    fn remove_snapshots(&mut self, goes: impl Fn(Offset) -> bool) -> io::Result<()> {
        for at in snapshots(self.dir)?.into_iter().filter(|at| goes(*at)) {
            self.dir.remove(&file_name(at, SNAPSHOT))?;
            self.names_dirty = true;
        }
        Ok(())
    }

    /// What was found may only be in the page cache: the log claims it from now on, so it is flushed first.
    fn make_durable(&mut self, segments: &Segments<D>) -> io::Result<()> {
        let end = segments.active().next;
        if end <= self.recovery_point {
            if std::mem::take(&mut self.names_dirty) {
                self.dir.sync()?;
            }
            return Ok(());
        }
        for segment in segments.from(self.recovery_point) {
            if segment.next > self.recovery_point {
                segment.log.sync_data()?;
            }
        }
        if std::mem::take(&mut self.epochs_dirty) {
            write_atomically(self.dir, EPOCHS, self.epochs.to_text().as_bytes())?;
        } else {
            self.dir.sync()?;
        }
        self.names_dirty = false;
        self.dir.sync_parent()
    }

    /// Opens the segments in order, until one does not follow the one before.
    fn open_segments(
        &mut self,
        entries: &[Entry],
        log_start: Offset,
    ) -> io::Result<Vec<Segment<D>>> {
        let bases = self.drop_below_start(&bases(entries), log_start)?;
        if self.marked_start.is_some()
            && let Some(first) = bases.first().filter(|first| **first > log_start)
        {
            let reason = format!("the log starts at {log_start}, and its first segment at {first}");
            tracing::error!(
                dir = self.dir.path(),
                offset = log_start.0,
                reason,
                "a segment is missing"
            );
            self.set_segments_aside(&bases)?;
            let at = log_start;
            self.recovery.corruption = Some(Corruption { at, reason });
            return Ok(Vec::new());
        }
        self.doubt_epochs(&bases, log_start)?;
        let mut list: Vec<Segment<D>> = Vec::new();
        for (at, base) in bases.iter().enumerate() {
            let expected = list.last().map_or(*base, |before| before.next);
            let follows = *base == expected || (self.config.compact && *base > expected);
            if !follows {
                let reason = format!("a segment begins at {base} where {expected} was expected");
                let rest = self.set_segments_aside(&bases[at..])?;
                self.note_damage(expected, rest.valid_batch, reason);
                break;
            }
            let mut segment = Segment::open(self.dir, *base)?;
            let top = bases.get(at + 1).copied();
            let ending = self.walk(&mut segment, top)?;
            let cut = matches!(ending, Ending::Cut);
            list.push(segment);
            if cut {
                let at_offset = list.last().map_or(*base, |segment| segment.next);
                let rest = self.set_segments_aside(&bases[at + 1..])?;
                if rest.valid_batch {
                    self.note_damage(at_offset, true, "later segments hold batches".to_owned());
                }
                break;
            }
        }
        Ok(list)
    }

    /// Segments that lie below the start altogether were deleted once already.
    fn drop_below_start(&mut self, bases: &[Offset], log_start: Offset) -> io::Result<Vec<Offset>> {
        let below = bases
            .windows(2)
            .take_while(|pair| pair[1] <= log_start)
            .count();
        for base in &bases[..below] {
            remove_files(self.dir, *base)?;
            self.names_dirty = true;
        }
        Ok(bases[below..].to_vec())
    }

    /// Epochs that say nothing of the first batch are not those of this log: they are learnt from the batches again.
    fn doubt_epochs(&mut self, bases: &[Offset], log_start: Offset) -> io::Result<()> {
        let Some(first) = bases.first().filter(|_| !self.epochs_lost) else {
            return Ok(());
        };
        let file = self.dir.open(&file_name(*first, LOG))?;
        let Step::Batch(header) = Scan::new(&file, 0, file.len()?).next_header()? else {
            return Ok(());
        };
        let batch = header.view();
        let told = self.epochs.epoch_at(batch.base_offset().max(log_start));
        if batch.leader_epoch() >= LeaderEpoch(0) && told.is_none() {
            tracing::warn!(
                dir = self.dir.path(),
                epochs = ?self.epochs.entries().first(),
                "the leader epochs do not cover the log and are learnt from its batches again"
            );
            self.epochs.clear();
            self.epochs_lost = true;
            self.epochs_dirty = true;
        }
        Ok(())
    }

    /// Learns what a segment holds: all of it if it is not known to be flushed, else from its last index entry on. `top`
    /// is where the next one begins.
    fn walk(&mut self, segment: &mut Segment<D>, top: Option<Offset>) -> io::Result<Ending> {
        let flushed = top.is_some_and(|top| top <= self.recovery_point) || self.known.clean;
        let learn_epochs = self.epochs_lost || !flushed;
        let interval = self.config.index_interval_bytes;
        let indexed = !self.epochs_lost && self.trust_indexes(segment, !flushed)?;
        let begin_at = if !indexed {
            None
        } else if flushed {
            segment.offsets.last()
        } else {
            segment.offsets.lookup(self.recovery_point.plus(-1))?
        };
        // The walk begins with the batch that the index entry points to, if that batch is really there.
        let landing = match begin_at {
            Some(place) => {
                segment.size = segment.allocated;
                let header = segment.header_at(place.position)?;
                header.filter(|header| header.view().last_offset() == place.last)
            }
            None => None,
        };
        let (position, mut expected) = match &landing {
            Some(header) => (header.position, header.view().base_offset()),
            None => (0, segment.base),
        };
        segment.begin_at(position, expected)?;
        if learn_epochs && !self.epochs_lost {
            self.epochs_dirty |= self.epochs.truncate_from_end(expected);
        }
        let mut last_epoch = self
            .epochs
            .epoch_at(expected.plus(-1))
            .unwrap_or(LeaderEpoch::UNKNOWN);
        let file_end = segment.allocated;
        let log = Arc::clone(&segment.log);
        let mut scan = Scan::new(&*log, position, file_end);
        let reason = loop {
            let begins = scan.position();
            let batch = match scan.next_batch()? {
                Step::End => break None,
                Step::Bad(reason) => break Some(reason),
                Step::Batch(batch) => batch,
            };
            let base = batch.base_offset();
            let follows = base == expected || (self.config.compact && base > expected);
            let bad = if batch.last_offset_delta() < 0 || !follows {
                Some("the batch's offset does not follow the one before")
            } else if batch.leader_epoch() < last_epoch {
                Some("the batch's epoch is older than the one before")
            } else if top.is_some_and(|top| batch.next_offset() > top) {
                Some("the batch reaches into the next segment")
            } else {
                None
            };
            if let Some(bad) = bad {
                scan.step_back(begins);
                break Some(bad);
            }
            last_epoch = batch.leader_epoch();
            expected = batch.next_offset();
            if learn_epochs {
                self.epochs_dirty |= self.epochs.assign(last_epoch, base);
            }
            segment.note(&batch, batch.size() as u64, interval)?;
        };
        self.recovery.scanned_bytes += segment.size - position;
        segment.finish_walk()?;
        let Some(reason) = reason else {
            return Ok(Ending::Sound);
        };
        self.end_segment(segment, expected, file_end, top, reason)
    }

    /// Bytes that are no batch follow the segment's last one.
    fn end_segment(
        &mut self,
        segment: &mut Segment<D>,
        expected: Offset,
        file_end: u64,
        top: Option<Offset>,
        reason: &str,
    ) -> io::Result<Ending> {
        let rest = remainder(&*segment.log, segment.size, file_end, expected)?;
        if rest.used == 0 {
            // Zeros: space that was reserved ahead. In a sealed segment the trim was lost.
            if top.is_some() {
                segment.trim()?;
            }
            return Ok(Ending::Sound);
        }
        if rest.valid_batch || expected < self.flushed {
            self.set_bytes_aside(segment, expected, file_end - segment.size)?;
        }
        self.recovery.truncated_bytes += rest.used;
        self.note_damage(expected, rest.valid_batch, reason.to_owned());
        segment.trim()?;
        segment.log.sync_data()?;
        Ok(Ending::Cut)
    }

    /// Below the flushed point it is corruption. Above it a power cut may have kept later bytes and lost earlier ones; but
    /// while the kernel has not booted nothing written is lost, and then sound bytes after bad ones are corruption too.
    fn note_damage(&mut self, at: Offset, valid_after: bool, reason: String) {
        if at < self.flushed || (self.known.same_boot && valid_after) {
            tracing::error!(
                dir = self.dir.path(),
                offset = at.0,
                reason,
                "the log is damaged"
            );
            self.recovery
                .corruption
                .get_or_insert(Corruption { at, reason });
        } else {
            tracing::info!(
                dir = self.dir.path(),
                offset = at.0,
                reason,
                "the log's end was torn"
            );
            self.recovery.torn.get_or_insert(TornTail { at, reason });
        }
    }

    /// Keeps a copy of bytes that are about to be cut.
    fn set_bytes_aside(&self, segment: &Segment<D>, at: Offset, used: u64) -> io::Result<()> {
        let copy = self.dir.create_file(&file_name(at, DAMAGED))?;
        let mut chunk = vec![0; 1024 * 1024];
        let mut done = 0;
        while done < used {
            let wanted = chunk.len().min((used - done) as usize);
            let read = segment
                .log
                .read_full_at(&mut chunk[..wanted], segment.size + done)?;
            if read == 0 {
                break;
            }
            copy.write_at(&chunk[..read], done)?;
            done += read as u64;
        }
        copy.sync_data()
    }

    /// Takes segments that do not follow out of the log, newest first: renamed if they hold anything, else removed.
    fn set_segments_aside(&mut self, bases: &[Offset]) -> io::Result<Rest> {
        let mut rest = Rest { valid_batch: false };
        for base in bases.iter().rev() {
            let name = file_name(*base, LOG);
            let file = self.dir.open(&name)?;
            let found = remainder(&file, 0, file.len()?, Offset::ZERO)?;
            rest.valid_batch |= found.valid_batch;
            self.recovery.truncated_bytes += found.used;
            if found.valid_batch {
                self.dir.rename(&name, &file_name(*base, DAMAGED))?;
            }
            remove_files(self.dir, *base)?;
            self.names_dirty = true;
        }
        Ok(rest)
    }

    /// Whether the indexes look like indexes; those that do not are emptied, and the walk fills them again.
    fn trust_indexes(&self, segment: &mut Segment<D>, deep: bool) -> io::Result<bool> {
        let offsets = segment.offsets.is_plausible(segment.allocated, deep)?;
        let times = segment.times.is_plausible(deep)?;
        // Without time entries a segment that has offset entries lost its time index.
        Ok(offsets && times && segment.offsets.last().is_some() == segment.times.last().is_some())
    }
}

struct Rest {
    valid_batch: bool,
}

fn read_mark<D: Dir>(dir: &D, mark: &Mark) -> Result<Marked, Trouble> {
    match mark.read(dir)? {
        Marked::Newer { version, known } => Err(Trouble::Newer {
            file: mark.name.to_owned(),
            version,
            known,
        }),
        found => Ok(found),
    }
}

/// Removes what unfinished operations left, and indexes without a log.
fn tidy<D: Dir>(dir: &D) -> io::Result<Vec<Entry>> {
    let mut entries = dir.list()?;
    let logs: Vec<Offset> = bases(&entries);
    let keep = |entry: &Entry| -> io::Result<bool> {
        let leftover = LEFTOVERS.iter().any(|ending| entry.name.ends_with(ending));
        let orphan = matches!(parse_name(&entry.name), Some((base, INDEX | TIME_INDEX))
            if logs.binary_search(&base).is_err());
        if !entry.is_dir && (leftover || orphan) {
            dir.remove(&entry.name)?;
            return Ok(false);
        }
        Ok(true)
    };
    let mut kept = Vec::new();
    for entry in entries.drain(..) {
        if keep(&entry)? {
            kept.push(entry);
        }
    }
    Ok(kept)
}

/// The base offsets of the segments there are, rising.
fn bases(entries: &[Entry]) -> Vec<Offset> {
    let base = |entry: &Entry| match parse_name(&entry.name) {
        Some((base, LOG)) if !entry.is_dir => Some(base),
        _ => None,
    };
    let mut bases: Vec<Offset> = entries.iter().filter_map(base).collect();
    bases.sort();
    bases
}

/// Offsets of the producer snapshots there are, rising.
pub(crate) fn snapshots<D: Dir>(dir: &D) -> io::Result<Vec<Offset>> {
    let at = |entry: Entry| match parse_name(&entry.name) {
        Some((at, SNAPSHOT)) => Some(at),
        _ => None,
    };
    let mut offsets: Vec<Offset> = dir.list()?.into_iter().filter_map(at).collect();
    offsets.sort();
    Ok(offsets)
}

/// The producers as of the log's end.
#[derive(Debug)]
pub(crate) struct LoadedProducers {
    pub(crate) states: ProducerStates,
    pub(crate) snapshot_at: Option<Offset>,
    read_bytes: u64,
}

/// The newest sound snapshot at or below `end`, and every batch after it: when those were appended nothing tells, so they
/// count as of `now`, which is later.
pub(crate) fn load_producers<D: Dir>(
    dir: &D,
    segments: &Segments<D>,
    end: Offset,
    now: Timestamp,
) -> Result<LoadedProducers, LogError> {
    replay_producers(dir, segments, end, now).map_err(|trouble| trouble.into_error(dir))
}

/// The producers as of `offset`, as far as snapshots and batches still tell.
pub(crate) fn producers_at<D: Dir>(
    dir: &D,
    segments: &Segments<D>,
    offset: Offset,
    now: Timestamp,
) -> io::Result<ProducerStates> {
    match replay_producers(dir, segments, offset, now) {
        Ok(loaded) => Ok(loaded.states),
        Err(Trouble::Io(error)) => Err(error),
        Err(Trouble::Newer { file, .. }) => Err(io::Error::other(format!("{file} is too new"))),
    }
}

fn replay_producers<D: Dir>(
    dir: &D,
    segments: &Segments<D>,
    end: Offset,
    now: Timestamp,
) -> Result<LoadedProducers, Trouble> {
    let mut loaded = LoadedProducers {
        states: ProducerStates::new(),
        snapshot_at: None,
        read_bytes: 0,
    };
    for at in snapshots(dir)?.into_iter().rev().filter(|at| *at <= end) {
        let file = file_name(at, SNAPSHOT);
        match ProducerStates::from_snapshot(&dir.read_file(&file)?.unwrap_or_default(), now) {
            Ok(states) => {
                loaded.states = states;
                loaded.snapshot_at = Some(at);
                break;
            }
            Err(BadSnapshot::Damaged) => {
                tracing::warn!(
                    dir = dir.path(),
                    file,
                    "a damaged producer snapshot is dropped"
                );
                dir.remove(&file)?;
            }
            Err(BadSnapshot::Newer { version, known }) => {
                return Err(Trouble::Newer {
                    file,
                    version,
                    known,
                });
            }
        }
    }
    let from = loaded.snapshot_at.unwrap_or(segments.first().base);
    for segment in segments.from(from) {
        if segment.next <= from {
            continue;
        }
        let position = match segment.find(from) {
            Ok(Some(header)) => header.position,
            Ok(None) => continue,
            // What cannot be read is found out when it is asked for.
            Err(crate::segment::SegmentError::Corrupt(_)) => 0,
            Err(crate::segment::SegmentError::Io(error)) => return Err(error.into()),
        };
        let mut scan = Scan::new(&*segment.log, position, segment.size);
        while let Step::Batch(header) = scan.next_header()? {
            if header.view().base_offset() >= end {
                break;
            }
            loaded.states.apply(&header.view(), now);
        }
        loaded.read_bytes += scan.read_bytes();
    }
    Ok(loaded)
}
