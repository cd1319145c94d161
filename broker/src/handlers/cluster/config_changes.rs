//! What both ways of altering configurations share: resources are judged each for itself, forwarded together, and looked for
//! in the own image before the client hears of success.
//! Law: one outcome for each resource that was asked for, in that order. One named twice is changed by neither.

use std::collections::HashSet;
use std::time::Duration;

use kuorum_metadata::MetadataImage;
use kuorum_metadata::config_def;
use kuorum_metadata::control::command::{Command, CommandReply, Outcome};
use kuorum_metadata::record::ConfigResource;
use kuorum_protocol::BrokerId;
use kuorum_protocol::error_code::ErrorCode;

use super::describe_configs::resource_type;
use crate::context::Context;
use crate::handlers::forward;

/// The requests carry no timeout; Kafka's clients wait this long by default.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer waits for the own image to show the change.
const SIGHT: Duration = Duration::from_secs(1);

/// One resource of a request: what the client calls it, and what it wants of it, or why that makes no sense.
#[derive(Debug)]
pub struct Asked<'a, W> {
    pub kind: i8,
    pub name: &'a str,
    pub wanted: Result<W, Outcome>,
}

/// Asks the controllers for what makes sense, as one `command`. `shows` tells whether the image shows a change.
pub async fn change<W: Clone>(
    cx: &Context,
    asked: Vec<Asked<'_, W>>,
    validate_only: bool,
    command: impl FnOnce(Vec<W>) -> Command,
    shows: impl Fn(&MetadataImage, &W) -> bool,
) -> Vec<Outcome> {
    let names = asked.iter().map(|one| (one.kind, one.name));
    let mut seen = HashSet::new();
    let twice: HashSet<(i8, &str)> = names.filter(|name| !seen.insert(*name)).collect();
    let judged: Vec<Result<W, Outcome>> = asked
        .into_iter()
        .map(|one| match twice.contains(&(one.kind, one.name)) {
            true => Err(refusal("the request names this resource twice")),
            false => one.wanted,
        })
        .collect();
    let wanted: Vec<W> = judged
        .iter()
        .filter_map(|one| one.as_ref().ok())
        .cloned()
        .collect();
    let decided = match wanted.is_empty() {
        true => Vec::new(),
        false => decide(cx, &wanted, command(wanted.clone())).await,
    };
    if !validate_only {
        let is_done = |(_, outcome): &(&W, &Outcome)| outcome.is_ok();
        let done: Vec<&W> = wanted
            .iter()
            .zip(&decided)
            .filter(is_done)
            .map(|(one, _)| one)
            .collect();
        let all_shown = |image: &MetadataImage| done.iter().all(|one| shows(image, one));
        cx.metadata.wait_until(all_shown, SIGHT).await;
    }
    let mut decided = decided.into_iter();
    judged
        .into_iter()
        .map(|one| match one {
            Ok(_) => decided.next().unwrap_or_else(forward::senseless),
            Err(outcome) => outcome,
        })
        .collect()
}

async fn decide<W>(cx: &Context, wanted: &[W], command: Command) -> Vec<Outcome> {
    match forward::command(cx, &command, PATIENCE).await {
        Ok(CommandReply::AlterConfigs(results)) => {
            results.into_iter().map(|result| result.outcome).collect()
        }
        Ok(_) => vec![forward::senseless(); wanted.len()],
        Err(error) => vec![forward::failed(&error); wanted.len()],
    }
}

/// What the image shows under a name, as a value that can be compared.
pub fn shown<'a>(
    image: &'a MetadataImage,
    resource: &ConfigResource,
    name: &str,
) -> Option<&'a str> {
    let stored_name = match resource {
        ConfigResource::Topic(_) => name,
        _ => config_def::cluster_key(name).map_or(name, |key| key.name),
    };
    let value = image.configs_of(resource)?.get(stored_name)?;
    Some(value.trim())
}

/// What can be configured through the wire: topics, single brokers, and with an empty name the whole cluster.
pub fn target(kind: i8, name: &str) -> Result<ConfigResource, Outcome> {
    match kind {
        resource_type::TOPIC => Ok(ConfigResource::Topic(name.to_owned())),
        resource_type::BROKER if name.is_empty() => Ok(ConfigResource::ClusterDefault),
        resource_type::BROKER => name
            .parse()
            .map(|id| ConfigResource::Broker(BrokerId(id)))
            .map_err(|_| refusal(&format!("{name} is not a broker's number"))),
        other => Err(refusal(&format!(
            "resources of type {other} cannot be configured here"
        ))),
    }
}

/// INVALID_REQUEST, and why.
pub fn refusal(message: &str) -> Outcome {
    Outcome {
        error: ErrorCode::InvalidRequest.code(),
        message: Some(message.to_owned()),
    }
}
