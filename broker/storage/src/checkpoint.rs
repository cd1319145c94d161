//! Small files that are replaced as a whole, and Kafka's text checkpoints of an offset per partition among them.
//! Law: after a power cut a file is the old one or the new one, never a mixture.

use std::io;

use kuorum_protocol::{Offset, PartitionIndex};

use crate::dir::{Dir, DirFile};

/// Everything below was flushed.
pub const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
/// Where logs begin.
pub const LOG_STARTS: &str = "log-start-offset-checkpoint";
/// High watermarks.
pub const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";

/// The ending of files that are being written.
pub(crate) const TEMPORARY: &str = ".tmp";

/// Replaces the file `name`: written beside it, flushed, renamed, and the rename flushed.
///
/// # Errors
/// Whatever the disk says; the old file is then still there, or the new one.
pub fn write_atomically<D: Dir>(dir: &D, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}{TEMPORARY}");
    let file = dir.create_file(&temporary)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    dir.rename(&temporary, name)?;
    dir.sync()
}

/// One line of a checkpoint: a partition and its offset.
pub type OffsetLine = (String, PartitionIndex, Offset);

/// The text of a checkpoint: version 0, the number of lines, then `topic partition offset`.
pub fn offsets_to_text(lines: &[OffsetLine]) -> String {
    let mut text = format!("0\n{}\n", lines.len());
    for (topic, partition, offset) in lines {
        text.push_str(&format!("{topic} {partition} {offset}\n"));
    }
    text
}

/// Reads the text of a checkpoint; `None` if it is not one, or not whole.
pub fn offsets_from_text(text: &str) -> Option<Vec<OffsetLine>> {
    let mut lines = text.lines();
    if lines.next()?.trim() != "0" {
        return None;
    }
    let count: usize = lines.next()?.trim().parse().ok()?;
    let mut offsets = Vec::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let topic = words.next()?.to_owned();
        let partition = words.next()?.parse().ok()?;
        let offset = Offset(words.next()?.parse().ok()?);
        if words.next().is_some() {
            return None;
        }
        offsets.push((topic, partition, offset));
    }
    (offsets.len() == count).then_some(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_kafkas() {
        let lines = vec![
            ("a".to_owned(), 0, Offset(12)),
            ("b-c".to_owned(), 7, Offset(0)),
        ];
        let text = offsets_to_text(&lines);
        assert_eq!(text, "0\n2\na 0 12\nb-c 7 0\n");
        assert_eq!(offsets_from_text(&text), Some(lines));
        for bad in [
            "",
            "0\n",
            "1\n0\n",
            "0\n2\na 0 1\n",
            "0\n1\na 0\n",
            "0\n1\na 0 1 2\n",
            "0\nx\n",
        ] {
            assert_eq!(offsets_from_text(bad), None, "{bad:?}");
        }
    }
}
