//! Metadata (3): which brokers there are, and who leads what.

use bytes::Bytes;
use uuid::Uuid;

use crate::message::{Message, message};
use crate::wire::{Decoder, WireError};

/// librdkafka (2.16 and before), asking for all topics in a flexible version, writes an array count of four bytes where a
/// null takes one, so that three bytes follow the message it seems to be. Kafka ignores whatever follows; we ignore just this.
const LIBRDKAFKA_LEFTOVER: usize = 3;

/// Reads a request to its last byte, or to librdkafka's leftover.
pub fn decode_request(version: i16, body: Bytes) -> Result<MetadataRequest, WireError> {
    let mut input = Decoder::new(body);
    let request = MetadataRequest::decode(version, &mut input)?;
    match input.finish() {
        Err(WireError::TrailingBytes(LIBRDKAFKA_LEFTOVER))
            if version >= 9 && request.topics.is_none() =>
        {
            Ok(request)
        }
        end => end.map(|()| request),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_topics_may_be_asked_for_with_a_count_of_four_bytes() {
        // (version, body, whether it is read)
        let rows: [(i16, &'static [u8], bool); 5] = [
            (13, &[0, 1, 0, 0], true),
            (13, &[0, 0, 0, 0, 1, 0, 0], true),
            (13, &[0, 0, 0, 0, 1, 0], false),
            (13, &[0, 0, 0, 0, 1, 0, 0, 0], false),
            (13, &[1, 0, 0, 0, 1, 0, 0], false),
        ];
        for (version, body, read) in rows {
            let request = decode_request(version, Bytes::from_static(body));
            assert_eq!(request.is_ok(), read, "version {version}, {body:?}: {request:?}");
        }
    }
}
