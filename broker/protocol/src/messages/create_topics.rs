//! CreateTopics (19).

use uuid::Uuid;

use crate::message::message;

message! {
    /// Topics to create.
    CreateTopicsRequest (CreateTopics) {
        /// The topics.
        topics: Vec<CreatableTopic> [2..],
        /// How long to wait, in milliseconds.
        timeout_ms: i32 [2..] = 60_000,
        /// Whether only to say what would happen.
        validate_only: bool [2..],
    }

    /// One topic to create.
    CreatableTopic {
        /// Its name.
        name: String [2..],
        /// How many partitions; −1 for the default, or where assignments are given (KIP-464).
        num_partitions: i32 [2..],
        /// How many replicas of each; −1 for the default, or where assignments are given.
        replication_factor: i16 [2..],
        /// Who shall hold what; empty to let the cluster choose.
        assignments: Vec<CreatableReplicaAssignment> [2..],
        /// Settings other than the defaults.
        configs: Vec<CreatableTopicConfig> [2..],
    }

    /// Who shall hold one partition.
    CreatableReplicaAssignment {
        /// Its number.
        partition_index: i32 [2..],
        /// The brokers, the preferred leader first.
        broker_ids: Vec<i32> [2..],
    }

    /// One setting.
    CreatableTopicConfig {
        /// Its name.
        name: String [2..],
        /// Its value.
        value: Option<String> [2..],
    }

    /// What became of them.
    CreateTopicsResponse (CreateTopics) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [2..],
        /// By topic.
        topics: Vec<CreatableTopicResult> [2..],
    }

    /// What became of one topic.
    CreatableTopicResult {
        /// Its name.
        name: String [2..],
        /// Its id (KIP-516).
        topic_id: Uuid [7..],
        /// The error, or 0.
        error_code: i16 [2..],
        /// The error in words.
        error_message: Option<String> [2..],
        /// Why the settings are not told, or 0 (KIP-525).
        topic_config_error_code: i16 [5..] tag 0,
        /// How many partitions it has; −1 if that is not told.
        num_partitions: i32 [5..] = -1,
        /// How many replicas of each; −1 if that is not told.
        replication_factor: i16 [5..] = -1,
        /// The settings; null if they are not told.
        configs: Option<Vec<CreatableTopicConfigs>> [5..],
    }

    /// One setting in force.
    CreatableTopicConfigs {
        /// Its name.
        name: String [5..],
        /// Its value.
        value: Option<String> [5..],
        /// Whether it cannot be changed.
        read_only: bool [5..],
        /// Where it comes from, as in DescribeConfigs.
        config_source: i8 [5..] = -1,
        /// Whether its value is hidden.
        is_sensitive: bool [5..],
    }
}
