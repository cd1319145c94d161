//! What an unclean election makes a replica cut off, kept aside until somebody has decided about it.
//! Law: an item is there as a whole or not at all, and before the cut. It is made by names where that can be (a cut must not
//! wait for a disk to copy gigabytes) and by a bounded copy where it cannot. Only whole batches, byte for byte; what we have
//! to say about them stands in a file of its own.
//!
//! ```text
//! <log directory>/salvage/<id>/item                      what it is: magic, version, JSON, CRC
//!                             /00000000000000150000.log  the batches, as segments that any tool for logs can read
//!                        <id>.<n>-unreadable              one whose description cannot be read, and whose name was needed
//! ```

mod contents;
#[cfg(test)]
mod tests;

use std::io;

use kuorum_protocol::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::checkpoint::{TEMPORARY, write_atomically};
use crate::dir::{Dir, DirFile};
use crate::leader_epochs::LeaderEpochs;
use crate::log::Log;
use crate::scan::{Scan, Step};
use crate::segment::{LOG, Segment, file_name};

pub use contents::{Contents, Damage, Mark, Skipped, Summary, Visit};

/// The directory of the items, inside a log directory.
pub const SALVAGE: &str = "salvage";
/// The file that says what an item is.
const ITEM: &str = "item";
const MAGIC: &str = "kuorum salvage";
const VERSION: u16 = 1;
/// The ending of an item that could not be read when its name was needed.
const UNREADABLE: &str = "-unreadable";
/// Bytes that are copied between two looks at the clock, and flushed together.
const CHUNK: usize = 4 * 1024 * 1024;

/// An item's name: `{topic_id}-{partition}-{unclean_epoch}-{first_offset}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// The leader epoch of the unclean election.
    pub unclean_epoch: LeaderEpoch,
    /// The first offset in it.
    pub first_offset: Offset,
}

impl std::fmt::Display for ItemId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}-{}-{}-{}",
            self.topic_id, self.partition, self.unclean_epoch, self.first_offset
        )
    }
}

impl std::str::FromStr for ItemId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let mut words = text.rsplitn(4, '-');
        let first = words.next().and_then(|word| word.parse().ok());
        let epoch = words.next().and_then(|word| word.parse().ok());
        let partition = words.next().and_then(|word| word.parse().ok());
        let topic = words.next().and_then(|word| word.parse().ok());
        let (Some(first), Some(epoch), Some(partition), Some(topic)) =
            (first, epoch, partition, topic)
        else {
            return Err(NotAnId);
        };
        let id = Self {
            topic_id: TopicId(topic),
            partition,
            unclean_epoch: LeaderEpoch(epoch),
            first_offset: Offset(first),
        };
        // One name for each: it is also the name of a directory.
        (id.to_string() == text).then_some(id).ok_or(NotAnId)
    }
}

/// A text that is no item's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not the id of a salvaged item: TOPIC_ID-PARTITION-EPOCH-OFFSET")]
pub struct NotAnId;

/// What was set aside, as far as it is known without reading it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// The topic's name at that time.
    pub topic: String,
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    /// The leader epoch of the unclean election that made these records another history.
    pub unclean_epoch: LeaderEpoch,
    /// Records below are not part of it, even if its first batch has some.
    pub first_offset: Offset,
    /// Exclusive.
    pub end_offset: Offset,
    /// Bytes of its batches.
    pub bytes: u64,
    /// Everything that was cut is here. Otherwise a bound was reached, and what was copied by then is here.
    pub complete: bool,
    /// The epochs its records were written in, and where each begins.
    pub epochs: Vec<Began>,
    /// Why it was cut, for people.
    pub cause: String,
    /// When.
    pub created_at: Timestamp,
    /// Its files, in the order of their offsets.
    pub parts: Vec<Part>,
}

/// A leader epoch and its first offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Began {
    pub epoch: LeaderEpoch,
    pub start_offset: Offset,
}

/// One file of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its name, which is its first batch's offset.
    pub name: String,
    /// Bytes from its beginning that belong to the item.
    pub bytes: u64,
}

