//! The controllers' shells under turmoil: openraft with the log store and the state machine that run in production, on disks
//! that lose what was not synced, over a simulated network.
//! Law: what is compared is what was told to clients, what each controller applied, and what a follower of the log was given.
//! A seed decides every fault and delay; the order in which tasks of one process take turns is not all in its hand, so this is
//! seeded fuzzing, not a replay to the last bit.

mod broker;
mod controller;
mod disk;
mod history;
mod network;
mod plan;
mod world;

pub use disk::Lie;
pub use history::Tally;
pub use world::{Options, Outcome, run};
