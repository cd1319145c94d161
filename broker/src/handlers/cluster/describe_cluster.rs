//! DescribeCluster: the brokers and what the cluster is called (API 60).

use kuorum_metadata::image::MetadataImage;
use kuorum_protocol::error_code::ErrorCode;
use kuorum_protocol::messages::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};

use super::view;
use crate::context::Context;

/// `endpoint_type` of brokers; 2 would be controllers, which clients never see.
const BROKERS: i8 = 1;

/// Answers from the newest image.
pub async fn describe_cluster(
    cx: &Context,
    request: DescribeClusterRequest,
    _version: i16,
) -> DescribeClusterResponse {
    answer(
        &cx.metadata.image(),
        &request,
        &cx.config.cluster_id,
        &cx.listener,
        cx.clock.random(),
    )
}

pub(super) fn answer(
    image: &MetadataImage,
    request: &DescribeClusterRequest,
    cluster_id: &str,
    listener: &str,
    draw: u64,
) -> DescribeClusterResponse {
    let blank = DescribeClusterResponse {
        endpoint_type: BROKERS,
        cluster_id: cluster_id.to_owned(),
        controller_id: -1,
        cluster_authorized_operations: view::OPERATIONS_NOT_ASKED,
        ..Default::default()
    };
    if request.endpoint_type != BROKERS && request.endpoint_type != 0 {
        let (error, message) = match request.endpoint_type {
            2 => (
                ErrorCode::MismatchedEndpointType,
                "this is a broker, not a controller",
            ),
            _ => (
                ErrorCode::UnsupportedEndpointType,
                "there is no such endpoint type",
            ),
        };
        return DescribeClusterResponse {
            error_code: error.code(),
            error_message: Some(message.to_owned()),
            ..blank
        };
    }
    let in_service = view::nodes_in_service(image, listener);
    let controller_id = view::controller_id(&in_service, draw);
    let nodes = if request.include_fenced_brokers {
        image
            .brokers()
            .filter_map(|broker| view::node(broker, listener))
            .collect()
    } else {
        in_service
    };
    DescribeClusterResponse {
        controller_id,
        brokers: nodes
            .into_iter()
            .map(|node| DescribeClusterBroker {
                broker_id: node.id,
                host: node.host,
                port: node.port,
                rack: node.rack,
                is_fenced: node.fenced,
            })
            .collect(),
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            view::CLUSTER_OPERATIONS
        } else {
            view::OPERATIONS_NOT_ASKED
        },
        ..blank
    }
}
