//! A Kuorum broker: the bytes of partitions on the wire and on disk. Everything the cluster decides comes from the
//! controllers; everything a partition decides is in `partition`; the rest of this crate carries it out.
//! Law: handlers are thin and typed; no lock crosses an await; every task has an owner.

pub mod authorizer;
pub mod config;
pub mod context;

pub mod dispatch;
pub mod fetch_memory;
pub mod fetch_session;
pub mod handlers;

pub mod alter_partition;
pub mod assign_directories;
pub mod event_reporter;
pub mod log_maintenance;
pub mod partition;
pub mod producer_ids;
pub mod replica_fetcher;
pub mod replica_manager;
pub mod salvage;
pub mod throttle;
pub mod topic_settings;

pub mod cluster;

pub mod broker;

pub mod http;
pub mod metrics;

#[cfg(test)]
mod testing;
