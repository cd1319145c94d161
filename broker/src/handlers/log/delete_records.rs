//! DeleteRecords: moves the beginning of logs (API 21).
//! Law: the leader moves its own log and answers; followers move theirs with their next fetch.

use kuorum_metadata::image::MetadataImage;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsRequest,
    DeleteRecordsResponse, DeleteRecordsTopicResult,
};
use kuorum_protocol::{Offset, TopicId};

use super::leaders;
use crate::authorizer::{Operation, Resource};
use crate::context::Context;

/// "Up to the high watermark".
const TO_THE_HIGH_WATERMARK: i64 = -1;

/// Answers partition by partition.
pub async fn delete_records(
    cx: &Context,
    request: DeleteRecordsRequest,
    _version: i16,
) -> DeleteRecordsResponse {
    let image = cx.metadata.image();
    let topics = request
        .topics
        .into_iter()
        .map(|topic| DeleteRecordsTopicResult {
            partitions: topic
                .partitions
                .iter()
                .map(|asked| {
                    on_the_wire(asked.partition_index, one(cx, &image, &topic.name, asked))
                })
                .collect(),
            name: topic.name,
        })
        .collect();
    DeleteRecordsResponse {
        topics,
        ..DeleteRecordsResponse::default()
    }
}

fn one(
    cx: &Context,
    image: &MetadataImage,
    topic: &str,
    asked: &DeleteRecordsPartition,
) -> Result<Offset, ErrorCode> {
    let topic = leaders::topic(image, topic, TopicId::ZERO, false)?;
    if !cx.may(Operation::Delete, Resource::Topic(&topic.name)) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    let before = match asked.offset {
        TO_THE_HIGH_WATERMARK => None,
        offset => Some(Offset(offset)),
    };
    let hosted = leaders::replica(cx, topic, asked.partition_index)?;
    cx.replicas
        .with(&hosted, |partition, fx| {
            partition.delete_records(before, fx)
        })
        .map_err(|error| (&error).into())
}

fn on_the_wire(index: i32, start: Result<Offset, ErrorCode>) -> DeleteRecordsPartitionResult {
    match start {
        Ok(start) => DeleteRecordsPartitionResult {
            partition_index: index,
            low_watermark: start.0,
            error_code: ErrorCode::None.code(),
        },
        Err(error) => DeleteRecordsPartitionResult {
            partition_index: index,
            low_watermark: -1,
            error_code: error.code(),
        },
    }
}
