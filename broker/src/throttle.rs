//! How fast replicas that are not in sync may be fetched and served (`*.replication.throttled.rate` and `.replicas`).
//! Law: a replica in sync is never held up. What was let through is charged afterwards, so an answer is never cut; a debt
//! is waited for. Time comes in as an argument.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use kuorum_metadata::MetadataImage;
use kuorum_metadata::control::reassignment::{FOLLOWER_RATE, LEADER_RATE};
use kuorum_protocol::{BrokerId, Monotonic};
use parking_lot::Mutex;

/// A rate at which nothing is held up.
const UNLIMITED: i64 = i64::MAX;

/// Both directions of one broker.
#[derive(Debug, Default)]
pub struct Throttle {
    /// What this broker serves as a leader.
    pub leader: RateLimit,
    /// What this broker fetches as a follower.
    pub follower: RateLimit,
}

impl Throttle {
    /// Takes over the rates that are in force for a broker.
    pub fn configure(&self, image: &MetadataImage, me: BrokerId) {
        self.leader.set(image.broker_number(me, LEADER_RATE));
        self.follower.set(image.broker_number(me, FOLLOWER_RATE));
    }
}

/// A budget of bytes that fills at a rate, up to one second's worth.
#[derive(Debug)]
pub struct RateLimit {
    /// Bytes a second.
    rate: AtomicI64,
    budget: Mutex<Budget>,
}

#[derive(Debug, Default)]
struct Budget {
    /// What is left; below 0 there is a debt.
    bytes: f64,
    as_of: Option<Monotonic>,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            rate: AtomicI64::new(UNLIMITED),
            budget: Mutex::default(),
        }
    }
}

impl RateLimit {
    /// Sets the rate, in bytes a second. What is left of the budget stays.
    pub fn set(&self, rate: i64) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Whether more may pass now; if not, how long until it may.
    ///
    /// # Errors
    /// The time to wait.
    pub fn admit(&self, now: Monotonic) -> Result<(), Duration> {
        /// With a rate near 0 it is looked at again after so long: it may have been raised.
        const MOST: Duration = Duration::from_secs(1);
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == UNLIMITED {
            return Ok(());
        }
        let budget = self.filled(rate, now);
        if budget > 0.0 {
            return Ok(());
        }
        let wait = Duration::try_from_secs_f64((1.0 - budget) / rate as f64);
        Err(wait.map_or(MOST, |wait| wait.clamp(Duration::from_millis(1), MOST)))
    }

    /// So many bytes have passed.
    pub fn charge(&self, bytes: usize, now: Monotonic) {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == UNLIMITED || bytes == 0 {
            return;
        }
        self.filled(rate, now);
        self.budget.lock().bytes -= bytes as f64;
    }

    /// What there is to spend, as of now.
    fn filled(&self, rate: i64, now: Monotonic) -> f64 {
        let mut budget = self.budget.lock();
        let most = rate as f64;
        let earned = match budget.as_of {
            Some(as_of) => now.since(as_of).as_secs_f64() * rate as f64,
            None => most,
        };
        // The clocks of two threads may have been read in the other order.
        budget.as_of = budget.as_of.max(Some(now));
        budget.bytes = (budget.bytes + earned).min(most);
        budget.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Monotonic {
        Monotonic(Duration::from_millis(millis))
    }

    #[test]
    fn the_rate_holds_over_time() {
        let limit = RateLimit::default();
        limit.charge(1 << 40, at(0));
        assert_eq!(limit.admit(at(0)), Ok(()), "no limit, no debt");

        limit.set(1000);
        let mut passed = 0;
        let mut now = 0;
        while now < 20_000 {
            match limit.admit(at(now)) {
                Ok(()) => {
                    limit.charge(700, at(now));
                    passed += 700;
                }
                Err(wait) => now += u64::try_from(wait.as_millis()).unwrap_or(1).max(1),
            }
        }
        // Twenty seconds, the second's worth it began with, and one answer that was let through last.
        assert!((19_000..=22_000).contains(&passed), "{passed} bytes");

        // A large answer is not cut, and its debt is waited for.
        limit.charge(5_000, at(now));
        let wait = limit.admit(at(now)).expect_err("a debt");
        assert!(
            wait <= Duration::from_secs(1),
            "looked at again soon: {wait:?}"
        );
        assert_eq!(limit.admit(at(now + 10_000)), Ok(()));
        limit.charge(100_000, at(now + 10_000));
        limit.set(i64::MAX);
        assert_eq!(limit.admit(at(now + 10_000)), Ok(()), "lifted");
    }

    #[test]
    fn nothing_passes_at_no_rate() {
        let limit = RateLimit::default();
        limit.set(0);
        assert!(limit.admit(at(5)).is_err());
        assert!(limit.admit(at(50_000)).is_err());
    }

    #[test]
    fn an_earlier_clock_earns_nothing() {
        let limit = RateLimit::default();
        limit.set(1000);
        assert_eq!(limit.admit(at(1000)), Ok(()));
        limit.charge(1000, at(1000));
        assert!(limit.admit(at(900)).is_err());
        assert!(limit.admit(at(1000)).is_err());
    }
}
