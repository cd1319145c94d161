//! ListOffsets (2): where a log begins and ends, or reaches a time.

use crate::message::message;

/// `timestamp` asking for the end: the high watermark, or the last stable offset for readers of committed data.
pub const LATEST: i64 = -1;
/// `timestamp` asking for the beginning.
pub const EARLIEST: i64 = -2;
/// `timestamp` asking for the record with the highest timestamp (KIP-734).
pub const MAX_TIMESTAMP: i64 = -3;
/// `timestamp` asking for the beginning of what is on local disks (KIP-405).
pub const EARLIEST_LOCAL: i64 = -4;
/// `timestamp` asking for the end of what is on remote storage (KIP-1005).
pub const LATEST_TIERED: i64 = -5;

message! {
    /// The places to find.
    ListOffsetsRequest (ListOffsets) {
        /// The follower's id; −1 for a consumer.
        replica_id: i32 [1..] = -1,
        /// 0 reads up to the high watermark, 1 up to the last stable offset.
        isolation_level: i8 [2..],
        /// By topic.
        topics: Vec<ListOffsetsTopic> [1..],
        /// How long to wait for remote storage, in milliseconds (KIP-1075).
        timeout_ms: i32 [10..],
    }

    /// Places of one topic.
    ListOffsetsTopic {
        /// Its name.
        name: String [1..],
        /// By partition.
        partitions: Vec<ListOffsetsPartition> [1..],
    }

    /// A place of one partition.
    ListOffsetsPartition {
        /// Its number.
        partition_index: i32 [1..],
        /// The leader epoch the client knows; −1 for none (KIP-320).
        current_leader_epoch: i32 [4..] = -1,
        /// Milliseconds since 1970, or one of the constants.
        timestamp: i64 [1..],
    }

    /// The places.
    ListOffsetsResponse (ListOffsets) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [2..],
        /// By topic.
        topics: Vec<ListOffsetsTopicResponse> [1..],
    }

    /// Places of one topic.
    ListOffsetsTopicResponse {
        /// Its name.
        name: String [1..],
        /// By partition.
        partitions: Vec<ListOffsetsPartitionResponse> [1..],
    }

    /// A place of one partition.
    ListOffsetsPartitionResponse {
        /// Its number.
        partition_index: i32 [1..],
        /// The error, or 0.
        error_code: i16 [1..],
        /// The timestamp of the record found; −1 for none.
        timestamp: i64 [1..] = -1,
        /// The place; −1 if nothing was found.
        offset: i64 [1..] = -1,
        /// The epoch at that place; −1 if it is not known.
        leader_epoch: i32 [4..] = -1,
    }
}
