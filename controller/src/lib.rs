//! The controller's shell: a quorum of processes that agrees on the metadata log, and what brokers and operators ask of it.
//! Law: decisions are pure and live in `kuorum_metadata`; here they meet time, disk and network.

pub mod controller;
pub mod identity;

mod probe;
pub mod quorum;

pub mod active;
pub mod events;
pub mod feed;
pub mod office_metrics;
pub mod replay;
pub mod ticker;

pub mod admin;
pub mod fleet;
pub mod rpc;
