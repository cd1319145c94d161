//! CreateTopics (API 19): decided by the controller, answered when this broker shows the topic.

use std::collections::HashSet;

use kuorum_metadata::control::command::{
    Command, CommandReply, CreateTopicResult, CreateTopics, NewTopic, Outcome,
};
use kuorum_metadata::image::MetadataImage;
use kuorum_protocol::BrokerId;
use kuorum_protocol::TopicId;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest,
    CreateTopicsResponse,
};

use super::describe_configs;
use crate::context::Context;
use crate::handlers::forward;

/// Forwards, waits for the own image, and tells what each topic has become.
pub async fn create_topics(
    cx: &Context,
    request: CreateTopicsRequest,
    version: i16,
) -> CreateTopicsResponse {
    let twice = named_twice(request.topics.iter().map(|topic| topic.name.as_str()));
    let (refused, asked): (Vec<_>, Vec<_>) = request
        .topics
        .iter()
        .partition(|topic| twice.contains(topic.name.as_str()));
    let mut results: Vec<CreateTopicResult> = Vec::new();
    for name in refused
        .iter()
        .map(|topic| &topic.name)
        .collect::<HashSet<_>>()
    {
        results.push(failure(
            name,
            Outcome {
                error: ErrorCode::InvalidRequest.code(),
                message: Some("the request names this topic twice".to_owned()),
            },
        ));
    }
    if !asked.is_empty() {
        let create = Command::CreateTopics(CreateTopics {
            topics: asked.iter().map(|topic| wanted(topic)).collect(),
            validate_only: request.validate_only,
        });
        match forward::command(cx, &create, forward::patience(request.timeout_ms)).await {
            Ok(CommandReply::CreateTopics(replies)) => results.extend(replies),
            Ok(_) => results.extend(
                asked
                    .iter()
                    .map(|topic| failure(&topic.name, forward::senseless())),
            ),
            Err(error) => results.extend(
                asked
                    .iter()
                    .map(|topic| failure(&topic.name, forward::failed(&error))),
            ),
        }
    }
    if !request.validate_only {
        let made: Vec<TopicId> = results
            .iter()
            .filter(|result| result.outcome.is_ok())
            .map(|result| result.topic_id)
            .collect();
        forward::wait_until_shown(cx, |image| {
            made.iter().all(|id| image.topic_by_id(*id).is_some())
        })
        .await;
    }
    let image = cx.metadata.image();
    CreateTopicsResponse {
        topics: results
            .into_iter()
            .map(|result| answer(&image, result, version))
            .collect(),
        ..Default::default()
    }
}

/// The names that occur more than once.
pub fn named_twice<'a>(names: impl Iterator<Item = &'a str>) -> HashSet<String> {
    let mut seen = HashSet::new();
    names
        .filter(|name| !seen.insert(*name))
        .map(str::to_owned)
        .collect()
}

fn wanted(topic: &CreatableTopic) -> NewTopic {
    NewTopic {
        name: topic.name.clone(),
        num_partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments: topic
            .assignments
            .iter()
            .map(|assignment| {
                (
                    assignment.partition_index,
                    assignment
                        .broker_ids
                        .iter()
                        .copied()
                        .map(BrokerId)
                        .collect(),
                )
            })
            .collect(),
        configs: topic
            .configs
            .iter()
            .map(|config| (config.name.clone(), config.value.clone()))
            .collect(),
    }
}

fn failure(name: &str, outcome: Outcome) -> CreateTopicResult {
    CreateTopicResult {
        name: name.to_owned(),
        topic_id: TopicId::ZERO,
        outcome,
        num_partitions: -1,
        replication_factor: -1,
        configs: Default::default(),
    }
}

fn answer(image: &MetadataImage, result: CreateTopicResult, version: i16) -> CreatableTopicResult {
    let configs = (version >= 5 && result.outcome.is_ok()).then(|| {
        describe_configs::topic_values(image, &result.name, &result.configs)
            .into_iter()
            .map(|entry| CreatableTopicConfigs {
                name: entry.name,
                value: entry.value,
                read_only: entry.read_only,
                config_source: entry.source,
                is_sensitive: false,
            })
            .collect()
    });
    CreatableTopicResult {
        name: result.name,
        topic_id: result.topic_id.0,
        error_code: result.outcome.error,
        error_message: result.outcome.message,
        num_partitions: result.num_partitions,
        replication_factor: result.replication_factor,
        configs,
        ..Default::default()
    }
}
