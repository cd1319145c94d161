//! ListPartitionReassignments (46): which partitions are on the move (KIP-455).

use crate::message::message;

message! {
    /// What to tell of.
    ListPartitionReassignmentsRequest (ListPartitionReassignments) {
        /// How long to wait, in milliseconds.
        timeout_ms: i32 [0..] = 60_000,
        /// By topic; null for all.
        topics: Option<Vec<ListPartitionReassignmentsTopics>> [0..],
    }

    /// One topic.
    ListPartitionReassignmentsTopics {
        /// Its name.
        name: String [0..],
        /// Its partitions' numbers.
        partition_indexes: Vec<i32> [0..],
    }

    /// The moves.
    ListPartitionReassignmentsResponse (ListPartitionReassignments) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [0..],
        /// The error of the whole answer, or 0.
        error_code: i16 [0..],
        /// The error in words.
        error_message: Option<String> [0..],
        /// By topic; only what is on the move.
        topics: Vec<OngoingTopicReassignment> [0..],
    }

    /// One topic.
    OngoingTopicReassignment {
        /// Its name.
        name: String [0..],
        /// By partition.
        partitions: Vec<OngoingPartitionReassignment> [0..],
    }

    /// One partition.
    OngoingPartitionReassignment {
        /// Its number.
        partition_index: i32 [0..],
        /// Who holds it now.
        replicas: Vec<i32> [0..],
        /// Who is to join.
        adding_replicas: Vec<i32> [0..],
        /// Who is to leave.
        removing_replicas: Vec<i32> [0..],
    }
}
