//! DeleteRecords: moves the beginning of logs (API 21).
//! Law: the leader moves its own log, durably, and answers; followers move theirs with their next fetch. No thread that serves
//! waits for the disk.

use std::sync::Arc;

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
use crate::replica_manager::Hosted;

/// "Up to the high watermark".
const TO_THE_HIGH_WATERMARK: i64 = -1;

/// Answers partition by partition, once every start that was moved is durable.
pub async fn delete_records(
    cx: &Context,
    request: DeleteRecordsRequest,
    _version: i16,
) -> DeleteRecordsResponse {
    let image = cx.metadata.image();
    let mut here = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut found = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let place = find(cx, &image, &topic.name, asked).map(|hosted| {
                here.push((hosted, before(asked)));
            });
            found.push((asked.partition_index, place));
        }
        topics.push((topic.name, found));
    }
    let mut starts = cx.replicas.delete_records(here).await.into_iter();
    let mut start_of = |found: Result<(), ErrorCode>| {
        found?;
        let start = starts.next().expect("one answer for each that was asked");
        start.map_err(|error| (&error).into())
    };
    let topics = topics
        .into_iter()
        .map(|(name, found)| DeleteRecordsTopicResult {
            name,
            partitions: found
                .into_iter()
                .map(|(index, found)| on_the_wire(index, start_of(found)))
                .collect(),
        })
        .collect();
    DeleteRecordsResponse {
        topics,
        ..DeleteRecordsResponse::default()
    }
}

fn before(asked: &DeleteRecordsPartition) -> Option<Offset> {
    (asked.offset != TO_THE_HIGH_WATERMARK).then_some(Offset(asked.offset))
}

fn find(
    cx: &Context,
    image: &MetadataImage,
    topic: &str,
    asked: &DeleteRecordsPartition,
) -> Result<Arc<Hosted>, ErrorCode> {
    let topic = leaders::topic(image, topic, TopicId::ZERO, false)?;
    if !cx.may(Operation::Delete, Resource::Topic(&topic.name)) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    Ok(leaders::replica(cx, topic, asked.partition_index)?)
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
