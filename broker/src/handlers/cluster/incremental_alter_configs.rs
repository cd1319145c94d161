//! IncrementalAlterConfigs: sets, unsets, appends and subtracts single values (API 44, KIP-339).

use std::collections::HashSet;
use std::time::Duration;

use kuorum_metadata::MetadataImage;
use kuorum_metadata::config_def;
use kuorum_metadata::control::command::{
    AlterConfigs, AlterConfigsResource as WantedResource, AlterConfigsResult, Command,
    CommandReply, ConfigOp, ConfigOpKind, Outcome,
};
use kuorum_metadata::record::ConfigResource;
use kuorum_protocol::BrokerId;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};

use super::describe_configs::resource_type;
use crate::context::Context;
use crate::handlers::forward;

/// The request carries no timeout; Kafka's clients wait this long by default.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer waits for the own image to show the change.
const SIGHT: Duration = Duration::from_secs(1);

/// Forwards what makes sense and tells what became of each resource.
pub async fn incremental_alter_configs(
    cx: &Context,
    request: IncrementalAlterConfigsRequest,
    _version: i16,
) -> IncrementalAlterConfigsResponse {
    let twice = named_twice(
        request
            .resources
            .iter()
            .map(|resource| (resource.resource_type, resource.resource_name.as_str())),
    );
    let mut answers: Vec<Option<Outcome>> = Vec::new();
    let mut wanted = Vec::new();
    for resource in &request.resources {
        let name = (resource.resource_type, resource.resource_name.as_str());
        if twice.contains(&name) {
            answers.push(Some(refusal("the request names this resource twice")));
            continue;
        }
        match read(resource) {
            Ok(resource) => {
                wanted.push(resource);
                answers.push(None);
            }
            Err(outcome) => answers.push(Some(outcome)),
        }
    }
    let outcomes = decide(cx, wanted, request.validate_only).await;
    let mut outcomes = outcomes.into_iter();
    let responses = request
        .resources
        .into_iter()
        .zip(answers)
        .map(|(resource, answer)| {
            let outcome = answer
                .or_else(|| outcomes.next())
                .unwrap_or_else(forward::senseless);
            AlterConfigsResourceResponse {
                error_code: outcome.error,
                error_message: outcome.message,
                resource_type: resource.resource_type,
                resource_name: resource.resource_name,
            }
        });
    IncrementalAlterConfigsResponse {
        responses: responses.collect(),
        ..Default::default()
    }
}

/// The outcomes of what was forwarded, in its order.
async fn decide(cx: &Context, wanted: Vec<WantedResource>, validate_only: bool) -> Vec<Outcome> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let alter = Command::AlterConfigs(AlterConfigs {
        resources: wanted.clone(),
        validate_only,
    });
    let results = match forward::command(cx, &alter, PATIENCE).await {
        Ok(CommandReply::AlterConfigs(results)) => results,
        Ok(_) => return vec![forward::senseless(); wanted.len()],
        Err(error) => return vec![forward::failed(&error); wanted.len()],
    };
    if !validate_only {
        let done: Vec<&WantedResource> = wanted
            .iter()
            .zip(&results)
            .filter_map(|(resource, result)| result.outcome.is_ok().then_some(resource))
            .collect();
        cx.metadata
            .wait_until(
                |image| done.iter().all(|resource| shows(image, resource)),
                SIGHT,
            )
            .await;
    }
    results
        .into_iter()
        .map(|result: AlterConfigsResult| result.outcome)
        .collect()
}

/// Whether the image shows a change of values. What was appended or subtracted is not looked for.
fn shows(image: &MetadataImage, changed: &WantedResource) -> bool {
    let set = image.configs_of(&changed.resource);
    changed.ops.iter().all(|op| {
        let value = set.and_then(|set| set.get(stored_name(&changed.resource, &op.name)));
        match op.kind {
            ConfigOpKind::Set => {
                value.map(|value| value.trim()) == op.value.as_deref().map(str::trim)
            }
            ConfigOpKind::Delete => value.is_none(),
            ConfigOpKind::Append | ConfigOpKind::Subtract => true,
        }
    })
}

/// The name under which the image keeps a value.
pub fn stored_name<'a>(resource: &ConfigResource, name: &'a str) -> &'a str {
    match resource {
        ConfigResource::Topic(_) => name,
        _ => config_def::cluster_key(name).map_or(name, |key| key.name),
    }
}

fn read(resource: &AlterConfigsResource) -> Result<WantedResource, Outcome> {
    let target = target(resource.resource_type, &resource.resource_name)?;
    let mut seen = HashSet::new();
    let ops = resource.configs.iter().map(|config| {
        if !seen.insert(config.name.as_str()) {
            return Err(refusal(&format!("{} is changed twice", config.name)));
        }
        let kind = ConfigOpKind::from_wire(config.config_operation).ok_or_else(|| {
            refusal(&format!(
                "there is no operation {}",
                config.config_operation
            ))
        })?;
        Ok(ConfigOp {
            name: config.name.clone(),
            kind,
            value: config.value.clone(),
        })
    });
    Ok(WantedResource {
        resource: target,
        ops: ops.collect::<Result<_, _>>()?,
    })
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

/// The resources that occur more than once.
pub fn named_twice<'a>(names: impl Iterator<Item = (i8, &'a str)>) -> HashSet<(i8, &'a str)> {
    let mut seen = HashSet::new();
    names.filter(|name| !seen.insert(*name)).collect()
}
