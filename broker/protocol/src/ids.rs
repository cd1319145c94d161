//! The numbers that have a meaning, each with a type of its own, so that an epoch does not fit where an offset belongs.
//! Law: plain values; nothing here reads a clock, a file or a socket.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// The all-zero id, which on the wire means "none".
            pub const ZERO: Self = Self(Uuid::nil());

            /// Whether this is the "none" of the wire.
            pub fn is_zero(&self) -> bool {
                self.0.is_nil()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A broker's number, chosen by the operator. −1 on the wire means "none".
    BrokerId(i32)
}
number! {
    /// The incarnation of a broker: the metadata log offset of its registration (KIP-631).
    BrokerEpoch(i64)
}
number! {
    /// A record's place in a partition, or in the metadata log. An *end* offset is exclusive.
    Offset(i64)
}
number! {
    /// How many times a partition has changed its leader (KIP-101). −1 on the wire means "unknown".
    LeaderEpoch(i32)
}
number! {
    /// How many times a partition's state has changed in any way (KIP-497).
    PartitionEpoch(i32)
}
number! {
    /// Which active controller took a decision; it rises with every one that takes office.
    ControllerEpoch(i32)
}
number! {
    /// An idempotent producer (KIP-98). −1 on the wire means "none".
    ProducerId(i64)
}
number! {
    /// The incarnation of an idempotent producer.
    ProducerEpoch(i16)
}
number! {
    /// The number an idempotent producer gives a record; it wraps from 2³¹−1 to 0.
    Sequence(i32)
}
identifier! {
    /// A topic's identity; a topic deleted and made again under the same name has another (KIP-516).
    TopicId
}
identifier! {
    /// One log directory of one broker (KIP-858).
    DirectoryId
}
impl DirectoryId {
    /// Stands for a directory that failed before a log that was made in it could outlast that (Kafka's `DirectoryId.LOST`): nothing
    /// that counts was ever in that log.
    pub const LOST: Self = Self(Uuid::from_u128(1));
}
identifier! {
    /// One run of a broker process.
    IncarnationId
}

/// A partition's number inside its topic.
pub type PartitionIndex = i32;

impl BrokerId {
    /// "Nobody" on the wire.
    pub const NONE: Self = Self(-1);
}

impl BrokerEpoch {
    /// "Unknown" on the wire.
    pub const UNKNOWN: Self = Self(-1);
}

impl LeaderEpoch {
    /// "Unknown" on the wire.
    pub const UNKNOWN: Self = Self(-1);

    /// The epoch of the next leader.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl PartitionEpoch {
    /// The epoch of the next change.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Offset {
    /// Where every log begins.
    pub const ZERO: Self = Self(0);
    /// "Unknown" on the wire.
    pub const UNKNOWN: Self = Self(-1);

    /// The offset `count` places further on.
    #[must_use]
    pub fn plus(self, count: i64) -> Self {
        Self(self.0 + count)
    }
}

impl ProducerId {
    /// "Not idempotent" on the wire.
    pub const NONE: Self = Self(-1);
}

impl Sequence {
    /// "Not idempotent" on the wire.
    pub const NONE: Self = Self(-1);

    /// The sequence `count` places further on, wrapping from 2³¹−1 to 0.
    #[must_use]
    pub fn plus(self, count: i32) -> Self {
        let sum = i64::from(self.0) + i64::from(count);
        Self((sum % (i64::from(i32::MAX) + 1)) as i32)
    }
}
