//! stub
use super::Decision;
use super::heartbeats::Heartbeats;
use crate::image::MetadataImage;
use kuorum_protocol::Now;

/// The next thing time asks for.
pub fn tick(
    _image: &MetadataImage,
    _soft: &Heartbeats,
    _now: Now,
) -> Option<Decision<&'static str>> {
    todo!()
}
