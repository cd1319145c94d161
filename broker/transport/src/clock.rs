//! The one door to time and randomness of the shells.
//! Law: pure code is handed a [`Now`]; only a shell asks for one, here. With [`Clock::seeded`] under a paused runtime the
//! same seed gives the same readings.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kuorum_protocol::{Monotonic, Now, Timestamp};
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tokio::time::Instant;

/// Where a seeded clock's wall time begins: 2026-01-01T00:00:00Z, in milliseconds.
const SEEDED_WALL_START: i64 = 1_767_225_600_000;

/// A clock and a source of randomness. Clones share both.
#[derive(Clone, Debug)]
pub struct Clock {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    start: Instant,
    wall: Wall,
    random: Mutex<StdRng>,
    #[cfg(feature = "chaos")]
    jump: jump::Jump,
}

#[derive(Debug)]
enum Wall {
    /// What the machine says.
    System,
    /// A fixed beginning, moved only by the monotonic clock and by order.
    Fixed(AtomicI64),
}

impl Clock {
    /// The machine's clock, with randomness nobody can foretell.
    pub fn system() -> Self {
        Self::new(Wall::System, rand::random())
    }

    /// A clock for tests: wall time begins at a fixed moment, randomness follows the seed.
    pub fn seeded(seed: u64) -> Self {
        Self::new(Wall::Fixed(AtomicI64::new(SEEDED_WALL_START)), seed)
    }

    fn new(wall: Wall, seed: u64) -> Self {
        Self {
            inner: Arc::new(Inner {
                start: Instant::now(),
                wall,
                random: Mutex::new(StdRng::seed_from_u64(seed)),
                #[cfg(feature = "chaos")]
                jump: jump::Jump::default(),
            }),
        }
    }

    /// What time it is.
    pub fn now(&self) -> Now {
        let elapsed = self.inner.start.elapsed();
        let wall = match &self.inner.wall {
            Wall::System => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_millis() as i64),
            Wall::Fixed(start) => start.load(Ordering::Relaxed) + elapsed.as_millis() as i64,
        };
        #[cfg(feature = "chaos")]
        let wall = wall + self.inner.jump.millis(elapsed);
        Now {
            monotonic: Monotonic(elapsed),
            wall: Timestamp(wall),
        }
    }

    /// Moves a seeded clock's wall time, as a step of the machine's clock would. Deadlines must not notice. The machine's own
    /// clock is left alone.
    pub fn move_wall(&self, millis: i64) {
        if let Wall::Fixed(start) = &self.inner.wall {
            start.fetch_add(millis, Ordering::Relaxed);
        }
    }

    /// The runtime's name for a moment of this clock.
    pub fn instant(&self, at: Monotonic) -> Instant {
        self.inner.start + at.0
    }

    /// Waits until `at`.
    pub async fn sleep_until(&self, at: Monotonic) {
        tokio::time::sleep_until(self.instant(at)).await;
    }

    /// Waits for `duration`.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// A random number of 64 bits.
    pub fn random(&self) -> u64 {
        self.with_random(|random| random.next_u64())
    }

    /// A random 128 bits, for ids.
    pub fn random_u128(&self) -> u128 {
        self.with_random(|random| random.random())
    }

    /// A random number of `0..bound`; 0 if `bound` is 0.
    pub fn random_below(&self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        self.with_random(|random| random.random_range(0..bound))
    }

    fn with_random<R>(&self, take: impl FnOnce(&mut StdRng) -> R) -> R {
        // A panic while holding the generator cannot leave it half-made.
        take(
            &mut self
                .inner
                .random
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

/// The wall clock of the chaos build jumps by as many milliseconds as the file `clock-offset-ms` of `KUORUM_CHAOS_DIR` says. Deadlines
/// and sessions must not notice.
#[cfg(feature = "chaos")]
mod jump {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
    use std::time::Duration;

    const LOOK_EVERY_MS: u64 = 100;

    #[derive(Debug)]
    pub(super) struct Jump {
        file: Option<PathBuf>,
        millis: AtomicI64,
        next_look: AtomicU64,
    }

    impl Default for Jump {
        fn default() -> Self {
            let home = std::env::var_os("KUORUM_CHAOS_DIR");
            Self {
                file: home.map(|home| PathBuf::from(home).join("clock-offset-ms")),
                millis: AtomicI64::new(0),
                next_look: AtomicU64::new(0),
            }
        }
    }

    impl Jump {
        pub(super) fn millis(&self, elapsed: Duration) -> i64 {
            let now = elapsed.as_millis() as u64;
            if let Some(file) = &self.file
                && now >= self.next_look.load(Ordering::Relaxed)
            {
                self.next_look.store(now + LOOK_EVERY_MS, Ordering::Relaxed);
                let text = std::fs::read_to_string(file).unwrap_or_default();
                self.millis
                    .store(text.trim().parse().unwrap_or(0), Ordering::Relaxed);
            }
            self.millis.load(Ordering::Relaxed)
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays_randomness_and_wall_time_follows_the_monotonic_clock() {
        let (one, two) = (Clock::seeded(7), Clock::seeded(7));
        let now = one.now();
        let elapsed = now.monotonic.0.as_millis() as i64;
        assert_eq!(now.wall, Timestamp(SEEDED_WALL_START + elapsed));
        let draws = |clock: &Clock| (0..5).map(|_| clock.random()).collect::<Vec<_>>();
        assert_eq!(draws(&one), draws(&two));
        assert_ne!(draws(&one), draws(&Clock::seeded(8)));
        assert_eq!(one.random_below(0), 0);
        one.move_wall(-5_000);
        assert!(one.now().wall < now.wall);
        assert!(one.now().monotonic >= now.monotonic);
        assert!((0..100).all(|_| two.random_below(3) < 3));
    }
}
