//! What lies in an item: counted, and read record by record.
//! Law: reads only. A batch counts if it is sound and of the epoch that the item says; control batches, aborted transactions
//! and those without an end are not records. A record's index is its place among those that count, and never changes.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;

use bytes::Bytes;
use kuorum_protocol::record::{
    BatchView, Codec, ControlType, DecompressLimit, Record, RecordsReader,
};
use kuorum_protocol::{LeaderEpoch, Offset, ProducerId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Item, ItemId};
use crate::dir::{Dir, DirFile};
use crate::scan::{BatchHeader, Scan, Step};

/// Marks lie at least so many bytes apart.
const STRIDE: u64 = 256 * 1024;
/// There are about so many marks at most.
const MARKS: u64 = 1_000;

/// What an item holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Records that count.
    pub records: u64,
    /// The lowest timestamp of their batches, by their first records.
    pub first_timestamp: Option<Timestamp>,
    /// The highest timestamp.
    pub last_timestamp: Option<Timestamp>,
    /// Transactions whose records do not count.
    pub skipped: Vec<Skipped>,
    /// Places from which a walk may begin, rising.
    pub marks: Vec<Mark>,
    /// How many bytes of each file count.
    pub sound: Vec<u64>,
    /// The first place where its bytes are not what was set aside: the rest of that file does not count.
    pub damage: Option<Damage>,
}

/// A transaction that was aborted, or whose end is not in the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub producer_id: ProducerId,
    /// Its first batch here.
    pub from: Offset,
    /// Its marker; `None` if there is none.
    pub until: Option<Offset>,
}

/// A batch that counts, by its place and its first record's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub index: u64,
    pub part: usize,
    pub position: u64,
}

/// Bytes that are not what was set aside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    pub part: String,
    pub position: u64,
    pub reason: String,
}

/// One record, and how the batch it came in was compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    pub index: u64,
    pub record: Record,
    pub codec: Codec,
    pub leader_epoch: LeaderEpoch,
}

/// An item's files.
#[derive(Clone, Debug)]
pub struct Contents<D: Dir> {
    dir: D,
    item: Item,
}

impl<D: Dir> Contents<D> {
    /// The files of `item`, which lies in the salvage directory `dir`.
    pub fn of(dir: &D, item: Item) -> Self {
        Self {
            dir: dir.subdirectory(&item.id().to_string()),
            item,
        }
    }

    /// The item.
    pub fn item(&self) -> &Item {
        &self.item
    }

    /// The item's name.
    pub fn id(&self) -> ItemId {
        self.item.id()
    }

    /// Reads all of it and counts.
    ///
    /// # Errors
    /// If the disk fails or a file is missing.
    pub fn summarise(&self) -> io::Result<Summary> {
        let mut summary = Summary::default();
        self.check(&mut summary)?;
        let stride = STRIDE.max(self.item.bytes / MARKS);
        let mut since_mark = stride;
        for part in 0..self.item.parts.len() {
            let file = self.dir.open(&self.item.parts[part].name)?;
            let mut scan = Scan::new(&file, 0, summary.sound[part]);
            while let Step::Batch(header) = scan.next_header()? {
                let count = self.counted(&file, &header, &summary.skipped)?;
                if count == 0 {
                    continue;
                }
                let batch = header.view();
                if since_mark >= stride {
                    since_mark = 0;
                    summary.marks.push(Mark {
                        index: summary.records,
                        part,
                        position: header.position,
                    });
                }
                since_mark += header.size;
                summary.records += count;
                let (first, last) = (batch.base_timestamp(), batch.max_timestamp());
                summary.first_timestamp =
                    Some(summary.first_timestamp.map_or(first, |at| at.min(first)));
                summary.last_timestamp = summary.last_timestamp.max(Some(last));
            }
        }
        Ok(summary)
    }

    /// Notes how many bytes of each file are sound, the damage, and the transactions that do not count.
    fn check(&self, summary: &mut Summary) -> io::Result<()> {
        let mut open: HashMap<ProducerId, Offset> = HashMap::new();
        for part in &self.item.parts {
            let file = self.dir.open(&part.name)?;
            let length = file.len()?.min(part.bytes);
            let mut scan = Scan::new(&file, 0, length);
            let mut reason = None;
            let mut sound = 0;
            loop {
                let batch = match scan.next_batch()? {
                    Step::Batch(batch) => batch,
                    Step::Bad(why) => {
                        reason = Some(why);
                        break;
                    }
                    Step::End if length < part.bytes => {
                        reason = Some("the file is shorter than it was");
                        break;
                    }
                    Step::End => break,
                };
                let at = batch.base_offset().max(self.item.first_offset);
                if self.item.epoch_at(at) != Some(batch.leader_epoch()) {
                    reason = Some("a batch of another history");
                    break;
                }
                sound += batch.size() as u64;
                if batch.is_control() {
                    if let Some((began, abort)) = ended(&batch, &mut open)
                        && abort
                    {
                        summary.skipped.push(Skipped {
                            producer_id: batch.producer_id(),
                            from: began,
                            until: Some(batch.base_offset()),
                        });
                    }
                } else if batch.is_transactional() {
                    open.entry(batch.producer_id())
                        .or_insert(batch.base_offset());
                }
            }
            if let Some(reason) = reason
                && summary.damage.is_none()
            {
                summary.damage = Some(Damage {
                    part: part.name.clone(),
                    position: sound,
                    reason: reason.to_owned(),
                });
            }
            summary.sound.push(sound);
        }
        let endless = open.into_iter().map(|(producer_id, from)| Skipped {
            producer_id,
            from,
            until: None,
        });
        summary.skipped.extend(endless);
        summary
            .skipped
            .sort_by_key(|skipped| (skipped.from, skipped.producer_id));
        Ok(())
    }

