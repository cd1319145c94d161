//! Blocks of producer ids: no id is ever handed out twice, by whichever broker, after whichever failure.
//! Law: the record moves the beginning of the next block before any id of this one is used.

use kuorum_protocol::ProducerId;
use kuorum_protocol::error_code::ErrorCode;

use super::{Decision, Refusal, brokers};
use crate::image::MetadataImage;
use crate::record::MetadataRecord;
use crate::rpc::{AllocateProducerIdsReply, AllocateProducerIdsRequest};

/// How many ids a block has.
pub const BLOCK_SIZE: i32 = 1000;

/// Hands a broker the next block.
pub fn allocate(
    image: &MetadataImage,
    request: &AllocateProducerIdsRequest,
) -> Result<Decision<AllocateProducerIdsReply>, Refusal> {
    brokers::known_incarnation(image, request.broker_id, request.broker_epoch)?;
    let first = image.producer_ids().map_or(ProducerId(0), |ids| ids.next);
    let Some(next) = first.0.checked_add(i64::from(BLOCK_SIZE)) else {
        return Err(Refusal::new(
            ErrorCode::UnknownServerError,
            "there are no producer ids left",
        ));
    };
    Ok(Decision {
        records: vec![MetadataRecord::ProducerIds {
            broker_id: request.broker_id,
            broker_epoch: request.broker_epoch,
            next_producer_id: ProducerId(next),
        }],
        response: AllocateProducerIdsReply {
            first,
            count: BLOCK_SIZE,
        },
    })
}
