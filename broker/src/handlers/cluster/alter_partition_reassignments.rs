//! AlterPartitionReassignments (API 45): passed on to the controller (KIP-455).

use kuorum_metadata::MetadataImage;
use kuorum_metadata::control::command::{
    Command, CommandReply, Reassign, ReassignPartition, ReassignResult,
};
use kuorum_protocol::BrokerId;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse, ReassignableTopicResponse,
};

use crate::context::Context;
use crate::handlers::forward;

/// Forwards, and waits until this broker's metadata shows what was begun or taken back.
pub async fn alter_partition_reassignments(
    cx: &Context,
    request: AlterPartitionReassignmentsRequest,
    _version: i16,
) -> AlterPartitionReassignmentsResponse {
    let allow_replication_factor_change = request.allow_replication_factor_change;
    let timeout_ms = request.timeout_ms;
    let wanted = partitions(request);
    let command = Command::Reassign(Reassign {
        partitions: wanted.clone(),
        allow_replication_factor_change,
        ..Reassign::default()
    });
    let answer = AlterPartitionReassignmentsResponse {
        allow_replication_factor_change,
        ..Default::default()
    };
    let failed = match forward::command(cx, &command, forward::patience(timeout_ms)).await {
        Ok(CommandReply::Reassign(results)) => {
            let shown = |image: &MetadataImage| {
                let mut decided = wanted.iter().zip(&results);
                decided.all(|(wanted, result)| !result.outcome.is_ok() || shows(image, wanted))
            };
            forward::wait_until_shown(cx, shown).await;
            return AlterPartitionReassignmentsResponse {
                responses: by_topic(results),
                ..answer
            };
        }
        Ok(_) => forward::senseless(),
        Err(error) => forward::failed(&error),
    };
    AlterPartitionReassignmentsResponse {
        error_code: failed.error,
        error_message: failed.message,
        ..answer
    }
}

fn partitions(request: AlterPartitionReassignmentsRequest) -> Vec<ReassignPartition> {
    let mut partitions = Vec::new();
    for topic in request.topics {
        partitions.extend(topic.partitions.into_iter().map(|partition| {
            let replicas = partition.replicas;
            ReassignPartition {
                topic: topic.name.clone(),
                partition: partition.partition_index,
                replicas: replicas.map(|ids| ids.into_iter().map(BrokerId).collect()),
            }
        }));
    }
    partitions
}

/// Whether the image shows what was asked for; of a topic that is gone there is nothing to show.
fn shows(image: &MetadataImage, wanted: &ReassignPartition) -> bool {
    let topic = image.topic(&wanted.topic);
    let Some(partition) = topic.and_then(|topic| topic.partition(wanted.partition)) else {
        return true;
    };
    match &wanted.replicas {
        Some(replicas) => partition.target_replicas() == *replicas,
        None => !partition.is_reassigning(),
    }
}

/// In the order of the request, in which a topic's partitions stand together.
fn by_topic(results: Vec<ReassignResult>) -> Vec<ReassignableTopicResponse> {
    let mut topics: Vec<ReassignableTopicResponse> = Vec::new();
    for result in results {
        let partition = ReassignablePartitionResponse {
            partition_index: result.partition,
            error_code: ErrorCode::from(result.outcome.error).code(),
            error_message: result.outcome.message,
        };
        match topics.last_mut() {
            Some(last) if last.name == result.topic => last.partitions.push(partition),
            _ => topics.push(ReassignableTopicResponse {
                name: result.topic,
                partitions: vec![partition],
            }),
        }
    }
    topics
}
