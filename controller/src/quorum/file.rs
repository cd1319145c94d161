//! The small files of the quorum: a line that says what they are, and a body.
//! Law: a file begins with its magic, format version, CRC-32C and length; it is replaced whole or not at all.

use std::io;

use kuorum_storage::{Dir, write_atomically};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a file holds and in which format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The file's name.
    pub name: &'static str,
    /// The first word in it.
    pub magic: &'static str,
    /// The newest format known here.
    pub version: u16,
}

/// The last vote given.
pub(crate) const VOTE: Kind = Kind {
    name: "vote",
    magic: "KUORUM-VOTE",
    version: 1,
};
/// The last entry that was removed from the beginning of the log.
pub(crate) const PURGED: Kind = Kind {
    name: "purged",
    magic: "KUORUM-PURGED",
    version: 1,
};
/// An index: every entry below it was durable once.
pub(crate) const DURABLE: Kind = Kind {
    name: "durable-end",
    magic: "KUORUM-DURABLE-END",
    version: 1,
};
/// Why the log is not what it promised to be. It never is again: whoever finds this does not run.
pub(crate) const DAMAGE: Kind = Kind {
    name: "damage",
    magic: "KUORUM-DAMAGE",
    version: 1,
};
/// The last snapshot.
pub(crate) const SNAPSHOT: Kind = Kind {
    name: "snapshot",
    magic: "KUORUM-SNAPSHOT",
    version: 1,
};

impl Kind {
    /// Puts the head before a body.
    pub(crate) fn seal(&self, body: &[u8]) -> Vec<u8> {
        let mut bytes = format!(
            "{} {} {:08x} {}\n",
            self.magic,
            self.version,
            crc32c(body),
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }

    /// Checks the head and returns the body.
    pub(crate) fn open<'a>(&self, bytes: &'a [u8]) -> io::Result<&'a [u8]> {
        let damaged = |why: &str| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the file {:?} is damaged: {why}", self.name),
            )
        };
        let end = bytes
            .iter()
            .position(|&byte| byte == b'\n')
            .ok_or_else(|| damaged("its first line has no end"))?;
        let head = std::str::from_utf8(&bytes[..end])
            .map_err(|_| damaged("its first line is not text"))?;
        let body = &bytes[end + 1..];
        let mut words = head.split(' ');
        if words.next() != Some(self.magic) {
            return Err(damaged("it does not begin with its name"));
        }
        let version: u16 = words
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| damaged("it does not say its version"))?;
        if version > self.version {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "the file {:?} has format {version}, this program knows formats up to {}: start the newer program again",
                    self.name, self.version
                ),
            ));
        }
        let crc = words
            .next()
            .and_then(|word| u32::from_str_radix(word, 16).ok())
            .ok_or_else(|| damaged("it has no checksum"))?;
        let length: usize = words
            .next()
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| damaged("it does not say its length"))?;
        if length != body.len() {
            return Err(damaged("it is cut off"));
        }
        if crc != crc32c(body) {
            return Err(damaged("its checksum does not match"));
        }
        Ok(body)
    }

    /// Replaces the file durably.
    pub(crate) fn write<D: Dir>(&self, dir: &D, body: &[u8]) -> io::Result<()> {
        write_atomically(dir, self.name, &self.seal(body))
    }

    /// Reads the file; `None` if there is none.
    pub(crate) fn read<D: Dir>(&self, dir: &D) -> io::Result<Option<Vec<u8>>> {
        match dir.read_file(self.name)? {
            None => Ok(None),
            Some(bytes) => Ok(Some(self.open(&bytes)?.to_vec())),
        }
    }

    /// Replaces the file durably with a JSON body.
    pub(crate) fn write_json<D: Dir, T: Serialize>(&self, dir: &D, value: &T) -> io::Result<()> {
        self.write(dir, &serde_json::to_vec(value)?)
    }

    /// Reads a file with a JSON body.
    pub(crate) fn read_json<D: Dir, T: DeserializeOwned>(&self, dir: &D) -> io::Result<Option<T>> {
        match self.read(dir)? {
            None => Ok(None),
            Some(body) => Ok(Some(serde_json::from_slice(&body)?)),
        }
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_what_it_was_is_refused_by_name() {
        let sealed = VOTE.seal(b"{\"term\":3}");
        assert_eq!(VOTE.open(&sealed).unwrap(), b"{\"term\":3}");
        let text = String::from_utf8(sealed.clone()).unwrap();
        let rows: [(Vec<u8>, &str); 6] = [
            (Vec::new(), "no end"),
            (sealed[..sealed.len() - 1].to_vec(), "cut off"),
            (text.replace("term", "turm").into_bytes(), "checksum"),
            (text.replace("VOTE", "BOAT").into_bytes(), "its name"),
            (
                text.replace("VOTE 1", "VOTE 2").into_bytes(),
                "newer program",
            ),
            (text.replace("VOTE 1", "VOTE x").into_bytes(), "version"),
        ];
        for (bytes, reason) in rows {
            let error = VOTE.open(&bytes).unwrap_err().to_string();
            assert!(error.contains(reason), "{error:?} does not say {reason:?}");
            assert!(
                error.contains("vote") || bytes.is_empty(),
                "{error:?} names the file"
            );
        }
    }
}
