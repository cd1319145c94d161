//! What a controller must decide: passed on to the active one, and waited for until this broker's own image shows it.
//! Law: nothing is decided here. A client that asked this broker finds in its next Metadata what it was promised.

use std::collections::BTreeMap;
use std::time::Duration;

use kuorum_metadata::control::command::{
    Command, CommandReply, CreateTopicResult, CreateTopics, NewTopic, Outcome,
};
use kuorum_metadata::image::MetadataImage;
use kuorum_protocol::error_code::ErrorCode;
use tracing::{debug, warn};

use crate::cluster::ControllerError;
use crate::context::Context;

/// How long at least a forwarded request may look for the active controller, whatever the client's own timeout.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);
/// And at most.
const MOST_PATIENCE: Duration = Duration::from_secs(60);
/// How long an answer waits for this broker's image to show what was decided.
const SIGHT_PATIENCE: Duration = Duration::from_secs(5);

/// A client's `timeout_ms` as a patience within bounds.
pub fn patience(timeout_ms: i32) -> Duration {
    let wanted = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    wanted.clamp(LEAST_PATIENCE, MOST_PATIENCE)
}

/// Asks the active controller.
pub async fn command(
    cx: &Context,
    command: &Command,
    patience: Duration,
) -> Result<CommandReply, ControllerError> {
    let reply = cx.controllers.command(command, patience).await;
    if let Err(error) = &reply {
        warn!(cause = %error, "a request could not be passed on to the controllers");
    }
    reply
}

/// Waits until the image satisfies `shown`, for as long as a client can be kept waiting.
pub async fn wait_until_shown(cx: &Context, shown: impl Fn(&MetadataImage) -> bool) {
    if !cx.metadata.wait_until(shown, SIGHT_PATIENCE).await {
        warn!("the controllers decided something that this broker's metadata does not show yet");
    }
}

/// The outcome that says why there is none.
pub fn failed(error: &ControllerError) -> Outcome {
    Outcome {
        error: ErrorCode::from(error).code(),
        message: Some(error.to_string()),
    }
}

/// An answer of the wrong kind: the controller speaks another version.
pub fn senseless() -> Outcome {
    Outcome {
        error: ErrorCode::UnknownServerError.code(),
        message: Some("the controller answered something else than was asked".to_owned()),
    }
}

/// Creates topics that a client named and that do not exist, with the cluster's defaults, and waits until they are
/// visible. Those that could not be made are returned with the reason a client should see; for all but a hopeless
/// one the client is told to ask again.
pub async fn create_missing_topics(
    cx: &Context,
    names: Vec<String>,
    patience: Duration,
) -> BTreeMap<String, ErrorCode> {
    let topics = names
        .iter()
        .map(|name| NewTopic {
            name: name.clone(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: Vec::new(),
            configs: Vec::new(),
        })
        .collect();
    let create = Command::CreateTopics(CreateTopics {
        topics,
        validate_only: false,
    });
    let reply = match cx.controllers.command(&create, patience).await {
        Ok(CommandReply::CreateTopics(results)) => results,
        Ok(_) => return BTreeMap::new(),
        Err(error) => {
            debug!(cause = %error, ?names, "topics could not be made on the way");
            return BTreeMap::new();
        }
    };
    let (made, refused): (Vec<CreateTopicResult>, Vec<CreateTopicResult>) =
        reply.into_iter().partition(|result| {
            // Somebody else may have been faster.
            result.outcome.is_ok() || result.outcome.code() == ErrorCode::TopicAlreadyExists
        });
    cx.metadata
        .wait_until(
            |image| made.iter().all(|topic| image.topic(&topic.name).is_some()),
            patience,
        )
        .await;
    refused
        .into_iter()
        .map(|result| {
            warn!(
                topic = %result.name,
                cause = result.outcome.message.as_deref().unwrap_or("unknown"),
                "a topic could not be made on the way"
            );
            let code = match result.outcome.code() {
                ErrorCode::InvalidTopicException => ErrorCode::InvalidTopicException,
                _ => ErrorCode::UnknownTopicOrPartition,
            };
            (result.name, code)
        })
        .collect()
}
