//! How long to wait before the next try: twice as long each time, up to a limit, with a little chance so that many who fail
//! together do not come back together.
//! Law: pure; the caller brings the randomness.

use std::time::Duration;

/// An exponential backoff with jitter of ±20 %, as Kafka's clients keep it (KIP-580).
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    tries: u32,
}

impl Backoff {
    /// Waits of `first`, 2 × `first`, 4 × `first` … never more than `max`.
    pub fn new(first: Duration, max: Duration) -> Self {
        Self {
            first,
            max,
            tries: 0,
        }
    }

    /// The next wait. `random` decides where in the ±20 % it falls.
    pub fn next_wait(&mut self, random: u64) -> Duration {
        let factor = 1_u32 << self.tries.min(20);
        self.tries = self.tries.saturating_add(1);
        let plain = self.first.saturating_mul(factor).min(self.max);
        let share = 0.8 + 0.4 * (random as f64 / u64::MAX as f64);
        plain.mul_f64(share).min(self.max)
    }

    /// It worked: the next failure waits `first` again.
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// How many waits were handed out since the last success.
    pub fn tries(&self) -> u32 {
        self.tries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_twofold_up_to_the_limit() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(50), ms(1000));
        let middle = u64::MAX / 2;
        let waits: Vec<u128> = (0..7)
            .map(|_| backoff.next_wait(middle).as_millis())
            .collect();
        for (wait, plain) in waits.iter().zip([50, 100, 200, 400, 800, 1000, 1000]) {
            assert!(wait.abs_diff(plain) <= 1, "{waits:?}");
        }
        backoff.reset();
        assert_eq!(backoff.next_wait(0), ms(40));
        assert_eq!(backoff.next_wait(u64::MAX), ms(120));
        for _ in 0..100 {
            assert!(backoff.next_wait(u64::MAX) <= ms(1000));
        }
    }
}
