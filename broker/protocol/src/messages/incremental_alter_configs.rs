//! IncrementalAlterConfigs (44): changes single settings (KIP-339).

use crate::message::message;

message! {
    /// The changes.
    IncrementalAlterConfigsRequest (IncrementalAlterConfigs) {
        /// By resource.
        resources: Vec<AlterConfigsResource> [0..],
        /// Whether only to say what would happen.
        validate_only: bool [0..],
    }

    /// One resource.
    AlterConfigsResource {
        /// As in DescribeConfigs.
        resource_type: i8 [0..],
        /// Its name.
        resource_name: String [0..],
        /// The changes.
        configs: Vec<AlterableConfig> [0..],
    }

    /// One change.
    AlterableConfig {
        /// The setting's name.
        name: String [0..],
        /// 0 set, 1 delete, 2 append, 3 subtract.
        config_operation: i8 [0..],
        /// The value; null to delete.
        value: Option<String> [0..],
    }

    /// What became of them.
    IncrementalAlterConfigsResponse (IncrementalAlterConfigs) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [0..],
        /// By resource.
        responses: Vec<AlterConfigsResourceResponse> [0..],
    }

    /// What became of one resource.
    AlterConfigsResourceResponse {
        /// The error, or 0.
        error_code: i16 [0..],
        /// The error in words.
        error_message: Option<String> [0..],
        /// As in the request.
        resource_type: i8 [0..],
        /// As in the request.
        resource_name: String [0..],
    }
}
