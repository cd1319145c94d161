//! Configuration is changed live: of a topic, of the cluster's default, of a broker.
//! Law: a resource's changes are taken all or none, and what is recorded has passed the table. A value the whole cluster
//! shares has no per-broker variant; internal topics never allow unclean elections.

use std::collections::{BTreeMap, BTreeSet};

use imbl::OrdMap;
use kuorum_protocol::error_code::ErrorCode;

use super::command::{
    AlterConfigs, AlterConfigsResult, ConfigOp, ConfigOpKind, Outcome, ReplaceConfigs,
};
use super::{Decision, Refusal, brokers};
use crate::config_def::{
    ConfigKey, cluster_key, did_you_mean, did_you_mean_topic_key, file_key, items, topic_key,
};
use crate::image::{MetadataImage, is_internal_topic};
use crate::record::{ConfigResource, MetadataRecord};

const UNCLEAN: &str = "unclean.leader.election.enable";

/// Applies operations, each to one value (KIP-339).
pub fn alter(image: &MetadataImage, request: &AlterConfigs) -> Decision<Vec<AlterConfigsResult>> {
    let resources = request.resources.iter().map(|change| &change.resource);
    let repeated = repeated(resources);
    let changes = request.resources.iter().map(|change| {
        let wanted = match repeated.contains(&change.resource) {
            true => Err(named_twice()),
            false => after_operations(image, &change.resource, &change.ops),
        };
        (&change.resource, wanted)
    });
    record(image, changes, request.validate_only)
}

/// Replaces all that is set for a resource by what is given.
pub fn replace(
    image: &MetadataImage,
    request: &ReplaceConfigs,
) -> Decision<Vec<AlterConfigsResult>> {
    let resources = request.resources.iter().map(|change| &change.resource);
    let repeated = repeated(resources);
    let changes = request.resources.iter().map(|change| {
        let wanted = match repeated.contains(&change.resource) {
            true => Err(named_twice()),
            false => replaced(image, &change.resource, &change.values),
        };
        (&change.resource, wanted)
    });
    record(image, changes, request.validate_only)
}

/// Whether a topic may have these overrides, each by itself and all together.
pub fn check_topic_values(
    image: &MetadataImage,
    topic: &str,
    values: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    for (name, value) in values {
        let key = topic_key(name).ok_or_else(|| unknown(name, did_you_mean_topic_key(name)))?;
        key.check(value)
            .map_err(|error| Refusal::new(ErrorCode::InvalidConfig, error.message))?;
        if key.name == UNCLEAN && value.trim() == "true" && is_internal_topic(topic) {
            return Err(Refusal::new(
                ErrorCode::InvalidConfig,
                format!("{UNCLEAN} is pinned to false for {topic}"),
            ));
        }
    }
    let number = |name: &str| -> i64 {
        let given = values.get(name).and_then(|value| value.trim().parse().ok());
        given.unwrap_or_else(|| {
            let in_force = image.effective_topic_value(topic, name);
            in_force
                .and_then(|value| value.parse().ok())
                .unwrap_or_default()
        })
    };
    let lags = ["min.compaction.lag.ms", "max.compaction.lag.ms"];
    if lags.iter().any(|lag| values.contains_key(*lag)) && number(lags[0]) > number(lags[1]) {
        return Err(Refusal::new(
            ErrorCode::InvalidConfig,
            format!("{} must not be above {}", lags[0], lags[1]),
        ));
    }
    Ok(())
}

/// The values a resource shall have, or why not.
type Wanted = Result<BTreeMap<String, String>, Refusal>;

fn record<'a>(
    image: &MetadataImage,
    changes: impl Iterator<Item = (&'a ConfigResource, Wanted)>,
    validate_only: bool,
) -> Decision<Vec<AlterConfigsResult>> {
    let mut records = Vec::new();
    let mut response = Vec::new();
    for (resource, wanted) in changes {
        let outcome = match wanted {
            Err(refusal) => refusal.into(),
            Ok(wanted) => {
                if !validate_only {
                    records.extend(difference(image, resource, &wanted));
                }
                Outcome::ok()
            }
        };
        response.push(AlterConfigsResult {
            resource: resource.clone(),
            outcome,
        });
    }
    Decision { records, response }
}

/// The records that turn what a resource has into what it shall have.
fn difference(
    image: &MetadataImage,
    resource: &ConfigResource,
    wanted: &BTreeMap<String, String>,
) -> Vec<MetadataRecord> {
    let present = values_of(image, resource);
    let set = |name: &str, value: Option<String>| MetadataRecord::Config {
        resource: resource.clone(),
        name: name.to_owned(),
        value,
    };
    let removed = present
        .keys()
        .filter(|name| !wanted.contains_key(*name))
        .map(|name| set(name, None));
    let changed = wanted
        .iter()
        .filter(|(name, value)| present.get(*name) != Some(*value))
        .map(|(name, value)| set(name, Some(value.clone())));
    removed.chain(changed).collect()
}

