//! Small files that are replaced as a whole: Kafka's text checkpoints.

use std::io;

use crate::dir::{Dir, DirFile};

/// Replaces the file `name`: written beside it, flushed, renamed, and the rename flushed.
pub fn write_atomically<D: Dir>(dir: &D, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.tmp");
    let file = dir.create_file(&temporary)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    dir.rename(&temporary, name)?;
    dir.sync()
}
