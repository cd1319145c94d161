//! DescribeLogDirs (35): what one broker's directories hold (KIP-113).

use crate::message::message;

message! {
    /// What to tell of.
    DescribeLogDirsRequest (DescribeLogDirs) {
        /// By topic; null for all.
        topics: Option<Vec<DescribableLogDirTopic>> [1..],
    }

    /// One topic.
    DescribableLogDirTopic {
        /// Its name.
        topic: String [1..],
        /// Its partitions' numbers.
        partitions: Vec<i32> [1..],
    }

    /// The directories.
    DescribeLogDirsResponse (DescribeLogDirs) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [1..],
        /// The error, or 0.
        error_code: i16 [3..],
        /// By directory.
        results: Vec<DescribeLogDirsResult> [1..],
    }

    /// One directory.
    DescribeLogDirsResult {
        /// The error, or 0.
        error_code: i16 [1..],
        /// Its path.
        log_dir: String [1..],
        /// By topic.
        topics: Vec<DescribeLogDirsTopic> [1..],
        /// Bytes of the volume; −1 if that is not known (KIP-827).
        total_bytes: i64 [4..] = -1,
        /// Bytes free; −1 if that is not known.
        usable_bytes: i64 [4..] = -1,
    }

    /// One topic.
    DescribeLogDirsTopic {
        /// Its name.
        name: String [1..],
        /// By partition.
        partitions: Vec<DescribeLogDirsPartition> [1..],
    }

    /// One partition.
    DescribeLogDirsPartition {
        /// Its number.
        partition_index: i32 [1..],
        /// Bytes of its segments.
        partition_size: i64 [1..],
        /// How many offsets it lies behind the log it follows or will replace.
        offset_lag: i64 [1..],
        /// Whether it will replace the log in another directory.
        is_future_key: bool [1..],
    }
}
