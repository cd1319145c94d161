//! ListPartitionReassignments (API 46): which partitions are being moved. Tools ask before they describe a topic.

use std::collections::BTreeMap;

use kuorum_metadata::image::MetadataImage;
use kuorum_protocol::messages::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment, OngoingTopicReassignment,
};

use super::view;
use crate::context::Context;

/// Answers from the newest image.
pub async fn list_partition_reassignments(
    cx: &Context,
    request: ListPartitionReassignmentsRequest,
    _version: i16,
) -> ListPartitionReassignmentsResponse {
    answer(&cx.metadata.image(), &request)
}

fn answer(
    image: &MetadataImage,
    request: &ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let asked_for = |topic: &str, index: i32| match &request.topics {
        None => true,
        Some(topics) => topics
            .iter()
            .any(|asked| asked.name == topic && asked.partition_indexes.contains(&index)),
    };
    let mut moving: BTreeMap<&str, Vec<OngoingPartitionReassignment>> = BTreeMap::new();
    for (topic, index, partition) in image.partitions() {
        let idle = partition.adding_replicas.is_empty() && partition.removing_replicas.is_empty();
        if idle || !asked_for(&topic.name, index) {
            continue;
        }
        moving
            .entry(&topic.name)
            .or_default()
            .push(OngoingPartitionReassignment {
                partition_index: index,
                replicas: view::numbers(&partition.replicas),
                adding_replicas: view::numbers(&partition.adding_replicas),
                removing_replicas: view::numbers(&partition.removing_replicas),
            });
    }
    ListPartitionReassignmentsResponse {
        topics: moving
            .into_iter()
            .map(|(name, partitions)| OngoingTopicReassignment {
                name: name.to_owned(),
                partitions,
            })
            .collect(),
        ..Default::default()
    }
}
