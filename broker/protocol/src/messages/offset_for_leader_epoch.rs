//! OffsetForLeaderEpoch (23): where an epoch ends, to find the place where two logs part (KIP-101, KIP-320).

use crate::message::message;

message! {
    /// The epochs asked for.
    OffsetForLeaderEpochRequest (OffsetForLeaderEpoch) {
        /// The follower's id; −1 for a consumer, −2 where the version has no such field.
        replica_id: i32 [3..] = -2,
        /// By topic.
        topics: Vec<OffsetForLeaderTopic> [2..],
    }

    /// One topic.
    OffsetForLeaderTopic {
        /// Its name.
        topic: String [2..],
        /// By partition.
        partitions: Vec<OffsetForLeaderPartition> [2..],
    }

    /// One partition.
    OffsetForLeaderPartition {
        /// Its number.
        partition: i32 [2..],
        /// The leader epoch the client knows; −1 for none.
        current_leader_epoch: i32 [2..] = -1,
        /// The epoch whose end is asked for.
        leader_epoch: i32 [2..],
    }

    /// Where the epochs end.
    OffsetForLeaderEpochResponse (OffsetForLeaderEpoch) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [2..],
        /// By topic.
        topics: Vec<OffsetForLeaderTopicResult> [2..],
    }

    /// One topic.
    OffsetForLeaderTopicResult {
        /// Its name.
        topic: String [2..],
        /// By partition.
        partitions: Vec<EpochEndOffset> [2..],
    }

    /// One partition.
    EpochEndOffset {
        /// The error, or 0.
        error_code: i16 [2..],
        /// Its number.
        partition: i32 [2..],
        /// The highest epoch not above the one asked for; −1 if there is none.
        leader_epoch: i32 [2..] = -1,
        /// Its end; −1 if there is none.
        end_offset: i64 [2..] = -1,
    }
}