impl Item {
    /// Its name.
    pub fn id(&self) -> ItemId {
        ItemId {
            topic_id: self.topic_id,
            partition: self.partition,
            unclean_epoch: self.unclean_epoch,
            first_offset: self.first_offset,
        }
    }

    /// The epoch a record was written in.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self
            .epochs
            .partition_point(|began| began.start_offset <= offset);
        Some(self.epochs[after.checked_sub(1)?].epoch)
    }

    /// The end of the records from `first` on that it already holds: an offset and its epoch name one record only.
    fn holds_until(&self, first: Offset, end: Offset, epochs: &[Began]) -> Offset {
        let until = self.end_offset.min(end);
        if !self.complete || self.first_offset > first || until <= first {
            return first;
        }
        let (held, asked) = (
            epochs_of(&self.epochs, first, until),
            epochs_of(epochs, first, until),
        );
        let mut places = 0..held.len().max(asked.len());
        let parted = places.find(|place| held.get(*place) != asked.get(*place));
        let starts = |place: usize| {
            let there = [held.get(place), asked.get(place)].into_iter().flatten();
            there.map(|began: &Began| began.start_offset).min()
        };
        parted.and_then(starts).unwrap_or(until)
    }

    /// Whether `other` has all that this one has, and perhaps more.
    fn is_beginning_of(&self, other: &Self) -> bool {
        let (first, end) = (self.first_offset, self.end_offset);
        other.first_offset == first
            && other.end_offset >= end
            && other.bytes >= self.bytes
            && epochs_of(&self.epochs, first, end) == epochs_of(&other.epochs, first, end)
    }

    fn to_text(&self) -> Vec<u8> {
        let json = serde_json::to_string(self).expect("an item holds nothing JSON cannot say");
        let crc = crc32c::crc32c(json.as_bytes());
        format!("{MAGIC} {VERSION}\n{json}\n{crc:08x}\n").into_bytes()
    }

    fn from_text(bytes: &[u8]) -> Result<Self, BadItem> {
        let text = std::str::from_utf8(bytes).map_err(|_| BadItem::Damaged)?;
        let mut lines = text.lines();
        let version: u16 = lines
            .next()
            .and_then(|line| line.strip_prefix(MAGIC)?.trim().parse().ok())
            .ok_or(BadItem::Damaged)?;
        if version > VERSION {
            return Err(BadItem::Newer { version });
        }
        let json = lines.next().ok_or(BadItem::Damaged)?;
        let crc = lines
            .next()
            .and_then(|line| u32::from_str_radix(line, 16).ok());
        if crc != Some(crc32c::crc32c(json.as_bytes())) {
            return Err(BadItem::Damaged);
        }
        serde_json::from_str(json).map_err(|_| BadItem::Damaged)
    }
}

/// Why an item cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadItem {
    /// Its description is not what was written.
    #[error("its description is damaged")]
    Damaged,
    /// A newer program wrote it.
    #[error("its description has version {version}, this program knows versions up to {VERSION}")]
    Newer {
        /// The version it has.
        version: u16,
    },
}

/// Why something is set aside.
#[derive(Clone, Copy, Debug)]
pub struct Cause<'a> {
    pub topic: &'a str,
    pub topic_id: TopicId,
    pub partition: PartitionIndex,
    /// The leader epoch of the unclean election.
    pub unclean_epoch: LeaderEpoch,
    /// The same in words.
    pub words: &'a str,
    pub now: Timestamp,
}

/// What setting aside may cost.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    /// The largest item, in bytes.
    pub item_bytes: u64,
    /// Whether copying may go on. Asked after each chunk; naming files is not copying.
    pub in_time: &'a dyn Fn() -> bool,
}

impl std::fmt::Debug for Bounds<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bounds")
            .field("item_bytes", &self.item_bytes)
            .finish_non_exhaustive()
    }
}

/// What became of it.
#[derive(Debug)]
pub enum Aside {
    /// It is set aside now.
    Kept(Item),
    /// It had been already: by a process that ended before it could cut.
    KeptBefore(Item),
    /// Nothing could be kept within the bounds.
    OutOfBounds,
    /// The disk did not take it. The cut goes on.
    Failed(io::Error),
}

