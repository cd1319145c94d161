//! Produce (0): appends batches to partitions. Version 0–2 are advertised for old clients but never read.

use bytes::Bytes;
use uuid::Uuid;

use crate::message::message;

message! {
    /// Batches to append.
    ProduceRequest (Produce) {
        /// The producer's transactional id (KIP-98).
        transactional_id: Option<String> [3..],
        /// How many must have it before the answer: 0 nobody (no answer at all), 1 the leader, −1 everybody in sync.
        acks: i16 [3..],
        /// How long to wait for them, in milliseconds.
        timeout_ms: i32 [3..],
        /// By topic.
        topic_data: Vec<TopicProduceData> [3..],
    }

    /// What goes to one topic.
    TopicProduceData {
        /// Its name.
        name: String [..=12],
        /// Its id (KIP-516).
        topic_id: Uuid [13..],
        /// By partition.
        partition_data: Vec<PartitionProduceData> [3..],
    }

    /// What goes to one partition.
    PartitionProduceData {
        /// Its number.
        index: i32 [3..],
        /// One batch; a slice of the frame.
        records: Option<Bytes> [3..],
    }

    /// Where the batches went.
    ProduceResponse (Produce) {
        /// By topic.
        responses: Vec<TopicProduceResponse> [3..],
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [3..],
        /// Where the leaders named in `current_leader` live (KIP-951).
        node_endpoints: Vec<NodeEndpoint> [10..] tag 0,
    }

    /// What became of one topic's batches.
    TopicProduceResponse {
        /// Its name.
        name: String [..=12],
        /// Its id.
        topic_id: Uuid [13..],
        /// By partition.
        partition_responses: Vec<PartitionProduceResponse> [3..],
    }

    /// What became of one partition's batch.
    PartitionProduceResponse {
        /// Its number.
        index: i32 [3..],
        /// The error, or 0.
        error_code: i16 [3..],
        /// The offset of the first record.
        base_offset: i64 [3..],
        /// When it was appended, in milliseconds since 1970; −1 where the producer's timestamps count.
        log_append_time_ms: i64 [3..] = -1,
        /// Where the log begins.
        log_start_offset: i64 [5..] = -1,
        /// The records to blame (KIP-467).
        record_errors: Vec<BatchIndexAndErrorMessage> [8..],
        /// The error in words.
        error_message: Option<String> [8..],
        /// Who leads, if not this broker (KIP-951).
        current_leader: LeaderIdAndEpoch [10..] tag 0,
    }

    /// One record to blame.
    BatchIndexAndErrorMessage {
        /// Its place in the batch.
        batch_index: i32 [8..],
        /// What is wrong with it.
        batch_index_error_message: Option<String> [8..],
    }

    /// A leader.
    LeaderIdAndEpoch {
        /// Its id; −1 if there is none.
        leader_id: i32 [10..] = -1,
        /// Its epoch; −1 if it is not known.
        leader_epoch: i32 [10..] = -1,
    }

    /// Where a broker lives.
    NodeEndpoint {
        /// Its id.
        node_id: i32 [10..],
        /// Its host.
        host: String [10..],
        /// Its port.
        port: i32 [10..],
        /// Its rack.
        rack: Option<String> [10..],
    }
}
