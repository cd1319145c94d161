//! ElectLeaders (API 43): passed on to the controller.

use std::collections::BTreeMap;

use kuorum_metadata::control::command::{
    Command, CommandReply, ElectLeaders, ElectLeadersResult, ElectionType,
};
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::elect_leaders::{
    ElectLeadersRequest, ElectLeadersResponse, PartitionResult, ReplicaElectionResult,
};

use crate::context::Context;
use crate::handlers::forward;

/// Forwards. Version 0 knows only preferred elections.
pub async fn elect_leaders(
    cx: &Context,
    request: ElectLeadersRequest,
    version: i16,
) -> ElectLeadersResponse {
    let kind = if version == 0 {
        0
    } else {
        request.election_type
    };
    let Some(election) = ElectionType::from_wire(kind) else {
        return refused(ErrorCode::InvalidRequest.code());
    };
    let partitions = request.topic_partitions.as_ref().map(|topics| {
        topics
            .iter()
            .flat_map(|topic| {
                topic
                    .partitions
                    .iter()
                    .map(|index| (topic.topic.clone(), *index))
            })
            .collect()
    });
    let elect = Command::ElectLeaders(ElectLeaders {
        election,
        partitions,
    });
    match forward::command(cx, &elect, forward::patience(request.timeout_ms)).await {
        Ok(CommandReply::ElectLeaders(results)) => ElectLeadersResponse {
            replica_election_results: by_topic(results),
            ..Default::default()
        },
        Ok(_) => refused(ErrorCode::UnknownServerError.code()),
        Err(error) => refused(ErrorCode::from(&error).code()),
    }
}

fn refused(error_code: i16) -> ElectLeadersResponse {
    ElectLeadersResponse {
        error_code,
        ..Default::default()
    }
}

fn by_topic(results: Vec<ElectLeadersResult>) -> Vec<ReplicaElectionResult> {
    let mut topics: BTreeMap<String, Vec<PartitionResult>> = BTreeMap::new();
    for result in results {
        topics
            .entry(result.topic)
            .or_default()
            .push(PartitionResult {
                partition_id: result.partition,
                error_code: result.outcome.error,
                error_message: result.outcome.message,
            });
    }
    topics
        .into_iter()
        .map(|(topic, partition_result)| ReplicaElectionResult {
            topic,
            partition_result,
        })
        .collect()
}
