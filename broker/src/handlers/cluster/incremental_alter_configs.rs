//! IncrementalAlterConfigs: sets, unsets, appends and subtracts single values (API 44, KIP-339).

use std::collections::HashSet;

use kuorum_metadata::MetadataImage;
use kuorum_metadata::control::command::{
    AlterConfigs, AlterConfigsResource as Wanted, Command, ConfigOp, ConfigOpKind, Outcome,
};
use kuorum_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};

use super::config_changes::{Asked, change, refusal, shown, target};
use crate::context::Context;

/// Forwards what makes sense and tells what became of each resource.
pub async fn incremental_alter_configs(
    cx: &Context,
    request: IncrementalAlterConfigsRequest,
    _version: i16,
) -> IncrementalAlterConfigsResponse {
    let validate_only = request.validate_only;
    let asked = request.resources.iter().map(|resource| Asked {
        kind: resource.resource_type,
        name: &resource.resource_name,
        wanted: read(resource),
    });
    let command = |resources| {
        Command::AlterConfigs(AlterConfigs {
            resources,
            validate_only,
        })
    };
    let outcomes = change(cx, asked.collect(), validate_only, command, shows).await;
    let answered = request.resources.into_iter().zip(outcomes);
    IncrementalAlterConfigsResponse {
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
    Ok(Wanted {
        resource: target,
        ops: ops.collect::<Result<_, _>>()?,
    })
}

/// Whether the image shows a change of values. What was appended or subtracted is not looked for.
fn shows(image: &MetadataImage, changed: &Wanted) -> bool {
    changed.ops.iter().all(|op| {
        let value = shown(image, &changed.resource, &op.name);
        match op.kind {
            ConfigOpKind::Set => value == op.value.as_deref().map(str::trim),
            ConfigOpKind::Delete => value.is_none(),
            ConfigOpKind::Append | ConfigOpKind::Subtract => true,
        }
    })
}
