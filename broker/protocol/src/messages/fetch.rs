//! Fetch (1): reads batches, for consumers and for followers alike.

use bytes::Bytes;
use uuid::Uuid;

use crate::message::message;

message! {
    /// What to read.
    FetchRequest (Fetch) {
        /// The cluster the reader believes to be in.
        cluster_id: Option<String> [12..] tag 0,
        /// The follower's id; −1 for a consumer.
        replica_id: i32 [..=14] = -1,
        /// The follower, with its epoch (KIP-903).
        replica_state: ReplicaState [15..] tag 1,
        /// How long to wait for `min_bytes`, in milliseconds.
        max_wait_ms: i32 [4..],
        /// Bytes worth an answer.
        min_bytes: i32 [4..],
        /// Bytes the answer should not exceed; the first batch comes whole in any case (KIP-74).
        max_bytes: i32 [4..] = i32::MAX,
        /// 0 reads up to the high watermark, 1 up to the last stable offset.
        isolation_level: i8 [4..],
        /// The fetch session; 0 for none (KIP-227).
        session_id: i32 [7..],
        /// The session's epoch; −1 for no session, 0 for a new one.
        session_epoch: i32 [7..] = -1,
        /// By topic.
        topics: Vec<FetchTopic> [4..],
        /// What the session shall forget.
        forgotten_topics_data: Vec<ForgottenTopic> [7..],
        /// The reader's rack (KIP-392).
        rack_id: String [11..],
    }

    /// A follower.
    ReplicaState {
        /// Its id; −1 for a consumer.
        replica_id: i32 [15..] = -1,
        /// Its broker epoch.
        replica_epoch: i64 [15..] = -1,
    }

    /// What to read from one topic.
    FetchTopic {
        /// Its name.
        topic: String [..=12],
        /// Its id (KIP-516).
        topic_id: Uuid [13..],
        /// By partition.
        partitions: Vec<FetchPartition> [4..],
    }

    /// What to read from one partition.
    FetchPartition {
        /// Its number.
        partition: i32 [4..],
        /// The leader epoch the reader knows; −1 for none (KIP-320).
        current_leader_epoch: i32 [9..] = -1,
        /// Where to begin.
        fetch_offset: i64 [4..],
        /// The epoch of the reader's last record; −1 for none (KIP-595).
        last_fetched_epoch: i32 [12..] = -1,
        /// Where the follower's log begins; −1 for a consumer.
        log_start_offset: i64 [5..] = -1,
        /// Bytes the partition's share should not exceed.
        partition_max_bytes: i32 [4..],
        /// The follower's directory (KIP-853).
        replica_directory_id: Uuid [17..] tag 0,
        /// The high watermark the follower knows (KIP-1166).
        high_watermark: i64 [18..] tag 1 = i64::MAX,
    }

    /// Partitions a session shall forget.
    ForgottenTopic {
        /// Their topic's name.
        topic: String [7..=12],
        /// Their topic's id.
        topic_id: Uuid [13..],
        /// Their numbers.
        partitions: Vec<i32> [7..],
    }

    /// What was read.
    FetchResponse (Fetch) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [4..],
        /// The error of the whole answer, or 0.
        error_code: i16 [7..],
        /// The fetch session; 0 for none.
        session_id: i32 [7..],
        /// By topic.
        responses: Vec<FetchableTopicResponse> [4..],
        /// Where the leaders named in `current_leader` live (KIP-951).
        node_endpoints: Vec<NodeEndpoint> [16..] tag 0,
    }

    /// What was read from one topic.
    FetchableTopicResponse {
        /// Its name.
        topic: String [..=12],
        /// Its id.
        topic_id: Uuid [13..],
        /// By partition.
        partitions: Vec<PartitionData> [4..],
    }

    /// What was read from one partition.
    PartitionData {
        /// Its number.
        partition_index: i32 [4..],
        /// The error, or 0.
        error_code: i16 [4..],
        /// Records below it are committed.
        high_watermark: i64 [4..],
        /// Transactions below it are decided.
        last_stable_offset: i64 [4..] = -1,
        /// Where the log begins.
        log_start_offset: i64 [5..] = -1,
        /// Where the reader's log and this one part, if they do (KIP-595).
        diverging_epoch: EpochEndOffset [12..] tag 0,
        /// Who leads, if not this broker.
        current_leader: LeaderIdAndEpoch [12..] tag 1,
        /// The snapshot to fetch instead (KIP-630); only the metadata log of Kafka has them.
        snapshot_id: SnapshotId [12..] tag 2,
        /// Transactions whose records are to be skipped; null for readers of everything.
        aborted_transactions: Option<Vec<AbortedTransaction>> [4..],
        /// A nearer replica to read from; −1 for none (KIP-392).
        preferred_read_replica: i32 [11..] = -1,
        /// Whole batches, the first of which may begin before the offset asked for; a slice of the frame.
        records: Option<Bytes> [4..],
    }

    /// The end of an epoch.
    EpochEndOffset {
        /// The epoch.
        epoch: i32 [12..] = -1,
        /// Its end.
        end_offset: i64 [12..] = -1,
    }

    /// A leader.
    LeaderIdAndEpoch {
        /// Its id; −1 if there is none.
        leader_id: i32 [12..] = -1,
        /// Its epoch; −1 if it is not known.
        leader_epoch: i32 [12..] = -1,
    }

    /// A snapshot.
    SnapshotId {
        /// The offset it ends at.
        end_offset: i64 [0..] = -1,
        /// The epoch it ends in.
        epoch: i32 [0..] = -1,
    }

    /// A transaction whose records are to be skipped.
    AbortedTransaction {
        /// Its producer.
        producer_id: i64 [4..],
        /// Its first offset.
        first_offset: i64 [4..],
    }

    /// Where a broker lives.
    NodeEndpoint {
        /// Its id.
        node_id: i32 [16..],
        /// Its host.
        host: String [16..],
        /// Its port.
        port: i32 [16..],
        /// Its rack.
        rack: Option<String> [16..],
    }
}
