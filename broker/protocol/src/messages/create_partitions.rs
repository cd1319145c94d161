//! CreatePartitions (37): gives topics more partitions.

use crate::message::message;

message! {
    /// The topics that shall grow.
    CreatePartitionsRequest (CreatePartitions) {
        /// By topic.
        topics: Vec<CreatePartitionsTopic> [0..],
        /// How long to wait, in milliseconds.
        timeout_ms: i32 [0..],
        /// Whether only to say what would happen.
        validate_only: bool [0..],
    }

    /// One topic.
    CreatePartitionsTopic {
        /// Its name.
        name: String [0..],
        /// How many partitions it shall have.
        count: i32 [0..],
        /// Who shall hold the new ones; null to let the cluster choose.
        assignments: Option<Vec<CreatePartitionsAssignment>> [0..],
    }

    /// Who shall hold one new partition.
    CreatePartitionsAssignment {
        /// The brokers, the preferred leader first.
        broker_ids: Vec<i32> [0..],
    }

    /// What became of it.
    CreatePartitionsResponse (CreatePartitions) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [0..],
        /// By topic; clients expect each one they asked for.
        results: Vec<CreatePartitionsTopicResult> [0..],
    }

    /// What became of one topic.
    CreatePartitionsTopicResult {
        /// Its name.
        name: String [0..],
        /// The error, or 0.
        error_code: i16 [0..],
        /// The error in words.
        error_message: Option<String> [0..],
    }
}
