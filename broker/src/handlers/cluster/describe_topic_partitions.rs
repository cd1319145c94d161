//! DescribeTopicPartitions: partitions page by page, with the eligible leader replicas (API 75, KIP-966).

use std::collections::BTreeMap;
use std::sync::Arc;

use kuorum_metadata::image::{MetadataImage, TopicImage};
use kuorum_protocol::TopicId;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::describe_topic_partitions::{
    Cursor, CursorResponse, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};

use super::view;
use crate::context::Context;

/// Partitions in one answer at most, whatever the request wants.
const PARTITIONS_MOST: usize = 2000;

/// Answers from the newest image.
pub async fn describe_topic_partitions(
    cx: &Context,
    request: DescribeTopicPartitionsRequest,
    _version: i16,
) -> DescribeTopicPartitionsResponse {
    answer(&cx.metadata.image(), &request, &cx.listener)
}

pub(super) fn answer(
    image: &MetadataImage,
    request: &DescribeTopicPartitionsRequest,
    listener: &str,
) -> DescribeTopicPartitionsResponse {
    let limit = usize::try_from(request.response_partition_limit)
        .ok()
        .filter(|limit| *limit > 0)
        .unwrap_or(PARTITIONS_MOST)
        .min(PARTITIONS_MOST);
    let wanted = wanted(image, request);
    let mut room = limit;
    let mut topics = Vec::new();
    let mut next = None;
    for (name, topic) in &wanted {
        let first = match &request.cursor {
            Some(cursor) if cursor.topic_name == *name => cursor.partition_index.max(0),
            _ => 0,
        };
        let Some(topic) = topic else {
            topics.push(unknown(name));
            continue;
        };
        let mut rest = topic.partitions.range(first..).map(|(index, _)| *index);
        if room == 0 {
            next = rest.next().map(|index| cursor_at(name, index));
            break;
        }
        let page: Vec<i32> = rest.by_ref().take(room).collect();
        room -= page.len();
        topics.push(described(image, topic, &page, listener));
        if let Some(index) = rest.next() {
            next = Some(cursor_at(name, index));
            break;
        }
    }
    DescribeTopicPartitionsResponse {
        topics,
        next_cursor: next,
        ..Default::default()
    }
}

/// The topics to look at, by name, from the cursor on. No topics named means all of them.
fn wanted<'a>(
    image: &'a MetadataImage,
    request: &DescribeTopicPartitionsRequest,
) -> BTreeMap<String, Option<&'a Arc<TopicImage>>> {
    let from = request
        .cursor
        .as_ref()
        .map_or("", |cursor: &Cursor| cursor.topic_name.as_str());
    let mut wanted = BTreeMap::new();
    if request.topics.is_empty() {
        wanted.extend(
            image
                .topics()
                .map(|topic| (topic.name.clone(), Some(topic))),
        );
    } else {
        wanted.extend(
            request
                .topics
                .iter()
                .map(|topic| (topic.name.clone(), image.topic(&topic.name))),
        );
    }
    wanted.split_off(from)
}

fn cursor_at(topic: &str, partition: i32) -> CursorResponse {
    CursorResponse {
        topic_name: topic.to_owned(),
        partition_index: partition,
    }
}

fn unknown(name: &str) -> DescribeTopicPartitionsResponseTopic {
    let error = if view::is_valid_topic_name(name) {
        ErrorCode::UnknownTopicOrPartition
    } else {
        ErrorCode::InvalidTopicException
    };
    DescribeTopicPartitionsResponseTopic {
        error_code: error.code(),
        name: Some(name.to_owned()),
        topic_id: TopicId::ZERO.0,
        topic_authorized_operations: view::OPERATIONS_NOT_ASKED,
        ..Default::default()
    }
}

fn described(
    image: &MetadataImage,
    topic: &TopicImage,
    page: &[i32],
    listener: &str,
) -> DescribeTopicPartitionsResponseTopic {
    let partitions = page.iter().filter_map(|index| {
        let partition = topic.partition(*index)?;
        let seen = view::partition(image, partition, listener);
        Some(DescribeTopicPartitionsResponsePartition {
            error_code: seen.error.code(),
            partition_index: *index,
            leader_id: seen.leader,
            leader_epoch: seen.leader_epoch,
            replica_nodes: seen.replicas,
            isr_nodes: seen.isr,
            eligible_leader_replicas: Some(view::numbers(&partition.elr)),
            last_known_elr: Some(view::numbers(&partition.last_known_elr)),
            offline_replicas: seen.offline,
        })
    });
    DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::None.code(),
        name: Some(topic.name.clone()),
        topic_id: topic.id.0,
        is_internal: view::is_internal(&topic.name),
        partitions: partitions.collect(),
        topic_authorized_operations: view::TOPIC_OPERATIONS,
    }
}
