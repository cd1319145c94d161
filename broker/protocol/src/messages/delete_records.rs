//! DeleteRecords (21): moves the beginning of logs.

use crate::message::message;

message! {
    /// Where logs shall begin.
    DeleteRecordsRequest (DeleteRecords) {
        /// By topic.
        topics: Vec<DeleteRecordsTopic> [0..],
        /// How long to wait, in milliseconds.
        timeout_ms: i32 [0..],
    }

    /// One topic.
    DeleteRecordsTopic {
        /// Its name.
        name: String [0..],
        /// By partition.
        partitions: Vec<DeleteRecordsPartition> [0..],
    }

    /// One partition.
    DeleteRecordsPartition {
        /// Its number.
        partition_index: i32 [0..],
        /// Where the log shall begin; −1 for the high watermark.
        offset: i64 [0..],
    }

    /// Where they begin now.
    DeleteRecordsResponse (DeleteRecords) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [0..],
        /// By topic.
        topics: Vec<DeleteRecordsTopicResult> [0..],
    }

    /// One topic.
    DeleteRecordsTopicResult {
        /// Its name.
        name: String [0..],
        /// By partition.
        partitions: Vec<DeleteRecordsPartitionResult> [0..],
    }

    /// One partition.
    DeleteRecordsPartitionResult {
        /// Its number.
        partition_index: i32 [0..],
        /// Where the log begins on the slowest live replica.
        low_watermark: i64 [0..],
        /// The error, or 0.
        error_code: i16 [0..],
    }
}
