//! stub
use super::{Decision, Refusal};
use crate::image::MetadataImage;
use crate::rpc::{AllocateProducerIdsReply, AllocateProducerIdsRequest};

/// A block of producer ids.
pub fn allocate(
    _image: &MetadataImage,
    _request: &AllocateProducerIdsRequest,
) -> Result<Decision<AllocateProducerIdsReply>, Refusal> {
    todo!()
}
