//! Metadata (3): which brokers there are, and who leads what.

use uuid::Uuid;

use crate::message::message;

/// "Not asked for" in the fields of authorized operations.
pub const OPERATIONS_NOT_ASKED: i32 = i32::MIN;

message! {
    /// Asks for brokers and topics.
    MetadataRequest (Metadata) {
        /// The topics. Version 0: empty means all. Later: null means all, empty means none.
        topics: Option<Vec<MetadataRequestTopic>> [0..] null [1..],
        /// Whether a topic that does not exist may be created on the way.
        allow_auto_topic_creation: bool [4..] = true,
        /// Whether to say what the client may do with the cluster (KIP-430).
        include_cluster_authorized_operations: bool [8..=10],
        /// Whether to say what the client may do with each topic.
        include_topic_authorized_operations: bool [8..],
    }

    /// One topic asked for, by name or by id.
    MetadataRequestTopic {
        /// Its id; zero to ask by name (KIP-516).
        topic_id: Uuid [10..],
        /// Its name; null to ask by id.
        name: Option<String> [0..] null [10..],
    }

    /// Brokers and topics.
    MetadataResponse (Metadata) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [3..],
        /// The brokers alive, as this listener names them.
        brokers: Vec<MetadataResponseBroker> [0..],
        /// The cluster's id.
        cluster_id: Option<String> [2..],
        /// A broker that takes requests for the controller.
        controller_id: i32 [1..] = -1,
        /// The topics.
        topics: Vec<MetadataResponseTopic> [0..],
        /// What the client may do with the cluster, as a bit set.
        cluster_authorized_operations: i32 [8..=10] = OPERATIONS_NOT_ASKED,
        /// The error of the whole answer, or 0 (KIP-1102).
        error_code: i16 [13..],
    }

    /// One broker.
    MetadataResponseBroker {
        /// Its id.
        node_id: i32 [0..],
        /// Its host, as clients reach it.
        host: String [0..],
        /// Its port.
        port: i32 [0..],
        /// Its rack.
        rack: Option<String> [1..],
    }

    /// One topic.
    MetadataResponseTopic {
        /// The error, or 0.
        error_code: i16 [0..],
        /// Its name; null if only an unknown id was given.
        name: Option<String> [0..] null [12..],
        /// Its id.
        topic_id: Uuid [10..],
        /// Whether the cluster keeps it for itself.
        is_internal: bool [1..],
        /// Its partitions.
        partitions: Vec<MetadataResponsePartition> [0..],
        /// What the client may do with it, as a bit set.
        topic_authorized_operations: i32 [8..] = OPERATIONS_NOT_ASKED,
    }

    /// One partition.
    MetadataResponsePartition {
        /// The error, or 0.
        error_code: i16 [0..],
        /// Its number inside the topic.
        partition_index: i32 [0..],
        /// Its leader, or −1.
        leader_id: i32 [0..],
        /// The leader's epoch; it never goes back for one topic id.
        leader_epoch: i32 [7..] = -1,
        /// Who holds it, the preferred leader first.
        replica_nodes: Vec<i32> [0..],
        /// Who is in sync.
        isr_nodes: Vec<i32> [0..],
        /// Which of the replicas are offline.
        offline_replicas: Vec<i32> [5..],
    }
}
