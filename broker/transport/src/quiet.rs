//! One line where many would say the same: who misbehaves is named, and how often it was left unsaid.
//! Law: memory is fixed, whoever comes.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Addresses share this many slots, so one noisy address does not hush the others, and no crowd makes this grow.
const SLOTS: usize = 64;

/// Lets one line through per address and interval.
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

    /// Whether to speak about `who` now; if so, how many lines were left unsaid since the last one.
    pub(crate) fn may_speak(&self, who: IpAddr, now: Instant) -> Option<u64> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut slots[slot_of(who)];
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

fn slot_of(who: IpAddr) -> usize {
    let sum = match who {
        IpAddr::V4(v4) => v4.octets().iter().fold(0_usize, mix),
        IpAddr::V6(v6) => v6.octets().iter().fold(0_usize, mix),
    };
    sum % SLOTS
}

fn mix(sum: usize, octet: &u8) -> usize {
    sum.wrapping_mul(31).wrapping_add(usize::from(*octet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_an_interval() {
        let quiet = Quiet::new(Duration::from_secs(10));
        let (one, two) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let start = Instant::now();
        assert_eq!(quiet.may_speak(one, start), Some(0));
        assert_eq!(quiet.may_speak(one, start + Duration::from_secs(9)), None);
        assert_eq!(
            quiet.may_speak(two, start + Duration::from_secs(9)),
            Some(0)
        );
        assert_eq!(
            quiet.may_speak(one, start + Duration::from_secs(10)),
            Some(1)
        );
    }
}
