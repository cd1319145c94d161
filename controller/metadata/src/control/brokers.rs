//! stub
use kuorum_protocol::{BrokerId, Now};

use super::command::Outcome;
use super::heartbeats::{Heartbeats, Silence};
use super::{Decision, Refusal};
use crate::image::MetadataImage;
use crate::rpc::{AssignDirectoriesRequest, HeartbeatReply, HeartbeatRequest, RegisterRequest};

/// Registers a broker.
pub fn register(
    _image: &MetadataImage,
    _soft: &Heartbeats,
    _request: &RegisterRequest,
    _now: Now,
) -> Result<Decision<()>, Refusal> {
    todo!()
}
/// Answers a heartbeat.
pub fn heartbeat(
    _image: &MetadataImage,
    _soft: &mut Heartbeats,
    _request: &HeartbeatRequest,
    _now: Now,
) -> Result<Decision<HeartbeatReply>, Refusal> {
    todo!()
}
/// Fences a broker.
pub fn fence(
    _image: &MetadataImage,
    _soft: &Heartbeats,
    _broker: BrokerId,
    _silence: Silence,
) -> Decision<()> {
    todo!()
}
/// Forgets a broker.
pub fn unregister(
    _image: &MetadataImage,
    _soft: &Heartbeats,
    _broker: BrokerId,
    _now: Now,
) -> Decision<Outcome> {
    todo!()
}
/// Records directories.
pub fn assign_directories(
    _image: &MetadataImage,
    _request: &AssignDirectoriesRequest,
) -> Result<Decision<()>, Refusal> {
    todo!()
}