/// The part of a log that will be cut.
pub(crate) struct Source<'a, D: Dir> {
    pub(crate) dir: &'a D,
    pub(crate) segments: &'a [Segment<D>],
    pub(crate) epochs: &'a LeaderEpochs,
    pub(crate) first: Offset,
    pub(crate) end: Offset,
}

/// Makes an item of `source` in `into`, without the beginning that other items hold already.
pub(crate) fn set_aside<D: Dir>(
    source: &Source<'_, D>,
    cause: &Cause<'_>,
    into: &D,
    bounds: Bounds<'_>,
) -> Aside {
    try_set_aside(source, cause, into, bounds).unwrap_or_else(Aside::Failed)
}

fn try_set_aside<D: Dir>(
    source: &Source<'_, D>,
    cause: &Cause<'_>,
    into: &D,
    bounds: Bounds<'_>,
) -> io::Result<Aside> {
    let all = began(source.epochs);
    let mut item = Item {
        topic: cause.topic.to_owned(),
        topic_id: cause.topic_id,
        partition: cause.partition,
        unclean_epoch: cause.unclean_epoch,
        first_offset: source.first,
        end_offset: source.first,
        bytes: 0,
        complete: true,
        epochs: Vec::new(),
        cause: cause.words.to_owned(),
        created_at: cause.now,
        parts: Vec::new(),
    };
    let earlier = of_partition(into, cause.topic_id, cause.partition)?;
    // An item of the same name is no other one: a longer one takes its place.
    while let Some((until, holder)) = earlier
        .iter()
        .map(|earlier| {
            (
                earlier.holds_until(item.first_offset, source.end, &all),
                earlier,
            )
        })
        .filter(|(until, earlier)| *until == source.end || earlier.id() != item.id())
        .max_by_key(|(until, _)| *until)
        .filter(|(until, _)| *until > item.first_offset)
    {
        if until == source.end {
            return Ok(Aside::KeptBefore(holder.clone()));
        }
        item.first_offset = until;
        item.end_offset = until;
    }
    item.epochs = epochs_of(&all, item.first_offset, source.end);
    let source = &Source {
        first: item.first_offset,
        ..*source
    };
    let name = item.id().to_string();
    let unfinished = format!("{name}{TEMPORARY}");
    if into.create()? {
        into.sync_parent()?;
    }
    let dir = into.subdirectory(&unfinished);
    if dir.exists()? {
        into.remove_all(&unfinished)?;
    }
    dir.create()?;
    let kept = fill(source, &dir, &mut item, bounds)
        .and_then(|()| write_atomically(&dir, ITEM, &item.to_text()));
    if kept.is_err() || item.parts.is_empty() {
        // What is left of it is removed at the next start at the latest.
        let _ = into.remove_all(&unfinished);
        return kept.map(|()| Aside::OutOfBounds);
    }
    let namesake = earlier.iter().find(|earlier| earlier.id() == item.id());
    if let Some(namesake) = namesake.filter(|namesake| !namesake.is_beginning_of(&item)) {
        into.remove_all(&unfinished)?;
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("the item {} has other records", namesake.id()),
        ));
    }
    if into.subdirectory(&name).exists()? {
        // Without a description it is an item that is being deleted; with one that cannot be read its records are kept.
        let is_unreadable =
            namesake.is_none() && into.subdirectory(&name).read_file(ITEM)?.is_some();
        if is_unreadable {
            keep_unreadable(into, &name)?;
        } else {
            into.remove_all(&name)?;
        }
    }
    into.rename(&unfinished, &name)?;
    into.sync()?;
    Ok(Aside::Kept(item))
}

/// Gives an item that cannot be read another name, which nothing of ours ever removes: its own is needed.
fn keep_unreadable<D: Dir>(dir: &D, name: &str) -> io::Result<()> {
    let mut number = 0;
    let kept = loop {
        let kept = format!("{name}.{number}{UNREADABLE}");
        if !dir.subdirectory(&kept).exists()? {
            break kept;
        }
        number += 1;
    };
    dir.rename(name, &kept)?;
    tracing::warn!(
        dir = dir.path(),
        item = name,
        kept,
        "a salvaged item that cannot be read is renamed, because other records need its name"
    );
    Ok(())
}

