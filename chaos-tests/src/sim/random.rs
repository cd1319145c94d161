//! Chance from a seed (SplitMix64): the same seed, the same numbers, everywhere.

use uuid::Uuid;

/// A stream of numbers.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Where the stream stands.
    pub(super) fn state(&self) -> u64 {
        self.0
    }

    /// Any number.
    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    pub(super) fn uuid(&mut self) -> Uuid {
        Uuid::from_u64_pair(self.number(), self.number())
    }
}
