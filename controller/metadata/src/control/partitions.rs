//! stub
use super::command::{CreatePartitions, CreatePartitionsResult};
use super::heartbeats::Heartbeats;
use super::{Decision, Random};
use crate::image::MetadataImage;

/// CreatePartitions.
pub fn create(
    _image: &MetadataImage,
    _soft: &Heartbeats,
    _request: &CreatePartitions,
    _random: &mut Random,
) -> Decision<Vec<CreatePartitionsResult>> {
    todo!()
}
