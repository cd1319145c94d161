//! InitProducerId (22): gives a producer its identity (KIP-98, KIP-360).

use crate::message::message;

message! {
    /// Asks for an identity.
    InitProducerIdRequest (InitProducerId) {
        /// The transactional id; null for a producer that is only idempotent.
        transactional_id: Option<String> [0..],
        /// After how long an open transaction may be aborted, in milliseconds.
        transaction_timeout_ms: i32 [0..],
        /// The identity whose epoch shall rise; −1 for none.
        producer_id: i64 [3..] = -1,
        /// The epoch of that identity; −1 for none.
        producer_epoch: i16 [3..] = -1,
    }

    /// The identity.
    InitProducerIdResponse (InitProducerId) {
        /// How long the client was or should be held back, in milliseconds.
        throttle_time_ms: i32 [0..],
        /// The error, or 0.
        error_code: i16 [0..],
        /// The producer id; −1 with an error.
        producer_id: i64 [0..] = -1,
        /// Its epoch.
        producer_epoch: i16 [0..],
    }
}
