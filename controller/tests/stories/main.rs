//! Controllers in one process, on loopback, as brokers and operators meet them.

#![allow(clippy::unwrap_used)] // a story that cannot be set up has failed

mod admin;
mod elections;
mod events;
mod failover;
mod reassignments;
mod rpc;
mod salvage;
mod support;
