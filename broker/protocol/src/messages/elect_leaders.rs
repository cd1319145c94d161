//! ElectLeaders (43): elects the preferred leader, or any replica at all (KIP-183, KIP-460).

use crate::message::message;

message! {
    /// The elections to hold.
    ElectLeadersRequest (ElectLeaders) {
        /// 0 preferred, 1 unclean.
        election_type: i8 [1..],
        /// By topic; null for all.
        topic_partitions: Option<Vec<TopicPartitions>> [0..],
        /// How long to wait, in milliseconds.
        timeout_ms: i32 [0..] = 60_000,
    }

    /// One topic.
    TopicPartitions {
        /// Its name.
        topic: String [0..],
        /// Its partitions' numbers.
        partitions: Vec<i32> [0..],
    }

    /// How they ended.
    ElectLeadersResponse (ElectLeaders) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [0..],
        /// The error of the whole answer, or 0.
        error_code: i16 [1..],
        /// By topic.
        replica_election_results: Vec<ReplicaElectionResult> [0..],
    }

    /// One topic.
    ReplicaElectionResult {
        /// Its name.
        topic: String [0..],
        /// By partition.
        partition_result: Vec<PartitionResult> [0..],
    }

    /// One partition.
    PartitionResult {
        /// Its number.
        partition_id: i32 [0..],
        /// The error, or 0.
        error_code: i16 [0..],
        /// The error in words.
        error_message: Option<String> [0..],
    }
}
