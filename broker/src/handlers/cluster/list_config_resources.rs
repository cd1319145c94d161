//! ListConfigResources: what can have settings (API 74, KIP-1142).

use kuorum_metadata::MetadataImage;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::list_config_resources::{
    ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse,
};

use super::describe_configs::resource_type;
use crate::context::Context;

/// Answers from the newest image. Version 0 only asks for client metrics, of which there are none.
pub async fn list_config_resources(
    cx: &Context,
    request: ListConfigResourcesRequest,
    version: i16,
) -> ListConfigResourcesResponse {
    answer(&cx.metadata.image(), &request, version)
}

fn answer(
    image: &MetadataImage,
    request: &ListConfigResourcesRequest,
    version: i16,
) -> ListConfigResourcesResponse {
    const ALL: [i8; 5] = [
        resource_type::TOPIC,
        resource_type::BROKER,
        resource_type::BROKER_LOGGER,
        resource_type::CLIENT_METRICS,
        resource_type::GROUP,
    ];
    let types: &[i8] = match (version, request.resource_types.as_slice()) {
        (0, _) => &[resource_type::CLIENT_METRICS],
        (_, []) => &ALL,
        (_, types) => types,
    };
    if types.iter().any(|kind| !ALL.contains(kind)) {
        return ListConfigResourcesResponse {
            error_code: ErrorCode::UnsupportedVersion.code(),
            ..Default::default()
        };
    }
    let resource = |kind: i8, name: String| ConfigResource {
        resource_type: kind,
        resource_name: name,
    };
    let mut found = Vec::new();
    for kind in types {
        match *kind {
            resource_type::TOPIC => {
                found.extend(
                    image
                        .topics()
                        .map(|topic| resource(*kind, topic.name.clone())),
                );
            }
            resource_type::BROKER | resource_type::BROKER_LOGGER => {
                found.extend(
                    image
                        .brokers()
                        .map(|broker| resource(*kind, broker.id.to_string())),
                );
            }
            _ => {}
        }
    }
    ListConfigResourcesResponse {
        config_resources: found,
        ..Default::default()
    }
}
