//! stub
use super::Decision;
use super::command::{ElectLeaders, ElectLeadersResult};
use super::heartbeats::Heartbeats;
use crate::image::MetadataImage;
use kuorum_protocol::Now;

/// ElectLeaders.
pub fn elect(
    _image: &MetadataImage,
    _soft: &Heartbeats,
    _request: &ElectLeaders,
    _now: Now,
) -> Decision<Vec<ElectLeadersResult>> {
    todo!()
}
/// Gives leadership back to preferred leaders, at most `limit` partitions at once.
pub fn rebalance(_image: &MetadataImage, _soft: &Heartbeats, _limit: usize) -> Decision<usize> {
    todo!()
}
