//! What the cluster has agreed on: the records, the image they build, and the rules for changing it.
//! Law: pure. No clock, socket or file; a decision reads an image and returns records.

pub mod record;
pub mod rpc;
