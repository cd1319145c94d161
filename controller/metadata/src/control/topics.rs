//! stub
use super::command::{CreateTopicResult, CreateTopics, DeleteTopicResult, DeleteTopics};
use super::heartbeats::Heartbeats;
use super::{Decision, Random};
use crate::image::MetadataImage;

/// CreateTopics.
pub fn create(
    _image: &MetadataImage,
    _soft: &Heartbeats,
    _request: &CreateTopics,
    _random: &mut Random,
) -> Decision<Vec<CreateTopicResult>> {
    todo!()
}
/// DeleteTopics.
pub fn delete(_image: &MetadataImage, _request: &DeleteTopics) -> Decision<Vec<DeleteTopicResult>> {
    todo!()
}
