//! CreatePartitions (API 37): decided by the controller, answered when this broker shows the new partitions.

use std::collections::HashSet;

use kuorum_metadata::control::command::{
    Command, CommandReply, CreatePartitions, CreatePartitionsResult, NewPartitions, Outcome,
};
use kuorum_protocol::BrokerId;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic,
    CreatePartitionsTopicResult,
};

use super::create_topics::named_twice;
use crate::context::Context;
use crate::handlers::forward;

/// Forwards and waits for the own image. Every topic of the request is in the answer.
pub async fn create_partitions(
    cx: &Context,
    request: CreatePartitionsRequest,
    _version: i16,
) -> CreatePartitionsResponse {
    let twice = named_twice(request.topics.iter().map(|topic| topic.name.as_str()));
    let (refused, asked): (Vec<_>, Vec<_>) = request
        .topics
        .iter()
        .partition(|topic| twice.contains(topic.name.as_str()));
    let mut results: Vec<CreatePartitionsResult> = Vec::new();
    for name in refused
        .iter()
        .map(|topic| &topic.name)
        .collect::<HashSet<_>>()
    {
        let outcome = Outcome {
            error: ErrorCode::InvalidRequest.code(),
            message: Some("the request names this topic twice".to_owned()),
        };
        results.push(CreatePartitionsResult {
            name: name.clone(),
            outcome,
        });
    }
    if !asked.is_empty() {
        let create = Command::CreatePartitions(CreatePartitions {
            topics: asked.iter().map(|topic| wanted(topic)).collect(),
            validate_only: request.validate_only,
        });
        let all = |outcome: Outcome| {
            asked.iter().map(move |topic| CreatePartitionsResult {
                name: topic.name.clone(),
                outcome: outcome.clone(),
            })
        };
        match forward::command(cx, &create, forward::patience(request.timeout_ms)).await {
            Ok(CommandReply::CreatePartitions(replies)) => results.extend(replies),
            Ok(_) => results.extend(all(forward::senseless())),
            Err(error) => results.extend(all(forward::failed(&error))),
        }
    }
    if !request.validate_only {
        let grown: Vec<(&str, usize)> = results
            .iter()
            .filter(|result| result.outcome.is_ok())
            .filter_map(|result| {
                let topic = asked.iter().find(|topic| topic.name == result.name)?;
                Some((topic.name.as_str(), usize::try_from(topic.count).ok()?))
            })
            .collect();
        forward::wait_until_shown(cx, |image| {
            grown.iter().all(|(name, count)| {
                image
                    .topic(name)
                    .is_none_or(|topic| topic.partitions.len() >= *count)
            })
        })
        .await;
    }
    CreatePartitionsResponse {
        results: results
            .into_iter()
            .map(|result| CreatePartitionsTopicResult {
                name: result.name,
                error_code: result.outcome.error,
                error_message: result.outcome.message,
            })
            .collect(),
        ..Default::default()
    }
}

fn wanted(topic: &CreatePartitionsTopic) -> NewPartitions {
    NewPartitions {
        name: topic.name.clone(),
        count: topic.count,
        assignments: topic.assignments.as_ref().map(|assignments| {
            assignments
                .iter()
                .map(|assignment| {
                    assignment
                        .broker_ids
                        .iter()
                        .copied()
                        .map(BrokerId)
                        .collect()
                })
                .collect()
        }),
    }
}
