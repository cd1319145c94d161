//! DeleteTopics (API 20): decided by the controller, answered when this broker no longer shows the topic.

use kuorum_metadata::control::command::{
    Command, CommandReply, DeleteTopicResult, DeleteTopics, Outcome, TopicSelector,
};
use kuorum_protocol::TopicId;
use kuorum_protocol::messages::delete_topics::{
    DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse,
};

use crate::context::Context;
use crate::handlers::forward;

/// Forwards and waits for the own image.
pub async fn delete_topics(
    cx: &Context,
    request: DeleteTopicsRequest,
    version: i16,
) -> DeleteTopicsResponse {
    let topics = selected(&request, version);
    let delete = Command::DeleteTopics(DeleteTopics {
        topics: topics.clone(),
    });
    let results = match forward::command(cx, &delete, forward::patience(request.timeout_ms)).await {
        Ok(CommandReply::DeleteTopics(results)) => results,
        Ok(_) => failures(&topics, &forward::senseless()),
        Err(error) => failures(&topics, &forward::failed(&error)),
    };
    let gone: Vec<TopicId> = results
        .iter()
        .filter(|result| result.outcome.is_ok())
        .map(|result| result.topic_id)
        .collect();
    forward::wait_until_shown(cx, |image| {
        gone.iter().all(|id| image.topic_by_id(*id).is_none())
    })
    .await;
    DeleteTopicsResponse {
        responses: results
            .into_iter()
            .map(|result| answer(result, version))
            .collect(),
        ..Default::default()
    }
}

fn selected(request: &DeleteTopicsRequest, version: i16) -> Vec<TopicSelector> {
    if version < 6 {
        return request
            .topic_names
            .iter()
            .cloned()
            .map(TopicSelector::Name)
            .collect();
    }
    request
        .topics
        .iter()
        .map(|topic| match &topic.name {
            Some(name) => TopicSelector::Name(name.clone()),
            None => TopicSelector::Id(TopicId(topic.topic_id)),
        })
        .collect()
}

fn failures(topics: &[TopicSelector], outcome: &Outcome) -> Vec<DeleteTopicResult> {
    topics
        .iter()
        .map(|topic| {
            let (name, topic_id) = match topic {
                TopicSelector::Name(name) => (Some(name.clone()), TopicId::ZERO),
                TopicSelector::Id(id) => (None, *id),
            };
            DeleteTopicResult {
                name,
                topic_id,
                outcome: outcome.clone(),
            }
        })
        .collect()
}

fn answer(result: DeleteTopicResult, version: i16) -> DeletableTopicResult {
    DeletableTopicResult {
        name: if version < 6 {
            Some(result.name.unwrap_or_default())
        } else {
            result.name
        },
        topic_id: result.topic_id.0,
        error_code: result.outcome.error,
        error_message: result.outcome.message,
    }
}
