//! What a restart finds in a log's directory, and what it makes of it.

use kuorum_protocol::Offset;

/// Bytes below the known flushed end that are not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// The first offset that is lost.
    pub at: Offset,
    /// What is wrong.
    pub reason: String,
}

/// The unflushed end of a log, cut away because it was not written whole.
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
    /// Bytes read and checked.
    pub scanned_bytes: u64,
    /// Bytes that were not zero and were cut away.
    pub truncated_bytes: u64,
    /// The unflushed end was torn; nothing that was claimed is lost.
    pub torn: Option<TornTail>,
    /// Data that had been claimed is damaged: the replica is not intact.
    pub corruption: Option<Corruption>,
}
