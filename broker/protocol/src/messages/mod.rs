//! The messages, one file per API, in the order of their keys.
//! Law: struct and field names are those of Kafka's schemas; values are plain. Where a request and a response of one
//! API use the same struct name, the response's has the suffix `Response`.

use bytes::Bytes;

use crate::api_key::ApiKey;
use crate::frame::decode_body;
use crate::message::{Message, RequestMessage};
use crate::wire::{Encoder, WireError};

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

macro_rules! apis {
    ($($api:ident: $module:ident::{$request:ident, $response:ident},)+) => {
        $(pub mod $module;)+

        /// Any request this crate can read.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Request {
            $(
                #[doc = concat!("A `", stringify!($request), "`.")]
                $api($module::$request),
            )+
        }

        impl Request {
            #[allow(unreachable_patterns)] // the one api that is read in its own way stands before its row
            /// Reads the body of a request to its last byte; bytes left over are an error, but for the ones that
            /// [`metadata::decode_request`] knows of.
            pub fn decode(api: ApiKey, version: i16, body: Bytes) -> Result<Self, WireError> {
                match api {
                    ApiKey::Metadata => metadata::decode_request(version, body).map(Self::Metadata),
                    $(ApiKey::$api => decode_body(version, body).map(Self::$api),)+
                }
            }

            /// Writes the body; fails as `Message::encode` does.
            pub fn encode(&self, version: i16, out: &mut Encoder) -> Result<(), WireError> {
                match self {
                    $(Self::$api(message) => message.encode(version, out),)+
                }
            }

            /// Its kind.
            pub fn api(&self) -> ApiKey {
                match self {
                    $(Self::$api(_) => ApiKey::$api,)+
                }
            }
        }

        /// Any response this crate can read.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Response {
            $(
                #[doc = concat!("A `", stringify!($response), "`.")]
                $api($module::$response),
            )+
        }

        impl Response {
            /// Reads the body of a response to its last byte; bytes left over are an error.
            pub fn decode(api: ApiKey, version: i16, body: Bytes) -> Result<Self, WireError> {
                match api {
                    $(ApiKey::$api => decode_body(version, body).map(Self::$api),)+
                }
            }

            /// Writes the body; fails as `Message::encode` does.
            pub fn encode(&self, version: i16, out: &mut Encoder) -> Result<(), WireError> {
                match self {
                    $(Self::$api(message) => message.encode(version, out),)+
                }
            }

            /// Its kind.
            pub fn api(&self) -> ApiKey {
                match self {
                    $(Self::$api(_) => ApiKey::$api,)+
                }
            }
        }

        $(
            impl RequestMessage for $module::$request {
                type Response = $module::$response;
            }
        )+

        /// Shows every message to a visitor, beside the same message of another implementation.
        #[cfg(test)]
        pub(crate) fn for_every_message(visitor: &mut impl tests::Visitor) {
            use kafka_protocol::messages as theirs;
            $(
                visitor.visit::<$module::$request, theirs::$request>(stringify!($request));
                visitor.visit::<$module::$response, theirs::$response>(stringify!($response));
            )+
        }
    };
}

apis! {
    Produce: produce::{ProduceRequest, ProduceResponse},
    Fetch: fetch::{FetchRequest, FetchResponse},
    ListOffsets: list_offsets::{ListOffsetsRequest, ListOffsetsResponse},
    Metadata: metadata::{MetadataRequest, MetadataResponse},
    FindCoordinator: find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse},
    ListGroups: list_groups::{ListGroupsRequest, ListGroupsResponse},
    ApiVersions: api_versions::{ApiVersionsRequest, ApiVersionsResponse},
    CreateTopics: create_topics::{CreateTopicsRequest, CreateTopicsResponse},
    DeleteTopics: delete_topics::{DeleteTopicsRequest, DeleteTopicsResponse},
    DeleteRecords: delete_records::{DeleteRecordsRequest, DeleteRecordsResponse},
    InitProducerId: init_producer_id::{InitProducerIdRequest, InitProducerIdResponse},
    OffsetForLeaderEpoch: offset_for_leader_epoch::{
        OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
    },
    DescribeConfigs: describe_configs::{DescribeConfigsRequest, DescribeConfigsResponse},
    AlterConfigs: alter_configs::{AlterConfigsRequest, AlterConfigsResponse},
    DescribeLogDirs: describe_log_dirs::{DescribeLogDirsRequest, DescribeLogDirsResponse},
    CreatePartitions: create_partitions::{CreatePartitionsRequest, CreatePartitionsResponse},
    ElectLeaders: elect_leaders::{ElectLeadersRequest, ElectLeadersResponse},
    IncrementalAlterConfigs: incremental_alter_configs::{
        IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
    },
    AlterPartitionReassignments: alter_partition_reassignments::{
        AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
    },
    ListPartitionReassignments: list_partition_reassignments::{
        ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
    },
    DescribeCluster: describe_cluster::{DescribeClusterRequest, DescribeClusterResponse},
    ListConfigResources: list_config_resources::{
        ListConfigResourcesRequest, ListConfigResourcesResponse
    },
    DescribeTopicPartitions: describe_topic_partitions::{
        DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
    },
}
