//! Proofs: a seeded simulation of replication and elections, stories with real processes, and the checks both end with.
//! Law: a check compares what was promised with what is there, and knows nothing of how it came about.

pub mod admin;
pub mod chaos;
pub mod checkers;
pub mod cluster;
pub mod handover;
pub mod history;
pub mod reassignment;
pub mod sim;
pub mod stories;
pub mod workload;
