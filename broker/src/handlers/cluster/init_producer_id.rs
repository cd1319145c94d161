//! InitProducerId without a transactional id (API 22): an id that nobody has, at epoch 0.

use kuorum_protocol::ProducerId;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use tracing::warn;

use crate::context::Context;

/// Hands out an id. Transactional producers are refused until there are transactions.
pub async fn init_producer_id(
    cx: &Context,
    request: InitProducerIdRequest,
    _version: i16,
) -> InitProducerIdResponse {
    match request.transactional_id.as_deref() {
        None => {}
        Some("") => return refused(ErrorCode::InvalidRequest),
        Some(_) => return refused(ErrorCode::UnsupportedVersion),
    }
    match cx.producer_ids.next().await {
        Ok(id) => InitProducerIdResponse {
            producer_id: id.0,
            producer_epoch: 0,
            ..Default::default()
        },
        Err(error) => {
            warn!(cause = %error, "no producer id could be had");
            // Clients ask again; they would give up on most other codes.
            refused(ErrorCode::CoordinatorLoadInProgress)
        }
    }
}

fn refused(error: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse {
        error_code: error.code(),
        producer_id: ProducerId::NONE.0,
        producer_epoch: -1,
        ..Default::default()
    }
}
