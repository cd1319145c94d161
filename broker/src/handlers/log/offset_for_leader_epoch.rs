//! OffsetForLeaderEpoch: where an epoch ends, to find the place where two logs part (API 23; KIP-101, KIP-320).
//! Law: an epoch the log does not know is not an error; it has no end.

use kuorum_metadata::image::MetadataImage;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition, OffsetForLeaderTopicResult,
};
use kuorum_protocol::{LeaderEpoch, Offset, TopicId};

use super::leaders;
use crate::authorizer::{Operation, Resource};
use crate::context::Context;

/// Answers partition by partition.
pub async fn offset_for_leader_epoch(
    cx: &Context,
    request: OffsetForLeaderEpochRequest,
    _version: i16,
) -> OffsetForLeaderEpochResponse {
    let image = cx.metadata.image();
    let topics = request
        .topics
        .into_iter()
        .map(|topic| OffsetForLeaderTopicResult {
            partitions: topic
                .partitions
                .iter()
                .map(|asked| on_the_wire(asked.partition, one(cx, &image, &topic.topic, asked)))
                .collect(),
            topic: topic.topic,
        })
        .collect();
    OffsetForLeaderEpochResponse {
        topics,
        ..OffsetForLeaderEpochResponse::default()
    }
}

fn one(
    cx: &Context,
    image: &MetadataImage,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<(LeaderEpoch, Offset)>, ErrorCode> {
    let topic = leaders::topic(image, topic, TopicId::ZERO, false)?;
    if !cx.may(Operation::Describe, Resource::Topic(&topic.name)) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    let hosted = leaders::replica(cx, topic, asked.partition)?;
    let current =
        (asked.current_leader_epoch >= 0).then_some(LeaderEpoch(asked.current_leader_epoch));
    cx.replicas
        .with(&hosted, |partition, _| {
            partition.end_offset_for_epoch(current, LeaderEpoch(asked.leader_epoch))
        })
        .map_err(|error| (&error).into())
}

fn on_the_wire(
    partition: i32,
    end: Result<Option<(LeaderEpoch, Offset)>, ErrorCode>,
) -> EpochEndOffset {
    let unknown = EpochEndOffset {
        partition,
        ..EpochEndOffset::default()
    };
    match end {
        Ok(Some((epoch, offset))) => EpochEndOffset {
            leader_epoch: epoch.0,
            end_offset: offset.0,
            ..unknown
        },
        Ok(None) => unknown,
        Err(error) => EpochEndOffset {
            error_code: error.code(),
            ..unknown
        },
    }
}
