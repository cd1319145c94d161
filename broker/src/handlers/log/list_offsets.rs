//! ListOffsets: where a log begins and ends, or reaches a time (API 2).
//! Law: consumers see the end that they may read to, replicas the end of the log.

use std::collections::{HashMap, HashSet};

use kuorum_metadata::image::MetadataImage;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::list_offsets::{
    EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, ListOffsetsPartition,
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse, MAX_TIMESTAMP,
};
use kuorum_protocol::{BrokerEpoch, BrokerId, LeaderEpoch, Timestamp, TopicId};

use super::leaders;
use crate::authorizer::{Operation, Resource};
use crate::context::Context;
use crate::partition::{FoundOffset, Isolation, OffsetQuery, ReadError, Reader};

/// OFFSET_NOT_AVAILABLE is known to clients from this version on.
const KNOWS_NOT_AVAILABLE: i16 = 5;

/// Answers partition by partition.
pub async fn list_offsets(
    cx: &Context,
    request: ListOffsetsRequest,
    version: i16,
) -> ListOffsetsResponse {
    let image = cx.metadata.image();
    let twice = named_twice(&request);
    let reader = match request.replica_id {
        0.. if cx.is_internal() => Reader::Replica {
            broker: BrokerId(request.replica_id),
            broker_epoch: BrokerEpoch::UNKNOWN,
        },
        _ => Reader::Consumer {
            isolation: match request.isolation_level {
                1 => Isolation::ReadCommitted,
                _ => Isolation::ReadUncommitted,
            },
        },
    };
    let topics = request
        .topics
        .into_iter()
        .map(|topic| {
            let partitions = topic
                .partitions
                .iter()
                .map(|asked| {
                    let found = if twice.contains(&(topic.name.clone(), asked.partition_index)) {
                        Err(ErrorCode::InvalidRequest)
                    } else {
                        one(cx, &image, &topic.name, asked, reader, version)
                    };
                    on_the_wire(asked.partition_index, found)
                })
                .collect();
            ListOffsetsTopicResponse {
                name: topic.name,
                partitions,
            }
        })
        .collect();
    ListOffsetsResponse {
        topics,
        ..ListOffsetsResponse::default()
    }
}

fn named_twice(request: &ListOffsetsRequest) -> HashSet<(String, i32)> {
    let mut times: HashMap<(&str, i32), u32> = HashMap::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            *times
                .entry((&topic.name, partition.partition_index))
                .or_default() += 1;
        }
    }
    times
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|((name, index), _)| (name.to_owned(), index))
        .collect()
}

/// What a timestamp asks for in that version; `None` for LATEST_TIERED, which is nowhere without tiers.
fn query(timestamp: i64, version: i16) -> Result<Option<OffsetQuery>, ErrorCode> {
    let (since, query) = match timestamp {
        LATEST => (1, Some(OffsetQuery::Latest)),
        EARLIEST => (1, Some(OffsetQuery::Earliest)),
        MAX_TIMESTAMP => (7, Some(OffsetQuery::MaxTimestamp)),
        EARLIEST_LOCAL => (8, Some(OffsetQuery::Earliest)),
        LATEST_TIERED => (9, None),
        0.. => (1, Some(OffsetQuery::At(Timestamp(timestamp)))),
        _ => return Err(ErrorCode::UnsupportedVersion),
    };
    if version < since {
        return Err(ErrorCode::UnsupportedVersion);
    }
    Ok(query)
}

fn one(
    cx: &Context,
    image: &MetadataImage,
    topic: &str,
    asked: &ListOffsetsPartition,
    reader: Reader,
    version: i16,
) -> Result<Option<FoundOffset>, ErrorCode> {
    let query = query(asked.timestamp, version)?;
    let topic = leaders::topic(image, topic, TopicId::ZERO, false)?;
    if !cx.may(Operation::Describe, Resource::Topic(&topic.name)) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    let hosted = leaders::replica(cx, topic, asked.partition_index)?;
    let Some(query) = query else {
        return Ok(None);
    };
    let epoch =
        (asked.current_leader_epoch >= 0).then_some(LeaderEpoch(asked.current_leader_epoch));
    cx.replicas
        .with(&hosted, |partition, fx| {
            partition.list_offset(query, epoch, reader, fx)
        })
        .map_err(|error| match error {
            ReadError::OffsetNotAvailable if version < KNOWS_NOT_AVAILABLE => {
                ErrorCode::LeaderNotAvailable
            }
            error => (&error).into(),
        })
}

fn on_the_wire(
    index: i32,
    found: Result<Option<FoundOffset>, ErrorCode>,
) -> ListOffsetsPartitionResponse {
    let nothing = ListOffsetsPartitionResponse {
        partition_index: index,
        ..ListOffsetsPartitionResponse::default()
    };
    match found {
        Ok(Some(found)) => ListOffsetsPartitionResponse {
            timestamp: found.timestamp.0,
            offset: found.offset.0,
            leader_epoch: found.leader_epoch.0,
            ..nothing
        },
        Ok(None) => nothing,
        Err(error) => ListOffsetsPartitionResponse {
            error_code: error.code(),
            ..nothing
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_timestamp_asks_for() {
        let at = |ms| Ok(Some(OffsetQuery::At(Timestamp(ms))));
        let unsupported = Err(ErrorCode::UnsupportedVersion);
        let rows = [
            (-1, 1, Ok(Some(OffsetQuery::Latest))),
            (-2, 1, Ok(Some(OffsetQuery::Earliest))),
            (-3, 6, unsupported),
            (-3, 7, Ok(Some(OffsetQuery::MaxTimestamp))),
            (-4, 7, unsupported),
            (-4, 8, Ok(Some(OffsetQuery::Earliest))),
            (-5, 8, unsupported),
            (-5, 9, Ok(None)),
            (-6, 10, unsupported),
            (i64::MIN, 10, unsupported),
            (0, 1, at(0)),
            (1_767_225_600_000, 10, at(1_767_225_600_000)),
        ];
        for (timestamp, version, expected) in rows {
            assert_eq!(
                query(timestamp, version),
                expected,
                "{timestamp} v{version}"
            );
        }
    }
}
