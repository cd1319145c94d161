//! AlterConfigs as it used to be: the values given replace all that the resource has (API 33).

use kuorum_metadata::control::command::{
    Command, CommandReply, Outcome, ReplaceConfigs, ReplaceConfigsResource,
};
use kuorum_protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse,
};

use super::incremental_alter_configs::{PATIENCE, named_twice, refusal, stored_name, target};
use crate::context::Context;
use crate::handlers::forward;

/// How long an answer waits for the own image to show the change.
const SIGHT: std::time::Duration = std::time::Duration::from_secs(1);

/// Forwards what makes sense and tells what became of each resource.
pub async fn alter_configs(
    cx: &Context,
    request: AlterConfigsRequest,
    _version: i16,
) -> AlterConfigsResponse {
    let twice = named_twice(
        request
            .resources
            .iter()
            .map(|resource| (resource.resource_type, resource.resource_name.as_str())),
    );
    let mut answers: Vec<Option<Outcome>> = Vec::new();
    let mut wanted = Vec::new();
    for resource in &request.resources {
        if twice.contains(&(resource.resource_type, resource.resource_name.as_str())) {
            answers.push(Some(refusal("the request names this resource twice")));
            continue;
        }
        match target(resource.resource_type, &resource.resource_name) {
            Ok(target) => {
                let values = resource
                    .configs
                    .iter()
                    .map(|config| (config.name.clone(), config.value.clone()));
                wanted.push(ReplaceConfigsResource {
                    resource: target,
                    values: values.collect(),
                });
                answers.push(None);
            }
            Err(outcome) => answers.push(Some(outcome)),
        }
    }
    let mut outcomes = decide(cx, wanted, request.validate_only).await.into_iter();
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
    AlterConfigsResponse {
        responses: responses.collect(),
        ..Default::default()
    }
}

async fn decide(
    cx: &Context,
    wanted: Vec<ReplaceConfigsResource>,
    validate_only: bool,
) -> Vec<Outcome> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let replace = Command::ReplaceConfigs(ReplaceConfigs {
        resources: wanted.clone(),
        validate_only,
    });
    let results = match forward::command(cx, &replace, PATIENCE).await {
        Ok(CommandReply::AlterConfigs(results)) => results,
        Ok(_) => return vec![forward::senseless(); wanted.len()],
        Err(error) => return vec![forward::failed(&error); wanted.len()],
    };
    if !validate_only {
        let done: Vec<&ReplaceConfigsResource> = wanted
            .iter()
            .zip(&results)
            .filter_map(|(resource, result)| result.outcome.is_ok().then_some(resource))
            .collect();
        cx.metadata
            .wait_until(
                |image| {
                    done.iter().all(|resource| {
                        let set = image.configs_of(&resource.resource);
                        resource.values.iter().all(|(name, value)| {
                            let shown =
                                set.and_then(|set| set.get(stored_name(&resource.resource, name)));
                            shown.map(|shown| shown.trim()) == value.as_deref().map(str::trim)
                        })
                    })
                },
                SIGHT,
            )
            .await;
    }
    results.into_iter().map(|result| result.outcome).collect()
}
