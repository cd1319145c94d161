//! What is asked about the cluster, and what a controller must decide, one file per API.
//! Law: reads come from one image; changes go through `forward` and nowhere else.

pub mod api_versions;
pub mod metadata;

pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_log_dirs;
pub mod describe_topic_partitions;
pub mod list_config_resources;
pub mod list_partition_reassignments;

pub mod alter_configs;
pub mod alter_partition_reassignments;
pub mod config_changes;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_topics;
pub mod elect_leaders;
pub mod incremental_alter_configs;
pub mod init_producer_id;

mod view;

#[cfg(test)]
mod tests;
