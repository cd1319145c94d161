//! Which leader epoch began at which offset (KIP-101), as one replica knows it.
//! Law: pure. Epochs and start offsets both rise strictly from entry to entry; epoch 0 is an epoch like any other.

use kuorum_protocol::{LeaderEpoch, Offset};

/// One epoch and the first offset written in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEntry {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Where it begins.
    pub start: Offset,
}

/// The epochs of one log, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochs {
    /// No epoch yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every epoch, oldest first.
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The newest epoch.
    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|entry| entry.epoch)
    }

    /// The epoch that the record at `offset` was (or would be) written in.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|entry| entry.start <= offset);
        after.checked_sub(1).map(|at| self.entries[at].epoch)
    }

    /// The epoch before `epoch`, if one is known.
    pub fn before(&self, epoch: LeaderEpoch) -> Option<EpochEntry> {
        let at = self.entries.partition_point(|entry| entry.epoch < epoch);
        at.checked_sub(1).map(|at| self.entries[at])
    }

    /// `epoch` begins at `start`: whatever stood at or after either is no longer true. Returns whether anything changed.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        if epoch.0 < 0 || start.0 < 0 {
            return false;
        }
        if let Some(last) = self.entries.last() {
            // The epoch goes on; where it began stays.
            if last.epoch == epoch && last.start <= start {
                return false;
            }
        }
        self.entries
            .retain(|entry| entry.epoch < epoch && entry.start < start);
        self.entries.push(EpochEntry { epoch, start });
        true
    }

    /// The log now ends at `end`: epochs that begin there or later are gone, also when no record was cut (KAFKA-10706).
    /// Returns whether anything changed.
    pub fn truncate_from_end(&mut self, end: Offset) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.start < end);
        self.entries.len() != before
    }

    /// The log now begins at `start`: epochs that ended before it are gone, the one that covers it begins there.
    /// Returns whether anything changed.
    pub fn truncate_from_start(&mut self, start: Offset) -> bool {
        let after = self.entries.partition_point(|entry| entry.start <= start);
        let Some(covering) = after.checked_sub(1) else {
            return false;
        };
        if covering == 0 && self.entries[0].start == start {
            return false;
        }
        self.entries.drain(..covering);
        self.entries[0].start = start;
        true
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Where `epoch` ends in this log, which ends at `log_end`: the largest known epoch that is not above it, and the
    /// offset after its last record. `None` when nothing can be said: the epoch is above every one known, or negative.
    ///
    /// | asked for | answer |
    /// |---|---|
    /// | undefined (negative) | `None` |
    /// | the newest | `(it, log_end)` |
    /// | above the newest | `None` |
    /// | below the oldest | `(itself, start of the oldest)` |
    /// | else | (the largest known not above it, start of the next) |
    pub fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        log_end: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        if epoch.0 < 0 {
            return None;
        }
        let latest = self.latest()?;
        if epoch == latest {
            return Some((epoch, log_end));
        }
        if epoch > latest {
            return None;
        }
        let next = self.entries.partition_point(|entry| entry.epoch <= epoch);
        let end = self.entries[next].start;
        let floor = next
            .checked_sub(1)
            .map_or(epoch, |at| self.entries[at].epoch);
        Some((floor, end))
    }

    /// The text of a `leader-epoch-checkpoint` file.
    pub fn to_text(&self) -> String {
        let mut text = format!("0\n{}\n", self.entries.len());
        for entry in &self.entries {
            text.push_str(&format!("{} {}\n", entry.epoch, entry.start));
        }
        text
    }

    /// Reads the text of a `leader-epoch-checkpoint` file; `None` if it is not one.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()?.trim() != "0" {
            return None;
        }
        let count: usize = lines.next()?.trim().parse().ok()?;
        let mut entries: Vec<EpochEntry> = Vec::new();
        for line in lines {
            let (epoch, start) = line.trim().split_once(' ')?;
            let entry = EpochEntry {
                epoch: LeaderEpoch(epoch.parse().ok()?),
                start: Offset(start.parse().ok()?),
            };
            if let Some(last) = entries.last()
                && (last.epoch >= entry.epoch || last.start >= entry.start)
            {
                return None;
            }
            entries.push(entry);
        }
        (entries.len() == count).then_some(Self { entries })
    }
}

#[cfg(test)]
mod tests;
