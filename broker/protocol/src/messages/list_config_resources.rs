//! ListConfigResources (74): which resources have settings of their own (KIP-714, KIP-1142).

use crate::message::message;

message! {
    /// What to tell of.
    ListConfigResourcesRequest (ListConfigResources) {
        /// The types, as in DescribeConfigs; empty for all. Version 0 knows only client metrics.
        resource_types: Vec<i8> [1..],
    }

    /// The resources.
    ListConfigResourcesResponse (ListConfigResources) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [0..],
        /// The error, or 0.
        error_code: i16 [0..],
        /// The resources.
        config_resources: Vec<ConfigResource> [0..],
    }

    /// One resource.
    ConfigResource {
        /// Its name.
        resource_name: String [0..],
        /// Its type, as in DescribeConfigs; client metrics where the version has no such field.
        resource_type: i8 [1..] = 16,
    }
}
