//! Time as pure code sees it: a number that is handed in.
//! Law: deadlines and sessions use `monotonic`; `wall` is only stored, or compared with timestamps of records.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A reading of the monotonic clock: time since the process (or the simulation) began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub Duration);

/// Milliseconds since 1970, as records carry them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// "None" on the wire.
    pub const NONE: Self = Self(-1);
}

/// What time it is, as both clocks say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For deadlines and sessions.
    pub monotonic: Monotonic,
    /// For timestamps of records.
    pub wall: Timestamp,
}

impl Monotonic {
    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Monotonic {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl Sub<Duration> for Monotonic {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(rhs))
    }
}

impl Add<Duration> for Now {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self {
            monotonic: self.monotonic + rhs,
            wall: Timestamp(self.wall.0 + rhs.as_millis() as i64),
        }
    }
}
