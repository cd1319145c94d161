//! The requests this crate can read and write: one row each. What is not in the table does not exist.
//! Law: the only place that knows which versions an API has and where it becomes flexible (KIP-482).

use std::fmt;
use std::ops::RangeInclusive;

use crate::wire::WireError;

macro_rules! api_keys {
    ($($name:ident = $key:literal, advertise $advertised:expr, read $versions:expr, flexible $flexible:literal..;)+) => {
        /// The kind of a request. The number on the wire is `key()`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ApiKey {
            $(
                #[doc = concat!("Kafka's ", stringify!($name), ".")]
                $name = $key,
            )+
        }

        impl ApiKey {
            /// Every row of the table, by ascending key.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Kafka's name of it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// The versions to name in an ApiVersions answer. Some reach below what can be read: old clients
            /// switch features on only when the range contains certain low versions.
            pub fn advertised(self) -> RangeInclusive<i16> {
                match self {
                    $(Self::$name => $advertised,)+
                }
            }

            /// The versions that can be read and written.
            pub fn versions(self) -> RangeInclusive<i16> {
                match self {
                    $(Self::$name => $versions,)+
                }
            }

            /// The first version with compact lengths and tagged fields.
            pub fn flexible_from(self) -> i16 {
                match self {
                    $(Self::$name => $flexible,)+
                }
            }
        }

        impl TryFrom<i16> for ApiKey {
            type Error = WireError;

            fn try_from(key: i16) -> Result<Self, WireError> {
                match key {
                    $($key => Ok(Self::$name),)+
                    _ => Err(WireError::UnknownApi(key)),
                }
            }
        }
    };
}

api_keys! {
    Produce = 0, advertise 0..=13, read 3..=13, flexible 9..;
    Fetch = 1, advertise 4..=18, read 4..=18, flexible 12..;
    ListOffsets = 2, advertise 1..=10, read 1..=10, flexible 6..;
    Metadata = 3, advertise 0..=13, read 0..=13, flexible 9..;
    FindCoordinator = 10, advertise 0..=6, read 0..=6, flexible 3..;
    ListGroups = 16, advertise 0..=5, read 0..=5, flexible 3..;
    ApiVersions = 18, advertise 0..=4, read 0..=4, flexible 3..;
    CreateTopics = 19, advertise 2..=7, read 2..=7, flexible 5..;
    DeleteTopics = 20, advertise 1..=6, read 1..=6, flexible 4..;
    DeleteRecords = 21, advertise 0..=2, read 0..=2, flexible 2..;
    InitProducerId = 22, advertise 0..=5, read 0..=5, flexible 2..;
    OffsetForLeaderEpoch = 23, advertise 2..=4, read 2..=4, flexible 4..;
    DescribeConfigs = 32, advertise 1..=4, read 1..=4, flexible 4..;
    AlterConfigs = 33, advertise 0..=2, read 0..=2, flexible 2..;
    DescribeLogDirs = 35, advertise 1..=4, read 1..=4, flexible 2..;
    CreatePartitions = 37, advertise 0..=3, read 0..=3, flexible 2..;
    ElectLeaders = 43, advertise 0..=2, read 0..=2, flexible 2..;
    IncrementalAlterConfigs = 44, advertise 0..=1, read 0..=1, flexible 1..;
    AlterPartitionReassignments = 45, advertise 0..=1, read 0..=1, flexible 0..;
    ListPartitionReassignments = 46, advertise 0..=0, read 0..=0, flexible 0..;
    DescribeCluster = 60, advertise 0..=2, read 0..=2, flexible 0..;
    ListConfigResources = 74, advertise 0..=1, read 0..=1, flexible 0..;
    DescribeTopicPartitions = 75, advertise 0..=0, read 0..=0, flexible 0..;
}

impl ApiKey {
    /// The number on the wire.
    pub fn key(self) -> i16 {
        self as i16
    }

    /// Whether that version can be read and written.
    pub fn supports(self, version: i16) -> bool {
        self.versions().contains(&version)
    }

    /// Whether that version has compact lengths and tagged fields.
    pub fn is_flexible(self, version: i16) -> bool {
        version >= self.flexible_from()
    }

    /// Fails unless that version can be read and written.
    pub(crate) fn check(self, version: i16) -> Result<(), WireError> {
        if self.supports(version) {
            Ok(())
        } else {
            Err(WireError::UnsupportedVersion { api: self, version })
        }
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
