//! stub
use crate::image::MetadataImage;

/// Why a snapshot cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error("not a metadata snapshot")]
    BadMagic,
}
/// The bytes of a snapshot file.
pub fn encode(_image: &MetadataImage) -> Vec<u8> {
    todo!()
}
/// The image in a snapshot file.
pub fn decode(_bytes: &[u8]) -> Result<MetadataImage, SnapshotError> {
    todo!()
}
