//! The broker as a member of its cluster: how it introduces itself, how it learns what was agreed, whom it asks.
//! Law: this room follows the metadata log and reports facts; it decides nothing about partitions.

pub mod carrier;
pub mod controller_client;
pub mod lifecycle;
pub mod metadata_cache;
pub mod metadata_follower;

pub use controller_client::{ControllerClient, ControllerError};
pub use lifecycle::Membership;
pub use metadata_cache::MetadataCache;

#[cfg(test)]
mod tests;
