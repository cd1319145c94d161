//! DescribeConfigs: every key of a topic or of a broker, the value in force and where it comes from (API 32).
//! Law: all known keys are in the answer: clients of AlterConfigs read, change and write back what they were told.

use std::collections::BTreeMap;

use kuorum_metadata::MetadataImage;
use kuorum_metadata::image::{ConfigSource, EffectiveValue};
use kuorum_metadata::record::ConfigResource;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
    DescribeConfigsResponse, DescribeConfigsResult, DescribeConfigsSynonym,
};

use super::view;
use crate::context::Context;

/// The wire's numbers of what can be configured.
pub mod resource_type {
    pub const TOPIC: i8 = 2;
    pub const BROKER: i8 = 4;
    pub const BROKER_LOGGER: i8 = 8;
    pub const CLIENT_METRICS: i8 = 16;
    pub const GROUP: i8 = 32;
}

/// Answers from the newest image, and for this broker's own keys from its file.
pub async fn describe_configs(
    cx: &Context,
    request: DescribeConfigsRequest,
    _version: i16,
) -> DescribeConfigsResponse {
    let image = cx.metadata.image();
    let this = ThisBroker {
        id: cx.membership.id.0,
        file: &cx.config.given,
    };
    DescribeConfigsResponse {
        results: request
            .resources
            .iter()
            .map(|resource| describe(&image, &this, resource, &request))
            .collect(),
        ..Default::default()
    }
}

/// What the image does not know of the broker that answers.
struct ThisBroker<'a> {
    id: i32,
    file: &'a BTreeMap<String, String>,
}

fn describe(
    image: &MetadataImage,
    this: &ThisBroker<'_>,
    resource: &DescribeConfigsResource,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResult {
    let blank = DescribeConfigsResult {
        resource_type: resource.resource_type,
        resource_name: resource.resource_name.clone(),
        ..Default::default()
    };
    match values(image, this, resource) {
        Err((error, message)) => DescribeConfigsResult {
            error_code: error.code(),
            error_message: Some(message),
            ..blank
        },
        Ok(values) => DescribeConfigsResult {
            configs: values
                .into_iter()
                .filter(|value| match &resource.configuration_keys {
                    None => true,
                    Some(keys) => keys.is_empty() || keys.iter().any(|key| key == value.key.name),
                })
                .map(|value| entry(value, request))
                .collect(),
            ..blank
        },
    }
}

fn values(
    image: &MetadataImage,
    this: &ThisBroker<'_>,
    resource: &DescribeConfigsResource,
) -> Result<Vec<EffectiveValue>, (ErrorCode, String)> {
    let name = resource.resource_name.as_str();
    match resource.resource_type {
        resource_type::TOPIC if image.topic(name).is_some() => Ok(image.describe_topic(name)),
        resource_type::TOPIC if view::is_valid_topic_name(name) => Err((
            ErrorCode::UnknownTopicOrPartition,
            format!("there is no topic {name}"),
        )),
        resource_type::TOPIC => Err((
            ErrorCode::InvalidTopicException,
            format!("{name} is not a topic's name"),
        )),
        // The cluster's default: what was set there, and nothing else.
        resource_type::BROKER if name.is_empty() => {
            let set = image.configs_of(&ConfigResource::ClusterDefault);
            Ok(image
                .describe_cluster()
                .into_iter()
                .filter(|value| set.is_some_and(|set| set.contains_key(value.key.name)))
                .collect())
        }
        resource_type::BROKER if name.parse() == Ok(this.id) => {
            Ok(image.describe_broker(kuorum_protocol::BrokerId(this.id), this.file))
        }
        resource_type::BROKER => Err((
            ErrorCode::InvalidRequest,
            format!(
                "this is broker {}, which cannot describe broker {name}",
                this.id
            ),
        )),
        // Nothing of the kind can be set yet.
        resource_type::CLIENT_METRICS | resource_type::GROUP => Ok(Vec::new()),
        other => Err((
            ErrorCode::InvalidRequest,
            format!("resources of type {other} have no configuration here"),
        )),
    }
}

fn entry(value: EffectiveValue, request: &DescribeConfigsRequest) -> DescribeConfigsResourceResult {
    let synonyms = value.synonyms.iter().map(|synonym| DescribeConfigsSynonym {
        name: synonym.name.to_owned(),
        value: Some(synonym.value.clone()),
        source: synonym.source as i8,
    });
    DescribeConfigsResourceResult {
        name: value.key.name.to_owned(),
        read_only: value.read_only,
        config_source: value.source as i8,
        is_sensitive: false,
        synonyms: if request.include_synonyms {
            synonyms.collect()
        } else {
            Vec::new()
        },
        config_type: value.key.kind.wire_type(),
        documentation: request
            .include_documentation
            .then(|| value.key.doc.to_owned()),
        value: value.value,
    }
}

/// One value of a topic, as CreateTopics tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicValue {
    pub name: String,
    pub value: Option<String>,
    pub read_only: bool,
    pub source: i8,
}

/// Every key of a topic that has `overrides`, whether the image shows the topic yet or not.
pub fn topic_values(
    image: &MetadataImage,
    topic: &str,
    overrides: &BTreeMap<String, String>,
) -> Vec<TopicValue> {
    image
        .describe_topic(topic)
        .into_iter()
        .map(|value| {
            let own = overrides.get(value.key.name).filter(|_| !value.read_only);
            TopicValue {
                name: value.key.name.to_owned(),
                source: own.map_or(value.source, |_| ConfigSource::Topic) as i8,
                value: own.cloned().or(value.value),
                read_only: value.read_only,
            }
        })
        .collect()
}
