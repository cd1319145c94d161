//! One line where many would say the same: who misbehaves is named, and how often it was left unsaid.
//! Law: memory is fixed, whoever comes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Addresses and reasons share this many slots, so one noisy address does not hush the others, and no crowd makes this grow.
const SLOTS: usize = 256;

/// Lets one line through per address, reason and interval.
#[derive(Debug)]
pub(crate) struct Quiet {
    interval: Duration,
    slots: Mutex<[Slot; SLOTS]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    spoken_at: Option<Instant>,
    unsaid: u64,
}

impl Quiet {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval,
            slots: Mutex::new([Slot::default(); SLOTS]),
        }
    }

    /// Whether to say `why` about `who` now; if so, how many such lines were left unsaid since the last one. Reasons that
    /// differ only in their numbers are the same.
    pub(crate) fn may_speak(&self, who: IpAddr, why: &str, now: Instant) -> Option<u64> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut slots[slot_of(who, why)];
        if slot
            .spoken_at
            .is_some_and(|at| now.duration_since(at) < self.interval)
        {
            slot.unsaid += 1;
            return None;
        }
        slot.spoken_at = Some(now);
        Some(std::mem::take(&mut slot.unsaid))
    }
}

fn slot_of(who: IpAddr, why: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    who.hash(&mut hasher);
    for byte in why.bytes().filter(|byte| !byte.is_ascii_digit()) {
        hasher.write_u8(byte);
    }
    (hasher.finish() % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_an_interval() {
        let quiet = Quiet::new(Duration::from_secs(10));
        let (one, two) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        // who, why, when ⇒ how many were left unsaid before it, if it may be said
        let rows = [
            (one, "8 bytes too many", 0, Some(0)),
            (one, "9 bytes too many", 9, None),
            (one, "it speaks HTTP", 9, Some(0)),
            (two, "8 bytes too many", 9, Some(0)),
            (one, "8 bytes too many", 10, Some(1)),
        ];
        for (who, why, seconds, expected) in rows {
            let said = quiet.may_speak(who, why, after(seconds));
            assert_eq!(said, expected, "{who} {why} {seconds}");
        }
    }
}
