//! When a produce with acks=all is let in, and when it is over.
//! Law: let in by the *committed* ISR, ended by the high watermark of the epoch that appended it.

use kuorum_protocol::Offset;

/// How many must have a record before its producer is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// 0: nobody; there is no answer.
    None,
    /// 1: the leader has appended it.
    Leader,
    /// −1: everyone in sync has it.
    All,
}

impl Acks {
    /// Reads the wire's number; `None` for anything but −1, 0 and 1 (INVALID_REQUIRED_ACKS).
    #[must_use]
    pub fn from_wire(acks: i16) -> Option<Self> {
        match acks {
            -1 => Some(Self::All),
            0 => Some(Self::None),
            1 => Some(Self::Leader),
            _ => None,
        }
    }
}

/// Whether a produce may append: with acks=all at least `min_isr` replicas must be in sync, as decided. Otherwise
/// NOT_ENOUGH_REPLICAS, and nothing is appended.
#[must_use]
pub fn admits(acks: Acks, committed_isr: usize, min_isr: usize) -> bool {
    acks != Acks::All || committed_isr >= min_isr
}

/// How a produce with acks=all ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Everyone who had to has it.
    Done,
    /// It is below the high watermark, but fewer than min.insync.replicas are in sync by now: the client must treat
    /// the outcome as unknown (NOT_ENOUGH_REPLICAS_AFTER_APPEND).
    NotEnoughReplicas,
}

/// Whether a produce whose records end before `until` is over.
#[must_use]
pub fn completion(
    until: Offset,
    high_watermark: Offset,
    maximal_isr: usize,
    min_isr: usize,
) -> Option<Completion> {
    if high_watermark < until {
        return None;
    }
    Some(if maximal_isr < min_isr {
        Completion::NotEnoughReplicas
    } else {
        Completion::Done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admission_rows() {
        for (acks, committed, min, admitted) in [
            (Acks::All, 3, 2, true),
            (Acks::All, 2, 2, true),
            (Acks::All, 1, 2, false),
            (Acks::Leader, 1, 2, true),
            (Acks::None, 1, 2, true),
        ] {
            assert_eq!(
                admits(acks, committed, min),
                admitted,
                "{acks:?} {committed} {min}"
            );
        }
    }

    #[test]
    fn completion_rows() {
        use Completion::{Done, NotEnoughReplicas};
        for (until, high_watermark, maximal, min, expected) in [
            (10, 9, 3, 2, None),
            (10, 10, 3, 2, Some(Done)),
            (10, 12, 2, 2, Some(Done)),
            (10, 10, 1, 2, Some(NotEnoughReplicas)),
            (10, 9, 1, 2, None),
        ] {
            let is = completion(Offset(until), Offset(high_watermark), maximal, min);
            assert_eq!(is, expected, "{until} {high_watermark} {maximal} {min}");
        }
    }
}
