//! Requests about the records of partitions.
//! Law: a handler finds the partition, asks it under its lock, and says on the wire what it answered.

pub mod delete_records;
pub mod fetch;
pub mod leaders;
pub mod limits;
pub mod list_offsets;
pub mod offset_for_leader_epoch;
pub mod produce;

#[cfg(test)]
mod tests;
