//! FindCoordinator (10): who looks after a group or a transactional id.

use crate::message::message;

message! {
    /// Asks for coordinators.
    FindCoordinatorRequest (FindCoordinator) {
        /// The group or transactional id.
        key: String [..=3],
        /// 0 group, 1 transaction, 2 share partition.
        key_type: i8 [1..],
        /// Several of them at once (KIP-699).
        coordinator_keys: Vec<String> [4..],
    }

    /// The coordinators.
    FindCoordinatorResponse (FindCoordinator) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [1..],
        /// The error, or 0.
        error_code: i16 [..=3],
        /// The error in words.
        error_message: Option<String> [1..=3],
        /// The coordinator's id.
        node_id: i32 [..=3],
        /// Its host.
        host: String [..=3],
        /// Its port.
        port: i32 [..=3],
        /// One per key.
        coordinators: Vec<Coordinator> [4..],
    }

    /// The coordinator of one key.
    Coordinator {
        /// The key.
        key: String [4..],
        /// The coordinator's id.
        node_id: i32 [4..],
        /// Its host.
        host: String [4..],
        /// Its port.
        port: i32 [4..],
        /// The error, or 0.
        error_code: i16 [4..],
        /// The error in words.
        error_message: Option<String> [4..],
    }
}
