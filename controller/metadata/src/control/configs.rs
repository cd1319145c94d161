//! stub
use super::Decision;
use super::command::{AlterConfigs, AlterConfigsResult, ReplaceConfigs};
use crate::image::MetadataImage;

/// Incremental.
pub fn alter(_image: &MetadataImage, _request: &AlterConfigs) -> Decision<Vec<AlterConfigsResult>> {
    todo!()
}
/// Legacy.
pub fn replace(
    _image: &MetadataImage,
    _request: &ReplaceConfigs,
) -> Decision<Vec<AlterConfigsResult>> {
    todo!()
}