/// Puts the batches into `dir`, oldest first.
fn fill<D: Dir>(
    source: &Source<'_, D>,
    dir: &D,
    item: &mut Item,
    bounds: Bounds<'_>,
) -> io::Result<()> {
    for segment in source.segments {
        if segment.next <= source.first || segment.size == 0 {
            continue;
        }
        let room = bounds.item_bytes.saturating_sub(item.bytes);
        let is_whole = segment.base >= source.first;
        let mut part = None;
        if is_whole && segment.size <= room {
            part = link(source.dir, segment, dir)?;
        }
        let kept = match part {
            Some(part) => Some((part, segment.next)),
            None if item.bytes > 0 && !(bounds.in_time)() => None,
            None => copy(segment, source.first, dir, room, bounds.in_time)?,
        };
        let Some((part, end)) = kept else {
            item.complete = false;
            continue;
        };
        item.complete &= end == segment.next;
        item.bytes += part.bytes;
        item.end_offset = end;
        item.parts.push(part);
    }
    Ok(())
}

/// Gives a whole segment a second name; `None` if the file system cannot.
fn link<D: Dir>(from: &D, segment: &Segment<D>, dir: &D) -> io::Result<Option<Part>> {
    let name = file_name(segment.base, LOG);
    match from.link(&name, dir, &name) {
        Ok(()) => Ok(Some(Part {
            name,
            bytes: segment.size,
        })),
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(error),
        Err(error) => {
            tracing::debug!(%error, dir = dir.path(), "a file cannot get a second name; it is copied");
            Ok(None)
        }
    }
}

/// Copies whole batches from the one that holds `first` on; answers with where they end. `None` if not one fits.
fn copy<D: Dir>(
    segment: &Segment<D>,
    first: Offset,
    dir: &D,
    room: u64,
    in_time: &dyn Fn() -> bool,
) -> io::Result<Option<(Part, Offset)>> {
    let found = segment.find(first).map_err(|error| match error {
        crate::segment::SegmentError::Io(error) => error,
        crate::segment::SegmentError::Corrupt(offset) => damaged_at(offset),
    })?;
    let Some(begin) = found else {
        return Ok(None);
    };
    let name = file_name(begin.view().base_offset(), LOG);
    let mut scan = Scan::new(&*segment.log, begin.position, segment.size);
    let mut file = None;
    let (mut written, mut until, mut chunk) = (0, first, Vec::new());
    loop {
        let batch = match scan.next_batch()? {
            Step::Batch(batch) => Some(batch),
            Step::Bad(_) | Step::End => None,
        };
        let fits = batch.filter(|batch| {
            chunk.len() as u64 + written + batch.size() as u64 <= room
                && (chunk.len() < CHUNK || in_time())
        });
        let is_last = fits.is_none();
        if (is_last || chunk.len() >= CHUNK) && !chunk.is_empty() {
            let file = match &file {
                Some(file) => file,
                None => file.insert(dir.create_file(&name)?),
            };
            file.write_at(&chunk, written)?;
            file.sync_data()?;
            written += chunk.len() as u64;
            chunk.clear();
        }
        let Some(batch) = fits else {
            break;
        };
        until = batch.next_offset();
        chunk.extend_from_slice(batch.as_bytes());
    }
    Ok((written > 0).then_some((
        Part {
            name,
            bytes: written,
        },
        until,
    )))
}

fn damaged_at(offset: Offset) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the log is damaged at offset {offset}"),
    )
}

/// The epochs of a log, as items tell them.
fn began(epochs: &LeaderEpochs) -> Vec<Began> {
    let entries = epochs.entries().iter();
    entries
        .map(|entry| Began {
            epoch: entry.epoch,
            start_offset: entry.start,
        })
        .collect()
}

