//! How far a segment's timestamps had risen by which offset: Kafka's `.timeindex`, entries of (timestamp, 8 bytes; offset
//! − base, 4 bytes). Every record before an entry's offset has a timestamp that is not above the entry's.
//! Law: a hint, see [`crate::entry_file`].

use std::io;
use std::sync::Arc;

use kuorum_protocol::{Offset, Timestamp};

use crate::dir::DirFile;
use crate::entry_file::EntryFile;

#[derive(Debug)]
pub(crate) struct TimeIndex<F: DirFile> {
    base: Offset,
    entries: EntryFile<Arc<F>, 12>,
}

fn timestamp(entry: &[u8; 12]) -> i64 {
    i64::from_be_bytes(entry[..8].try_into().expect("eight bytes of twelve"))
}

fn relative(entry: &[u8; 12]) -> u32 {
    u32::from_be_bytes(
        entry[8..]
            .try_into()
            .expect("the last four bytes of twelve"),
    )
}

impl<F: DirFile> TimeIndex<F> {
    pub(crate) fn open(file: Arc<F>, base: Offset) -> io::Result<Self> {
        Ok(Self {
            base,
            entries: EntryFile::open(file)?,
        })
    }

    fn point(&self, entry: &[u8; 12]) -> (Timestamp, Offset) {
        (
            Timestamp(timestamp(entry)),
            self.base.plus(i64::from(relative(entry))),
        )
    }

    /// Whether the entries can be those of a segment. `deep` looks at every one.
    pub(crate) fn is_plausible(&self, deep: bool) -> io::Result<bool> {
        let Some(last) = self.entries.last() else {
            return Ok(true);
        };
        let first = self.entries.get(0)?;
        let ends =
            last != [0; 12] && (self.entries.len() == 1 || timestamp(&first) < timestamp(&last));
        let rises =
            |a: &[u8; 12], b: &[u8; 12]| timestamp(a) < timestamp(b) && relative(a) <= relative(b);
        Ok(ends && (!deep || self.entries.all_rise(rises)?))
    }

    /// The last entry whose timestamp is below `timestamp`: no record up to its offset can be the one looked for.
    pub(crate) fn last_before(&self, wanted: Timestamp) -> io::Result<Option<(Timestamp, Offset)>> {
        let after = self
            .entries
            .partition_point(|entry| timestamp(entry) < wanted.0)?;
        after
            .checked_sub(1)
            .map(|at| Ok(self.point(&self.entries.get(at)?)))
            .transpose()
    }

    pub(crate) fn last(&self) -> Option<(Timestamp, Offset)> {
        self.entries.last().map(|entry| self.point(&entry))
    }

    /// Adds an entry if the timestamp has risen.
    pub(crate) fn push(&mut self, at: Timestamp, offset: Offset) -> io::Result<()> {
        if self
            .last()
            .is_some_and(|(last, last_offset)| last >= at || last_offset > offset)
        {
            return Ok(());
        }
        let mut entry = [0; 12];
        entry[..8].copy_from_slice(&at.0.to_be_bytes());
        entry[8..].copy_from_slice(&((offset.0 - self.base.0) as u32).to_be_bytes());
        self.entries.push(entry)
    }

    /// Keeps the entries of offsets below `end`.
    pub(crate) fn truncate(&mut self, end: Offset) -> io::Result<()> {
        let count = self
            .entries
            .partition_point(|entry| self.base.plus(i64::from(relative(entry))) < end)?;
        self.entries.truncate(count)
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
