//! AlterConfigs (33): replaces all settings of a resource; what is not named goes back to its default.

use crate::message::message;

message! {
    /// The settings to be.
    AlterConfigsRequest (AlterConfigs) {
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
        /// All its settings.
        configs: Vec<AlterableConfig> [0..],
    }

    /// One setting.
    AlterableConfig {
        /// Its name.
        name: String [0..],
        /// Its value.
        value: Option<String> [0..],
    }

    /// What became of it.
    AlterConfigsResponse (AlterConfigs) {
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
