//! ApiVersions (18): what the broker speaks, asked before anything else.

use std::ops::RangeInclusive;

use crate::api_key::ApiKey;
use crate::message::message;

message! {
    /// Asks what the broker speaks.
    ApiVersionsRequest (ApiVersions) {
        /// The client's program (KIP-511).
        client_software_name: String [3..],
        /// The version of the client's program.
        client_software_version: String [3..],
    }

    /// What the broker speaks.
    ApiVersionsResponse (ApiVersions) {
        /// The error, or 0.
        error_code: i16 [0..],
        /// One row per API.
        api_keys: Vec<ApiVersion> [0..],
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [1..],
        /// Features this broker could support (KIP-584).
        supported_features: Vec<SupportedFeatureKey> [3..] tag 0,
        /// Rises with every change of the finalized features; −1 if they are not known.
        finalized_features_epoch: i64 [3..] tag 1 = -1,
        /// Features the whole cluster has agreed on.
        finalized_features: Vec<FinalizedFeatureKey> [3..] tag 2,
        /// Whether a ZooKeeper cluster could migrate here (KIP-866).
        zk_migration_ready: bool [3..] tag 3,
    }

    /// The versions of one API.
    ApiVersion {
        /// Its key.
        api_key: i16 [0..],
        /// The lowest version.
        min_version: i16 [0..],
        /// The highest version.
        max_version: i16 [0..],
    }

    /// The levels of one feature that this broker could support.
    SupportedFeatureKey {
        /// Its name.
        name: String [3..],
        /// The lowest level.
        min_version: i16 [3..],
        /// The highest level.
        max_version: i16 [3..],
    }

    /// The level of one feature that the cluster has agreed on.
    FinalizedFeatureKey {
        /// Its name.
        name: String [3..],
        /// The highest level in force.
        max_version_level: i16 [3..],
        /// The lowest level in force.
        min_version_level: i16 [3..],
    }
}

impl ApiVersion {
    /// The row of an API with the versions its table gives.
    pub fn advertise(api: ApiKey) -> Self {
        Self::of(api, &api.advertised())
    }

    /// The row of an API with versions of the caller's choice.
    pub fn of(api: ApiKey, versions: &RangeInclusive<i16>) -> Self {
        Self {
            api_key: api.key(),
            min_version: *versions.start(),
            max_version: *versions.end(),
        }
    }
}
