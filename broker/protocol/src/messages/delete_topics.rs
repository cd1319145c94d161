//! DeleteTopics (20).

use uuid::Uuid;

use crate::message::message;

message! {
    /// Topics to delete.
    DeleteTopicsRequest (DeleteTopics) {
        /// The topics, by name or by id.
        topics: Vec<DeleteTopicState> [6..],
        /// The topics' names.
        topic_names: Vec<String> [..=5],
        /// How long to wait, in milliseconds.
        timeout_ms: i32 [1..],
    }

    /// One topic to delete.
    DeleteTopicState {
        /// Its name; null to name it by id.
        name: Option<String> [6..],
        /// Its id; zero to name it by name (KIP-516).
        topic_id: Uuid [6..],
    }

    /// What became of them.
    DeleteTopicsResponse (DeleteTopics) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [1..],
        /// By topic.
        responses: Vec<DeletableTopicResult> [1..],
    }

    /// What became of one topic.
    DeletableTopicResult {
        /// Its name; null if only an unknown id was given.
        name: Option<String> [1..] null [6..],
        /// Its id.
        topic_id: Uuid [6..],
        /// The error, or 0.
        error_code: i16 [1..],
        /// The error in words.
        error_message: Option<String> [5..],
    }
}
