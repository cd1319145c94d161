//! AlterPartitionReassignments (45): moves partitions to other brokers (KIP-455).

use crate::message::message;

message! {
    /// The moves to make or cancel.
    AlterPartitionReassignmentsRequest (AlterPartitionReassignments) {
        /// How long to wait, in milliseconds.
        timeout_ms: i32 [0..] = 60_000,
        /// Whether a partition may end with more or fewer replicas than before (KIP-860).
        allow_replication_factor_change: bool [1..] = true,
        /// By topic.
        topics: Vec<ReassignableTopic> [0..],
    }

    /// One topic.
    ReassignableTopic {
        /// Its name.
        name: String [0..],
        /// By partition.
        partitions: Vec<ReassignablePartition> [0..],
    }

    /// One partition.
    ReassignablePartition {
        /// Its number.
        partition_index: i32 [0..],
        /// Who shall hold it; null to cancel a move.
        replicas: Option<Vec<i32>> [0..],
    }

    /// What became of them.
    AlterPartitionReassignmentsResponse (AlterPartitionReassignments) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [0..],
        /// As in the request.
        allow_replication_factor_change: bool [1..] = true,
        /// The error of the whole answer, or 0.
        error_code: i16 [0..],
        /// The error in words.
        error_message: Option<String> [0..],
        /// By topic.
        responses: Vec<ReassignableTopicResponse> [0..],
    }

    /// One topic.
    ReassignableTopicResponse {
        /// Its name.
        name: String [0..],
        /// By partition.
        partitions: Vec<ReassignablePartitionResponse> [0..],
    }

    /// One partition.
    ReassignablePartitionResponse {
        /// Its number.
        partition_index: i32 [0..],
        /// The error, or 0.
        error_code: i16 [0..],
        /// The error in words.
        error_message: Option<String> [0..],
    }
}
