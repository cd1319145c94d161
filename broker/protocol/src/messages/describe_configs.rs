//! DescribeConfigs (32): settings, their values and where they come from.

use crate::message::message;

message! {
    /// Whose settings to tell.
    DescribeConfigsRequest (DescribeConfigs) {
        /// The resources.
        resources: Vec<DescribeConfigsResource> [1..],
        /// Whether to tell what else could give each value.
        include_synonyms: bool [1..],
        /// Whether to tell what each setting means (KIP-569).
        include_documentation: bool [3..],
    }

    /// One resource.
    DescribeConfigsResource {
        /// 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group.
        resource_type: i8 [1..],
        /// Its name.
        resource_name: String [1..],
        /// The settings; null for all.
        configuration_keys: Option<Vec<String>> [1..],
    }

    /// The settings.
    DescribeConfigsResponse (DescribeConfigs) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [1..],
        /// By resource.
        results: Vec<DescribeConfigsResult> [1..],
    }

    /// One resource.
    DescribeConfigsResult {
        /// The error, or 0.
        error_code: i16 [1..],
        /// The error in words.
        error_message: Option<String> [1..],
        /// As in the request.
        resource_type: i8 [1..],
        /// As in the request.
        resource_name: String [1..],
        /// The settings.
        configs: Vec<DescribeConfigsResourceResult> [1..],
    }

    /// One setting.
    DescribeConfigsResourceResult {
        /// Its name.
        name: String [1..],
        /// Its value; null if it is hidden or has none.
        value: Option<String> [1..],
        /// Whether it cannot be changed.
        read_only: bool [1..],
        /// 1 topic, 2 broker, 3 default of all brokers, 4 file, 5 default, 6 logger, 7 client metrics, 8 group.
        config_source: i8 [1..] = -1,
        /// Whether its value is hidden.
        is_sensitive: bool [1..],
        /// What gives or could give the value, the strongest first (KIP-226).
        synonyms: Vec<DescribeConfigsSynonym> [1..],
        /// 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
        config_type: i8 [3..],
        /// What it means.
        documentation: Option<String> [3..],
    }

    /// One source of a value.
    DescribeConfigsSynonym {
        /// The setting's name there.
        name: String [1..],
        /// Its value there.
        value: Option<String> [1..],
        /// As `config_source`.
        source: i8 [1..],
    }
}
