//! Values for tests: any message, at any version, from a seed.

use bytes::Bytes;
use uuid::Uuid;

use crate::message::{Field, Struct};

/// Numbers from a seed (SplitMix64), the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A value that has only the fields of one version.
pub(crate) trait Sample: Sized {
    fn sample(version: i16, random: &mut Random) -> Self;
}

/// A field's value; never null where the version forbids it.
pub(crate) fn field<T: Sample + Field>(nullable: bool, version: i16, random: &mut Random) -> T {
    loop {
        let value = T::sample(version, random);
        if nullable || !value.is_null() {
            return value;
        }
    }
}

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl Sample for $type {
            fn sample(_: i16, random: &mut Random) -> Self {
                match random.below(8) {
                    0 => -1,
                    1 => Self::MAX,
                    2 => Self::MIN,
                    3 => 0,
                    _ => random.next() as Self,
                }
            }
        }
    )+};
}

numbers!(i8, i16, i32, i64);

impl Sample for bool {
    fn sample(_: i16, random: &mut Random) -> Self {
        random.below(2) == 1
    }
}

impl Sample for Uuid {
    fn sample(_: i16, random: &mut Random) -> Self {
        match random.below(4) {
            0 => Self::nil(),
            _ => Self::from_u64_pair(random.next(), random.next()),
        }
    }
}

impl Sample for String {
    fn sample(_: i16, random: &mut Random) -> Self {
        // Lengths around the place where a compact length takes a second byte are met as well.
        let length = match random.below(12) {
            0 => 0,
            1 => 120 + random.below(20),
            _ => 1 + random.below(12),
        };
        (0..length)
            .map(|_| ['a', 'Z', '0', '.', '-', 'ß', '→'][random.below(7) as usize])
            .collect()
    }
}

impl Sample for Bytes {
    fn sample(_: i16, random: &mut Random) -> Self {
        let length = random.below(200);
        (0..length).map(|_| random.next() as u8).collect()
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(version: i16, random: &mut Random) -> Self {
        let count = random.below(4);
        (0..count).map(|_| T::sample(version, random)).collect()
    }
}

macro_rules! maybe {
    ($(($($bounds:tt)*) $type:ty;)+) => {$(
        impl $($bounds)* Sample for Option<$type> {
            fn sample(version: i16, random: &mut Random) -> Self {
                (random.below(4) != 0).then(|| Sample::sample(version, random))
            }
        }
    )+};
}

maybe! {
    () String;
    () Bytes;
    (<T: Sample + Field>) Vec<T>;
    (<T: Sample + Struct>) T;
}
