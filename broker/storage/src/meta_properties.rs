//! `meta.properties`: whose directory this is.

use kuorum_protocol::DirectoryId;

/// The identity of one log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// The cluster's id.
    pub cluster_id: String,
    /// The node's number.
    pub node_id: i32,
    /// The directory's own id.
    pub directory_id: DirectoryId,
}