    /// How many records of a batch count.
    fn counted(
        &self,
        file: &D::File,
        header: &BatchHeader,
        skipped: &[Skipped],
    ) -> io::Result<u64> {
        let batch = header.view();
        if batch.is_control()
            || batch.next_offset() <= self.item.first_offset
            || is_skipped(&batch, skipped)
        {
            return Ok(0);
        }
        if batch.base_offset() >= self.item.first_offset {
            return Ok(u64::from(batch.record_count().unsigned_abs()));
        }
        // The log began inside of this batch (DeleteRecords).
        let records = read_records(file, header)?;
        let first = self.item.first_offset;
        Ok(records
            .iter()
            .filter(|record| record.offset >= first)
            .count() as u64)
    }

    /// Shows the records that count from the one with `index` on, until `visit` breaks.
    ///
    /// # Errors
    /// If the disk fails or bytes are not what they were when `summary` was made.
    pub fn visit(
        &self,
        summary: &Summary,
        index: u64,
        mut visit: impl FnMut(Visit) -> ControlFlow<()>,
    ) -> io::Result<()> {
        let after = summary.marks.partition_point(|mark| mark.index <= index);
        let Some(mark) = after.checked_sub(1).map(|at| summary.marks[at]) else {
            return Ok(());
        };
        let (mut reached, mut position) = (mark.index, mark.position);
        for (part, sound) in self.item.parts.iter().zip(&summary.sound).skip(mark.part) {
            let file = self.dir.open(&part.name)?;
            let mut scan = Scan::new(&file, position, *sound);
            position = 0;
            loop {
                if reached >= summary.records {
                    return Ok(());
                }
                let header = match scan.next_header()? {
                    Step::Batch(header) => header,
                    Step::Bad(reason) => {
                        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
                    }
                    Step::End => break,
                };
                let count = self.counted(&file, &header, &summary.skipped)?;
                if reached + count <= index || count == 0 {
                    reached += count;
                    continue;
                }
                let batch = header.view();
                let (codec, leader_epoch) = (batch.compression(), batch.leader_epoch());
                for record in read_records(&file, &header)? {
                    if record.offset < self.item.first_offset {
                        continue;
                    }
                    let at = reached;
                    reached += 1;
                    if at < index {
                        continue;
                    }
                    let shown = visit(Visit {
                        index: at,
                        record,
                        codec,
                        leader_epoch,
                    });
                    if shown.is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// The raw batches, all files one after the other: at most `max_bytes` from byte `from` on.
    ///
    /// # Errors
    /// If the disk fails or a file is missing.
    pub fn raw(&self, from: u64, max_bytes: usize) -> io::Result<Bytes> {
        let mut bytes = Vec::new();
        let mut begin = 0;
        for part in &self.item.parts {
            let end = begin + part.bytes;
            let at = from + bytes.len() as u64;
            if at < end && bytes.len() < max_bytes {
                let wanted = (end - at).min((max_bytes - bytes.len()) as u64) as usize;
                let mut chunk = vec![0; wanted];
                let read = self
                    .dir
                    .open(&part.name)?
                    .read_full_at(&mut chunk, at - begin)?;
                chunk.truncate(read);
                bytes.extend_from_slice(&chunk);
                if read < wanted {
                    break;
                }
            }
            begin = end;
        }
        Ok(bytes.into())
    }
}

/// What a control batch ends: where the transaction began, and whether it was given up.
fn ended(batch: &BatchView<'_>, open: &mut HashMap<ProducerId, Offset>) -> Option<(Offset, bool)> {
    let marker = RecordsReader::copying(batch, DecompressLimit::PRODUCED)
        .ok()?
        .next()?
        .ok()?;
    let abort = match ControlType::of_record(&marker)? {
        ControlType::Abort => true,
        ControlType::Commit => false,
        ControlType::Unknown(_) => return None,
    };
    Some((open.remove(&batch.producer_id())?, abort))
}

fn is_skipped(batch: &BatchView<'_>, skipped: &[Skipped]) -> bool {
    batch.is_transactional()
        && skipped.iter().any(|skipped| {
            skipped.producer_id == batch.producer_id()
                && skipped.from <= batch.base_offset()
                && skipped
                    .until
                    .is_none_or(|until| batch.base_offset() < until)
        })
}

fn read_records<F: DirFile>(file: &F, header: &BatchHeader) -> io::Result<Vec<Record>> {
    let invalid =
        |reason: String| io::Error::new(io::ErrorKind::InvalidData, format!("a batch: {reason}"));
    let mut bytes = vec![0; header.size as usize];
    file.read_full_at(&mut bytes, header.position)?;
    if !BatchView::parse(&bytes).is_ok_and(|batch| batch.crc_is_valid()) {
        return Err(invalid("its CRC does not match its bytes".to_owned()));
    }
    RecordsReader::new(&Bytes::from(bytes), DecompressLimit::PRODUCED)
        .map_err(|error| invalid(error.to_string()))?
        .collect::<Result<_, _>>()
        .map_err(|error| invalid(error.to_string()))
}