fn after_operations(image: &MetadataImage, resource: &ConfigResource, ops: &[ConfigOp]) -> Wanted {
    check_resource(image, resource)?;
    let mut wanted = values_of(image, resource);
    let mut seen = BTreeSet::new();
    for op in ops {
        let key = key_of(resource, &op.name)?;
        if !seen.insert(key.name) {
            return Err(Refusal::new(
                ErrorCode::InvalidRequest,
                format!("the request changes {} twice", key.name),
            ));
        }
        let value = match op.kind {
            ConfigOpKind::Delete => {
                wanted.remove(key.name);
                continue;
            }
            ConfigOpKind::Set => op.value.clone(),
            ConfigOpKind::Append | ConfigOpKind::Subtract if !key.kind.is_list() => {
                return Err(Refusal::new(
                    ErrorCode::InvalidConfig,
                    format!(
                        "{} is no list: nothing can be appended or subtracted",
                        key.name
                    ),
                ));
            }
            ConfigOpKind::Append | ConfigOpKind::Subtract => {
                let change = op.value.as_deref().unwrap_or_default();
                let present = wanted
                    .get(key.name)
                    .cloned()
                    .or_else(|| in_force(image, resource, key))
                    .unwrap_or_default();
                Some(edit_list(&present, change, op.kind))
            }
        };
        let Some(value) = value else {
            return Err(Refusal::new(
                ErrorCode::InvalidRequest,
                format!("no value was given for {}", key.name),
            ));
        };
        wanted.insert(key.name.to_owned(), value);
    }
    check_values(image, resource, &wanted)?;
    Ok(wanted)
}

fn replaced(
    image: &MetadataImage,
    resource: &ConfigResource,
    values: &[(String, Option<String>)],
) -> Wanted {
    check_resource(image, resource)?;
    let mut wanted = BTreeMap::new();
    for (name, value) in values {
        let key = key_of(resource, name)?;
        if let Some(value) = value {
            wanted.insert(key.name.to_owned(), value.clone());
        }
    }
    check_values(image, resource, &wanted)?;
    Ok(wanted)
}

fn check_resource(image: &MetadataImage, resource: &ConfigResource) -> Result<(), Refusal> {
    match resource {
        ConfigResource::Topic(name) if image.topic(name).is_none() => Err(Refusal::new(
            ErrorCode::UnknownTopicOrPartition,
            format!("there is no topic {name}"),
        )),
        ConfigResource::Broker(id) => brokers::registered(image, *id).map(drop),
        ConfigResource::ControllerFile => Err(Refusal::new(
            ErrorCode::InvalidRequest,
            "what a controller's file says is changed in the file",
        )),
        ConfigResource::Topic(_) | ConfigResource::ClusterDefault => Ok(()),
    }
}

/// The row of a key as far as it can be changed for this resource.
fn key_of(resource: &ConfigResource, name: &str) -> Result<&'static ConfigKey, Refusal> {
    let refuse = |message: String| Err(Refusal::new(ErrorCode::InvalidConfig, message));
    match resource {
        ConfigResource::Topic(_) => {
            topic_key(name).ok_or_else(|| unknown(name, did_you_mean_topic_key(name)))
        }
        ConfigResource::ClusterDefault => match (cluster_key(name), file_key(name)) {
            (Some(key), _) => Ok(key),
            (None, Some(_)) => refuse(format!(
                "{name} can only be changed in the file, followed by a restart"
            )),
            (None, None) => Err(unknown(name, did_you_mean(name))),
        },
        ConfigResource::Broker(_) | ConfigResource::ControllerFile => {
            match (cluster_key(name), file_key(name)) {
                (Some(key), _) if key.is_per_broker() => Ok(key),
                (Some(_), _) => refuse(format!(
                    "{name} has one value for the whole cluster; set it as the cluster's default (--entity-default)"
                )),
                (None, Some(_)) => refuse(format!(
                    "{name} can only be changed in the broker's file, followed by a restart"
                )),
                (None, None) => Err(unknown(name, did_you_mean(name))),
            }
        }
    }
}

fn check_values(
    image: &MetadataImage,
    resource: &ConfigResource,
    values: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    if let ConfigResource::Topic(topic) = resource {
        return check_topic_values(image, topic, values);
    }
    for (name, value) in values {
        key_of(resource, name)?
            .check(value)
            .map_err(|error| Refusal::new(ErrorCode::InvalidConfig, error.message))?;
    }
    Ok(())
}

/// What holds for a key of a resource that has no value of its own.
fn in_force(
    image: &MetadataImage,
    resource: &ConfigResource,
    key: &'static ConfigKey,
) -> Option<String> {
    match resource {
        ConfigResource::Topic(topic) => image.effective_topic_value(topic, key.name),
        _ => image.cluster_value(key.name),
    }
}

fn edit_list(present: &str, change: &str, kind: ConfigOpKind) -> String {
    let mut list: Vec<&str> = items(present).collect();
    for item in items(change) {
        match kind {
            ConfigOpKind::Subtract => list.retain(|member| *member != item),
            _ if list.contains(&item) => {}
            _ => list.push(item),
        }
    }
    list.join(",")
}

fn values_of(image: &MetadataImage, resource: &ConfigResource) -> BTreeMap<String, String> {
    let values: Option<&OrdMap<String, String>> = image.configs_of(resource);
    let pairs = values.into_iter().flatten();
    pairs
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn repeated<'a>(resources: impl Iterator<Item = &'a ConfigResource>) -> BTreeSet<ConfigResource> {
    let mut seen = BTreeSet::new();
    resources
        .filter(|resource| !seen.insert(*resource))
        .cloned()
        .collect()
}

fn named_twice() -> Refusal {
    Refusal::new(
        ErrorCode::InvalidRequest,
        "the request names the resource twice",
    )
}

fn unknown(name: &str, suggestion: Option<&str>) -> Refusal {
    let suggestion = match suggestion {
        Some(known) => format!("; did you mean {known}?"),
        None => String::new(),
    };
    Refusal::new(
        ErrorCode::InvalidConfig,
        format!("unknown configuration key {name}{suggestion}"),
    )
}
