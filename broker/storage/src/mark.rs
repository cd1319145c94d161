//! Single offsets that a log keeps beside its segments: where it begins, and what no longer counts as flushed.
//! Law: a mark is whole or it is damaged, which its CRC tells; what a damaged one means is for its reader to say.

use std::io;

use kuorum_protocol::Offset;

use crate::checkpoint::write_atomically;
use crate::dir::{Dir, DirFile};

const VERSION: u16 = 1;

/// One kind of mark: its file and what that begins with.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) name: &'static str,
    magic: &'static [u8; 4],
}

/// Takes back what a recovery-point checkpoint may still say: nothing at or above its offset counts as flushed, because
/// the log was cut there after the checkpoint was written.
pub(crate) const FLOOR: Mark = Mark {
    name: "truncation-floor",
    magic: b"KUTF",
};

/// Where the log begins. It is raised before the segments below it are deleted, so a log whose first segment begins above
/// it has lost one.
pub(crate) const START: Mark = Mark {
    name: "log-start",
    magic: b"KULS",
};

/// What a mark's file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marked {
    /// There is no such file.
    Absent,
    /// It is not what was written.
    Damaged,
    /// A newer program wrote it.
    Newer {
        version: u16,
        known: u16,
    },
    At(Offset),
}

impl Mark {
    fn bytes(&self, offset: Offset) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend_from_slice(&VERSION.to_be_bytes());
        bytes.extend_from_slice(&offset.0.to_be_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_be_bytes());
        bytes
    }

    /// Replaces the mark; durable when it returns.
    pub(crate) fn write<D: Dir>(&self, dir: &D, offset: Offset) -> io::Result<()> {
        write_atomically(dir, self.name, &self.bytes(offset))
    }

    /// Makes a mark where no sound one is: durable once the file and the directory are synced, damaged or absent before.
    pub(crate) fn create<D: Dir>(&self, dir: &D, offset: Offset) -> io::Result<()> {
        dir.create_file(self.name)?.write_at(&self.bytes(offset), 0)
    }

    pub(crate) fn read<D: Dir>(&self, dir: &D) -> io::Result<Marked> {
        let Some(bytes) = dir.read_file(self.name)? else {
            return Ok(Marked::Absent);
        };
        let Some((content, crc)) = bytes.split_last_chunk::<4>() else {
            return Ok(Marked::Damaged);
        };
        if content.len() < 6 || content[..4] != *self.magic {
            return Ok(Marked::Damaged);
        }
        let version = u16::from_be_bytes([content[4], content[5]]);
        if version > VERSION {
            return Ok(Marked::Newer {
                version,
                known: VERSION,
            });
        }
        let sound = u32::from_be_bytes(*crc) == crc32c::crc32c(content);
        let offset = content[6..].first_chunk::<8>().filter(|_| sound);
        Ok(offset.map_or(Marked::Damaged, |bytes| {
            Marked::At(Offset(i64::from_be_bytes(*bytes)))
        }))
    }

    pub(crate) fn remove<D: Dir>(&self, dir: &D) -> io::Result<()> {
        match dir.remove(self.name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
