//! AlterConfigs as it used to be: the values given replace all that the resource has (API 33).

use kuorum_metadata::MetadataImage;
use kuorum_metadata::control::command::{
    Command, Outcome, ReplaceConfigs, ReplaceConfigsResource as Wanted,
};
use kuorum_protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResource, AlterConfigsResourceResponse, AlterConfigsResponse,
};

use super::config_changes::{Asked, change, shown, target};
use crate::context::Context;

/// Forwards what makes sense and tells what became of each resource.
pub async fn alter_configs(
    cx: &Context,
    request: AlterConfigsRequest,
    _version: i16,
) -> AlterConfigsResponse {
    let validate_only = request.validate_only;
    let asked = request.resources.iter().map(|resource| Asked {
        kind: resource.resource_type,
        name: &resource.resource_name,
        wanted: read(resource),
    });
    let command = |resources| {
        Command::ReplaceConfigs(ReplaceConfigs {
            resources,
            validate_only,
        })
    };
    let outcomes = change(cx, asked.collect(), validate_only, command, shows).await;
    let answered = request.resources.into_iter().zip(outcomes);
    AlterConfigsResponse {
        responses: answered
            .map(|(resource, outcome)| AlterConfigsResourceResponse {
                error_code: outcome.error,
                error_message: outcome.message,
                resource_type: resource.resource_type,
                resource_name: resource.resource_name,
            })
            .collect(),
        ..Default::default()
    }
}

fn read(resource: &AlterConfigsResource) -> Result<Wanted, Outcome> {
    let values = resource
        .configs
        .iter()
        .map(|config| (config.name.clone(), config.value.clone()));
    Ok(Wanted {
        resource: target(resource.resource_type, &resource.resource_name)?,
        values: values.collect(),
    })
}

fn shows(image: &MetadataImage, changed: &Wanted) -> bool {
    changed.values.iter().all(|(name, value)| {
        shown(image, &changed.resource, name) == value.as_deref().map(str::trim)
    })
}
