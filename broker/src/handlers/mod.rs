//! The API table: one row each. What is not in it does not exist, and ApiVersions says exactly what is.
//! Law: a row names the API, its handler and what it needs to be allowed. A handler is a typed function of a context, a
//! request and its version; decoding, encoding and closing happen outside of it.

pub mod cluster;
pub mod log;

pub mod forward;

use kuorum_protocol::api_key::ApiKey;
use kuorum_protocol::messages::Request;
use kuorum_transport::Outcome;

use crate::authorizer::{Needs, Operation};
use crate::context::Context;
use crate::dispatch::encode;

/// One API as this broker serves it, in all the versions that `kuorum_protocol::api_key` gives.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub api: ApiKey,
    pub needs: Needs,
}

macro_rules! api_table {
    ($($api:ident: $handler:path, $needs:expr;)+) => {
        /// The table.
        pub static TABLE: &[Row] = &[
            $(Row { api: ApiKey::$api, needs: $needs },)+
        ];

        /// Calls the handler of `request`, which is at that place of the table, and encodes its answer.
        pub async fn call(
            cx: &Context,
            place: usize,
            request: Request,
            version: i16,
            correlation_id: i32,
        ) -> Outcome {
            match request {
                $(Request::$api(request) => {
                    let answer = $handler(cx, request, version).await;
                    let errors = cx.metrics.errors(place);
                    encode(ApiKey::$api, version, correlation_id, errors, answer)
                })+
                // Read by the protocol crate, not served here; with every API in the table there is none.
                #[allow(unreachable_patterns)]
                other => Outcome::Close(format!("{} is not served by this broker", other.api())),
            }
        }
    };
}

/// The row of an API and its place in the table.
pub fn row(api: ApiKey) -> Option<(usize, &'static Row)> {
    TABLE.iter().enumerate().find(|(_, row)| row.api == api)
}

use Operation::{
    Alter, AlterConfigs, Create, Delete, Describe, DescribeConfigs, IdempotentWrite, Read, Write,
};

api_table! {
    Produce: log::produce::produce, Needs::topics(Write);
    Fetch: log::fetch::fetch, Needs::topics(Read);
    ListOffsets: log::list_offsets::list_offsets, Needs::topics(Describe);
    OffsetForLeaderEpoch: log::offset_for_leader_epoch::offset_for_leader_epoch, Needs::topics(Describe);
    DeleteRecords: log::delete_records::delete_records, Needs::topics(Delete);
    ApiVersions: cluster::api_versions::api_versions, Needs::NOTHING;
    Metadata: cluster::metadata::metadata, Needs::topics(Describe);
    DescribeCluster: cluster::describe_cluster::describe_cluster, Needs::cluster(Describe);
    DescribeTopicPartitions: cluster::describe_topic_partitions::describe_topic_partitions, Needs::topics(Describe);
    CreateTopics: cluster::create_topics::create_topics, Needs::topics(Create);
    DeleteTopics: cluster::delete_topics::delete_topics, Needs::topics(Delete);
    CreatePartitions: cluster::create_partitions::create_partitions, Needs::topics(Alter);
    DescribeConfigs: cluster::describe_configs::describe_configs, Needs::configs(DescribeConfigs);
    AlterConfigs: cluster::alter_configs::alter_configs, Needs::configs(AlterConfigs);
    IncrementalAlterConfigs: cluster::incremental_alter_configs::incremental_alter_configs, Needs::configs(AlterConfigs);
    ListConfigResources: cluster::list_config_resources::list_config_resources, Needs::cluster(DescribeConfigs);
    ElectLeaders: cluster::elect_leaders::elect_leaders, Needs::cluster(Alter);
    AlterPartitionReassignments: cluster::alter_partition_reassignments::alter_partition_reassignments, Needs::cluster(Alter);
    ListPartitionReassignments: cluster::list_partition_reassignments::list_partition_reassignments, Needs::cluster(Describe);
    DescribeLogDirs: cluster::describe_log_dirs::describe_log_dirs, Needs::cluster(Describe);
    InitProducerId: cluster::init_producer_id::init_producer_id, Needs::cluster(IdempotentWrite);
}
