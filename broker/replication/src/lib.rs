//! Who is in sync, how far may anyone read, where to cut: the replication of one partition, as decisions.
//! Law: pure. No clock, no file, no socket; time is handed in, and what must happen is handed out.

pub mod assignment;
pub mod leader;

pub mod isr;

pub mod follower_progress;

pub mod acks;
pub mod follower;

pub mod fetch_plan;

pub mod waiters;

pub use kuorum_metadata::mutation;

pub use assignment::{Assignment, Durability, Standing, Terms};
pub use follower::{Follower, FollowerStep, Ticket};
pub use isr::{Isr, IsrProposal, IsrReply};
pub use leader::Leader;
pub use mutation::Mutation;
pub use waiters::Waiters;
