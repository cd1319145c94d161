//! Controllers in one process, on loopback, as brokers and operators meet them.

mod admin;
mod failover;
mod rpc;
mod support;