/// The epochs of the records in `[first, end)`.
fn epochs_of(all: &[Began], first: Offset, end: Offset) -> Vec<Began> {
    let mut within: Vec<Began> = Vec::new();
    for began in all.iter().filter(|began| began.start_offset < end) {
        let start_offset = began.start_offset.max(first);
        // An epoch that ends before `first`, or has no record, gives way to the one after it.
        within.retain(|earlier| earlier.start_offset < start_offset);
        within.push(Began {
            epoch: began.epoch,
            start_offset,
        });
    }
    within
}

/// Every item in `dir`, in the order of the ids; those that cannot be read are told of and left alone.
///
/// # Errors
/// If the directory cannot be read.
pub fn items<D: Dir>(dir: &D) -> io::Result<Vec<Item>> {
    find(dir, |_| true)
}

fn of_partition<D: Dir>(
    dir: &D,
    topic_id: TopicId,
    partition: PartitionIndex,
) -> io::Result<Vec<Item>> {
    find(dir, |id| {
        id.topic_id == topic_id && id.partition == partition
    })
}

fn find<D: Dir>(dir: &D, wanted: impl Fn(&ItemId) -> bool) -> io::Result<Vec<Item>> {
    if !dir.exists()? {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in dir.list()?.into_iter().filter(|entry| entry.is_dir) {
        let Some(id) = entry.name.parse().ok().filter(&wanted) else {
            continue;
        };
        match dir.subdirectory(&entry.name).read_file(ITEM) {
            Ok(Some(bytes)) => match Item::from_text(&bytes) {
                Ok(item) if item.id() == id => found.push(item),
                Ok(_) => warn_of(dir, &entry.name, &BadItem::Damaged),
                Err(error) => warn_of(dir, &entry.name, &error),
            },
            // It is being deleted.
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    found.sort_by_key(Item::id);
    Ok(found)
}

fn warn_of<D: Dir>(dir: &D, name: &str, error: &BadItem) {
    tracing::warn!(dir = dir.path(), item = name, %error, "a salvaged item is left alone");
}

/// Removes what a process that ended too early has left: items that are not finished, and not wholly deleted ones. Called
/// before any log is open.
///
/// # Errors
/// If the disk fails.
pub fn tidy<D: Dir>(dir: &D) -> io::Result<()> {
    if !dir.exists()? {
        return Ok(());
    }
    for entry in dir.list()?.into_iter().filter(|entry| entry.is_dir) {
        let (name, unfinished) = match entry.name.strip_suffix(TEMPORARY) {
            Some(name) => (name, true),
            None => (entry.name.as_str(), false),
        };
        let is_ours = name.parse::<ItemId>().is_ok();
        let gone = || -> io::Result<bool> {
            Ok(unfinished || dir.subdirectory(&entry.name).read_file(ITEM)?.is_none())
        };
        if is_ours && gone()? {
            dir.remove_all(&entry.name)?;
        }
    }
    Ok(())
}

/// Deletes an item; `false` if there is none of that name.
///
/// # Errors
/// If the disk fails; what is left of it is removed at the next start.
pub fn remove<D: Dir>(dir: &D, id: &ItemId) -> io::Result<bool> {
    let name = id.to_string();
    let inside = dir.subdirectory(&name);
    if !inside.exists()? {
        return Ok(false);
    }
    // Without its description it is no item any more.
    match inside.remove(ITEM) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => inside.sync()?,
    }
    dir.remove_all(&name)?;
    dir.sync()?;
    Ok(true)
}

/// Forgets the items of which nothing has been cut: their process ended between the two, and all of it still stands in
/// `log`. It is set aside again when it is cut. Called when the log has been opened.
///
/// # Errors
/// If the disk fails.
pub fn forget_uncut<D: Dir>(
    dir: &D,
    topic_id: TopicId,
    partition: PartitionIndex,
    log: &Log<D>,
) -> io::Result<Vec<Item>> {
    let mut forgotten = Vec::new();
    for item in of_partition(dir, topic_id, partition)? {
        let epochs = began(log.leader_epochs());
        let stands = log.start_offset() <= item.first_offset
            && log.end_offset() >= item.end_offset
            && epochs_of(&epochs, item.first_offset, item.end_offset) == item.epochs;
        if stands {
            remove(dir, &item.id())?;
            forgotten.push(item);
        }
    }
    Ok(forgotten)
}
