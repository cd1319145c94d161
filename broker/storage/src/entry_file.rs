//! A file of entries of one size in rising order: what both indexes are made of.
//! Law: an index is a hint. It is written lazily and never waited for; whoever uses an entry verifies where it lands,
//! and recovery writes anew what is missing.

use std::io;

use crate::dir::DirFile;

/// Entries kept in memory before they are written together.
const PENDING_ENTRIES: usize = 64;
/// Below this many candidates a search reads them all at once.
const SEARCH_BLOCK: u64 = 64;

/// Entries of `N` bytes.
#[derive(Debug)]
pub(crate) struct EntryFile<F, const N: usize> {
    file: F,
    written: u64,
    pending: Vec<[u8; N]>,
    last: Option<[u8; N]>,
}

impl<F: DirFile, const N: usize> EntryFile<F, N> {
    /// The entries in `file`; bytes after the last whole one are ignored.
    pub(crate) fn open(file: F) -> io::Result<Self> {
        let written = file.len()? / N as u64;
        let mut entries = Self {
            file,
            written,
            pending: Vec::new(),
            last: None,
        };
        entries.last = entries
            .len()
            .checked_sub(1)
            .map(|at| entries.get(at))
            .transpose()?;
        Ok(entries)
    }

    pub(crate) fn len(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.len() * N as u64
    }

    pub(crate) fn last(&self) -> Option<[u8; N]> {
        self.last
    }

    pub(crate) fn get(&self, at: u64) -> io::Result<[u8; N]> {
        if let Some(pending) = at.checked_sub(self.written) {
            return Ok(self.pending[pending as usize]);
        }
        let mut entry = [0; N];
        self.file.read_full_at(&mut entry, at * N as u64)?;
        Ok(entry)
    }

    pub(crate) fn push(&mut self, entry: [u8; N]) -> io::Result<()> {
        self.pending.push(entry);
        self.last = Some(entry);
        if self.pending.len() >= PENDING_ENTRIES {
            self.write_pending()?;
        }
        Ok(())
    }

    pub(crate) fn write_pending(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.file
            .write_at(self.pending.as_flattened(), self.written * N as u64)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// How many entries `keep` holds for; it must hold for a prefix.
    pub(crate) fn partition_point(&self, keep: impl Fn(&[u8; N]) -> bool) -> io::Result<u64> {
        if let Some(first) = self.pending.first()
            && keep(first)
        {
            return Ok(self.written + self.pending.partition_point(keep) as u64);
        }
        let (mut low, mut high) = (0, self.written);
        while high - low > SEARCH_BLOCK {
            let middle = low + (high - low) / 2;
            if keep(&self.get(middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let mut block = vec![[0; N]; (high - low) as usize];
        self.file
            .read_full_at(block.as_flattened_mut(), low * N as u64)?;
        Ok(low + block.partition_point(keep) as u64)
    }

    /// Keeps the first `count` entries.
    pub(crate) fn truncate(&mut self, count: u64) -> io::Result<()> {
        if count >= self.len() {
            return Ok(());
        }
        if count >= self.written {
            self.pending.truncate((count - self.written) as usize);
        } else {
            self.pending.clear();
            self.written = count;
        }
        self.file.set_len(self.written * N as u64)?;
        self.last = count.checked_sub(1).map(|at| self.get(at)).transpose()?;
        Ok(())
    }

    /// Whether `rises` holds between every two neighbours. Reads the whole file.
    pub(crate) fn all_rise(&self, rises: impl Fn(&[u8; N], &[u8; N]) -> bool) -> io::Result<bool> {
        let mut entries = vec![[0; N]; self.written as usize];
        self.file.read_full_at(entries.as_flattened_mut(), 0)?;
        entries.extend_from_slice(&self.pending);
        Ok(entries.windows(2).all(|pair| rises(&pair[0], &pair[1])))
    }

    /// Drops bytes after the last whole entry, writes what is pending and makes all of it durable.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.write_pending()?;
        self.file.set_len(self.written * N as u64)?;
        self.file.sync_data()
    }

    pub(crate) fn file(&self) -> &F {
        &self.file
    }
}
