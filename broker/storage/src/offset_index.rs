//! Where in a segment a batch lies: Kafka's `.index`, entries of (last offset of the batch − base, position), 4 bytes each.
//! Law: a hint, see [`crate::entry_file`]. Position 0 never has an entry, so a zeroed file shows itself.

use std::io;
use std::sync::Arc;

use kuorum_protocol::Offset;

use crate::dir::DirFile;
use crate::entry_file::EntryFile;

/// One entry: the batch whose last record is at `last` begins at byte `position`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) last: Offset,
    pub(crate) position: u64,
}

#[derive(Debug)]
pub(crate) struct OffsetIndex<F: DirFile> {
    base: Offset,
    entries: EntryFile<Arc<F>, 8>,
}

fn relative(entry: &[u8; 8]) -> u32 {
    u32::from_be_bytes([entry[0], entry[1], entry[2], entry[3]])
}

fn position(entry: &[u8; 8]) -> u32 {
    u32::from_be_bytes([entry[4], entry[5], entry[6], entry[7]])
}

impl<F: DirFile> OffsetIndex<F> {
    pub(crate) fn open(file: Arc<F>, base: Offset) -> io::Result<Self> {
        Ok(Self {
            base,
            entries: EntryFile::open(file)?,
        })
    }

    fn place(&self, entry: &[u8; 8]) -> Place {
        Place {
            last: self.base.plus(i64::from(relative(entry))),
            position: position(entry).into(),
        }
    }

    /// Whether the entries can be those of a log file of `log_size` bytes. `deep` looks at every one.
    pub(crate) fn is_plausible(&self, log_size: u64, deep: bool) -> io::Result<bool> {
        let Some(last) = self.entries.last() else {
            return Ok(true);
        };
        let first = self.entries.get(0)?;
        let ends = position(&first) > 0
            && u64::from(position(&last)) < log_size
            && (self.entries.len() == 1 || (relative(&first) < relative(&last)));
        let rises =
            |a: &[u8; 8], b: &[u8; 8]| relative(a) < relative(b) && position(a) < position(b);
        Ok(ends && (!deep || self.entries.all_rise(rises)?))
    }

    /// The last entry whose batch ends at or before `offset`.
    pub(crate) fn lookup(&self, offset: Offset) -> io::Result<Option<Place>> {
        let after = self
            .entries
            .partition_point(|entry| self.base.plus(i64::from(relative(entry))) <= offset)?;
        after
            .checked_sub(1)
            .map(|at| Ok(self.place(&self.entries.get(at)?)))
            .transpose()
    }

    pub(crate) fn last(&self) -> Option<Place> {
        self.entries.last().map(|entry| self.place(&entry))
    }

    /// Adds an entry. The caller rolls segments before an offset or a position does not fit.
    pub(crate) fn push(&mut self, place: Place) -> io::Result<()> {
        if self.last().is_some_and(|last| last.last >= place.last) {
            return Ok(());
        }
        let mut entry = [0; 8];
        entry[..4].copy_from_slice(&((place.last.0 - self.base.0) as u32).to_be_bytes());
        entry[4..].copy_from_slice(&(place.position as u32).to_be_bytes());
        self.entries.push(entry)
    }

    /// Keeps the entries of batches that begin before `size`.
    pub(crate) fn truncate_to_size(&mut self, size: u64) -> io::Result<()> {
        let count = self
            .entries
            .partition_point(|entry| u64::from(position(entry)) < size)?;
        self.entries.truncate(count)
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.entries.size_bytes()
    }

    pub(crate) fn write_pending(&mut self) -> io::Result<()> {
        self.entries.write_pending()
    }

    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.entries.close()
    }

    pub(crate) fn file(&self) -> Arc<F> {
        Arc::clone(self.entries.file())
    }
}
