//! Idempotent producers.

/// Every idempotent producer of one log.
#[derive(Clone, Debug, Default)]
pub struct ProducerStates {}
