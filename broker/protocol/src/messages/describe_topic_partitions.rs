//! DescribeTopicPartitions (75): Metadata in pages (KIP-966).

use uuid::Uuid;

use crate::message::message;

message! {
    /// Asks for a page of partitions.
    DescribeTopicPartitionsRequest (DescribeTopicPartitions) {
        /// The topics; empty for all.
        topics: Vec<TopicRequest> [0..],
        /// The most partitions in the page.
        response_partition_limit: i32 [0..] = 2000,
        /// Where the page begins; null for the beginning.
        cursor: Option<Cursor> [0..],
    }

    /// One topic asked for.
    TopicRequest {
        /// Its name.
        name: String [0..],
    }

    /// A place in the sorted list of partitions.
    Cursor {
        /// The topic's name.
        topic_name: String [0..],
        /// The partition's number.
        partition_index: i32 [0..],
    }

    /// A page of partitions.
    DescribeTopicPartitionsResponse (DescribeTopicPartitions) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [0..],
        /// By topic, sorted by name.
        topics: Vec<DescribeTopicPartitionsResponseTopic> [0..],
        /// Where the next page begins; null at the end.
        next_cursor: Option<CursorResponse> [0..],
    }

    /// One topic.
    DescribeTopicPartitionsResponseTopic {
        /// The error, or 0.
        error_code: i16 [0..],
        /// Its name.
        name: Option<String> [0..],
        /// Its id.
        topic_id: Uuid [0..],
        /// Whether the cluster keeps it for itself.
        is_internal: bool [0..],
        /// Its partitions.
        partitions: Vec<DescribeTopicPartitionsResponsePartition> [0..],
        /// What the client may do with it, as a bit set.
        topic_authorized_operations: i32 [0..] = i32::MIN,
    }

    /// One partition.
    DescribeTopicPartitionsResponsePartition {
        /// The error, or 0.
        error_code: i16 [0..],
        /// Its number.
        partition_index: i32 [0..],
        /// Its leader, or −1.
        leader_id: i32 [0..],
        /// The leader's epoch.
        leader_epoch: i32 [0..] = -1,
        /// Who holds it, the preferred leader first.
        replica_nodes: Vec<i32> [0..],
        /// Who is in sync.
        isr_nodes: Vec<i32> [0..],
        /// Who may lead without loss although not in sync; null if that is not kept.
        eligible_leader_replicas: Option<Vec<i32>> [0..],
        /// Who was the last of those; null if that is not kept.
        last_known_elr: Option<Vec<i32>> [0..],
        /// Which of the replicas are offline.
        offline_replicas: Vec<i32> [0..],
    }

    /// A place in the sorted list of partitions.
    CursorResponse {
        /// The topic's name.
        topic_name: String [0..],
        /// The partition's number.
        partition_index: i32 [0..],
    }
}
