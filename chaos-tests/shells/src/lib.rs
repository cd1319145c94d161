//! The shells under turmoil: openraft with the log store and the state machine that run in production, whole brokers, and the
//! clients, on disks that lose what was not synced, over a simulated network.
//! Law: what is compared is what was told to clients, what each controller applied, what a follower of the log was given, and
//! what the replicas hold.
//! A seed decides every fault and delay; the order in which tasks of one process take turns is not all in its hand, so this is
//! seeded fuzzing, not a replay to the last bit.

mod broker;
mod client;
mod controller;
mod disk;
mod history;
mod ledger;
mod network;
mod outsider;
mod plan;
mod replicas;
mod world;

pub use disk::Lie;
pub use history::Tally;
pub use plan::Kind;
pub use world::{Options, Outcome, run};
