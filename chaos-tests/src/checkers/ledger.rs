//! What was ever visible, and what unclean elections took back of it.
//! Law: what an unclean election abandons is no promise any more; everything before it is one for ever.

use kuorum_protocol::{LeaderEpoch, Offset};

use super::Logged;
use super::state::epoch_at;

/// The unclean elections of one partition: the leader epoch each began, and how much of the history it kept.
#[derive(Clone, Debug, Default)]
pub struct Cuts(Vec<(LeaderEpoch, Offset)>);

impl Cuts {
    /// An unclean election began `leader_epoch` and kept what lies before `keeps`.
    pub fn add(&mut self, leader_epoch: LeaderEpoch, keeps: Offset) {
        self.0.push((leader_epoch, keeps));
    }

    /// Up to where what a leader of `epoch` says still holds: as much as every later unclean election has kept.
    #[must_use]
    pub fn firm_below(&self, epoch: LeaderEpoch) -> Offset {
        self.0
            .iter()
            .filter(|(cut, _)| *cut > epoch)
            .map(|(_, keeps)| *keeps)
            .min()
            .unwrap_or(Offset(i64::MAX))
    }

    /// Whether there was none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Up to where every history there ever was agrees.
    #[must_use]
    pub fn shared_by_all(&self) -> Offset {
        self.firm_below(LeaderEpoch::UNKNOWN)
    }
}

/// Everything that was ever visible in one partition, by offset; without what unclean elections have abandoned.
#[derive(Debug, Default)]
pub struct Ledger {
    records: Vec<Logged>,
    epochs: Vec<(LeaderEpoch, Offset)>,
    cuts: Cuts,
}

impl Ledger {
    /// The offset after the last visible record.
    #[must_use]
    pub fn end(&self) -> Offset {
        Offset(self.records.len() as i64)
    }

    /// Every epoch with a visible record, and the first such offset.
    #[must_use]
    pub fn epochs(&self) -> &[(LeaderEpoch, Offset)] {
        &self.epochs
    }

    /// The record at `offset`.
    #[must_use]
    pub fn get(&self, offset: Offset) -> Option<Logged> {
        self.records.get(usize::try_from(offset.0).ok()?).copied()
    }

    /// The unclean elections there were.
    #[must_use]
    pub fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// How much of it a replica with these epochs, whose log lies in `[start, end)`, holds. What it has deleted at its
    /// start it once held, unless that is of a later epoch than what it has there.
    #[must_use]
    pub fn held_by(&self, epochs: &[(LeaderEpoch, Offset)], end: Offset, start: Offset) -> Offset {
        let mut held = self.end().min(end);
        for (place, record) in self.records.iter().enumerate() {
            let offset = Offset(place as i64);
            if offset >= held {
                break;
            }
            let holds = match offset >= start {
                true => epoch_at(epochs, offset) == Some(record.epoch),
                false => epoch_at(epochs, start).is_none_or(|epoch| record.epoch <= epoch),
            };
            if !holds {
                held = offset;
            }
        }
        held
    }

    /// An unclean election began `leader_epoch` and kept what lies before `keeps`: the rest is no more.
    pub fn abandon(&mut self, leader_epoch: LeaderEpoch, keeps: Offset) {
        self.cuts.add(leader_epoch, keeps);
        self.records.truncate(usize::try_from(keeps.0).unwrap_or(0));
        self.epochs.retain(|(_, start)| *start < keeps);
    }

    /// The record that became visible at the end.
    pub fn push(&mut self, record: Logged) {
        if self.epochs.last().map(|last| last.0) != Some(record.epoch) {
            self.epochs.push((record.epoch, self.end()));
        }
        self.records.push(record);
    }
}
