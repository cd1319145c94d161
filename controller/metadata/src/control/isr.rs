//! stub
use super::heartbeats::Heartbeats;
use super::{Decision, Refusal};
use crate::image::MetadataImage;
use crate::rpc::{AlterPartitionReply, AlterPartitionRequest};

/// AlterPartition.
pub fn alter_partition(
    _image: &MetadataImage,
    _soft: &Heartbeats,
    _request: &AlterPartitionRequest,
) -> Result<Decision<AlterPartitionReply>, Refusal> {
    todo!()
}
